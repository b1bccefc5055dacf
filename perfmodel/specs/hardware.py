"""An accelerator as its datasheet describes it: read from YAML, answered in SI units."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.specs.hardware_groups import (
    Compute,
    Group,
    Link,
    Memory,
    Network,
    Pcie,
    Peaks,
    Price,
    quantity,
    text,
)
from perfmodel.specs.hardware_schema import explain
from perfmodel.specs.yaml_file import one_line, read_yaml
from perfmodel.units import GIB, GIGA, MEGA, TERA

ARITHMETICS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4")
"""What `Hardware.peak` can be asked for."""
SUFFIXES = (".yaml", ".yml")
ALIASES = {
    "3090": "rtx-3090",
    "4090": "rtx-4090",
    "5090": "rtx-5090",
    "6000-ada": "rtx-6000-ada",
    "a100-40gb": "a100-sxm-40gb",
    "a100-80gb": "a100-sxm-80gb",
    "a6000": "rtx-a6000",
    "b200": "b200-sxm",
    "b300": "b300-sxm",
    "gb10": "dgx-spark",
    "gb200-nvl72": "gb200",
    "gb300-nvl72": "gb300",
    "h800": "h800-sxm",
    "inf2": "inferentia2",
    "ironwood": "tpu-v7x",
    "trillium": "tpu-v6e",
    "trn1": "trainium1",
    "trn2": "trainium2",
    "xeon-8480+": "xeon-8480-plus",
}
"""Other names that people use and that mean one profile only; `h100` means several."""


class Hardware(Group):
    """A profile: facts in the units of datasheets as fields, SI quantities as properties."""

    # `schema` alone would hide a method of pydantic's.
    schema_: Literal[1] = Field(1, alias="schema", description="version of this schema: 1")
    name: str = text(
        ..., "name to call it by: lower case, digits, hyphens", pattern=r"^[a-z0-9][a-z0-9.-]*$"
    )
    title: str | None = text(None, "the vendor's full name")
    vendor: str | None = text(None, "who makes it")
    architecture: str | None = text(None, "generation and die")
    compute_capability: str | None = text(None, "CUDA's (9.0 in quotes) or AMD's (gfx942)")
    year: int | None = quantity(None, "year", 2010, 2100, "year of release")
    peaks_tflops: Peaks = Field(description="dense peak rates in TFLOP/s (TOP/s for integers)")
    memory: Memory = Field(description="device memory")
    compute: Compute | None = Field(None, description="units and clocks")
    link: Link | None = Field(None, description="direct link between devices")
    pcie: Pcie | None = Field(None, description="host interface")
    network: Network | None = Field(None, description="network between nodes")
    price: Price | None = Field(None, description="rent of one device")
    notes: str | None = text(None, "what else a user should know")

    @classmethod
    def parse(cls, data: Mapping[str, Any], where: str) -> Self:
        """Validate a loaded profile; ``where`` names it in errors.

        Raises:
            InputError: one line: ``where``, the key, what is wrong, its unit, range and remedy.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise InputError(f"{one_line(where)}: {explain(error, cls)}") from None

    def peak(self, arithmetic: str) -> float | None:
        """Dense FLOP/s (integer OP/s) of an arithmetic; None when the chip has no such path.

        Raises:
            UnknownNameError: when ``arithmetic`` is none of `ARITHMETICS`.
        """
        if arithmetic not in ARITHMETICS:
            known = ", ".join(ARITHMETICS)
            raise UnknownNameError(f"no arithmetic is called {arithmetic!r:.40}; known: {known}")
        value: float | None = getattr(self.peaks_tflops, arithmetic)
        return None if value is None else value * TERA

    @property
    def memory_bandwidth(self) -> float:
        """Peak bytes/s of the device memory."""
        return self.memory.bandwidth_gb_s * GIGA

    @property
    def capacity_bytes(self) -> int:
        """Bytes that a program can use: what the driver reports where that is known."""
        if self.memory.usable_gib is not None:
            return int(self.memory.usable_gib * GIB)
        return int(self.memory.capacity_gb * GIGA)

    @property
    def l2_bytes(self) -> float | None:
        """Bytes of the last-level on-chip cache."""
        return None if self.memory.l2_mb is None else self.memory.l2_mb * MEGA

    @property
    def l2_bandwidth(self) -> float | None:
        """Bytes/s of reads that stay in the last-level cache, as measured."""
        return None if self.memory.l2_gb_s is None else self.memory.l2_gb_s * GIGA

    @property
    def sm_count(self) -> int | None:
        """SMs, CUs or cores."""
        return None if self.compute is None else self.compute.sm_count

    @property
    def clock_hz(self) -> float | None:
        """The clock in Hz that the peaks hold for."""
        if self.compute is None or self.compute.boost_mhz is None:
            return None
        return self.compute.boost_mhz * MEGA

    @property
    def tdp_w(self) -> float | None:
        """Power limit in W."""
        return None if self.compute is None else self.compute.tdp_w

    @property
    def link_bandwidth(self) -> float:
        """Bytes/s per direction and device within the link domain; PCIe's without a link.

        Raises:
            InputError: when the profile describes neither.
        """
        if self.link is not None:
            return self.link.gb_s_per_direction * GIGA
        if self.pcie_bandwidth is None:
            raise InputError(f"{self.name}: describes no way to other devices: add link or pcie")
        return self.pcie_bandwidth

    @property
    def link_pair_bandwidth(self) -> float:
        """Bytes/s per direction between one pair; below `link_bandwidth` without a switch.

        Raises:
            InputError: as of `link_bandwidth`.
        """
        if self.link is None or self.link.gb_s_per_pair is None:
            return self.link_bandwidth
        return self.link.gb_s_per_pair * GIGA

    @property
    def link_domain(self) -> int:
        """How many devices reach each other over the link, this one counted; 1 without one."""
        return 1 if self.link is None else self.link.domain_gpus

    @property
    def pcie_bandwidth(self) -> float | None:
        """Bytes/s per direction to the host."""
        return None if self.pcie is None else self.pcie.gb_s_per_direction * GIGA

    @property
    def peer_access(self) -> bool:
        """Whether devices reach each other's memory; assumed where the profile doesn't say."""
        return self.link is not None or self.pcie is None or self.pcie.peer_access is not False

    @property
    def network_bandwidth(self) -> float | None:
        """Bytes/s per direction and device between nodes."""
        return None if self.network is None else self.network.gb_s_per_gpu * GIGA

    @property
    def price_usd_per_hour(self) -> tuple[float, float] | None:
        """Low and high rent of one device in USD per hour."""
        if self.price is None:
            return None
        return self.price.usd_per_hour_low, self.price.usd_per_hour_high


def hardware_dir() -> Traversable:
    """The folder of shipped profiles: inside the package in a wheel, beside it in a checkout."""
    shipped = files("perfmodel") / "hardware"
    return shipped if shipped.is_dir() else Path(__file__).resolve().parents[2] / "hardware"


@cache
def shipped_names() -> tuple[str, ...]:
    """The names of the shipped profiles, sorted."""
    names = (Path(item.name) for item in hardware_dir().iterdir() if item.is_file())
    return tuple(sorted(name.stem for name in names if name.suffix == ".yaml"))


def hardware_names() -> list[str]:
    """The names that `load_hardware` knows, sorted."""
    return list(shipped_names())


def load_hardware(name_or_path: str | os.PathLike[str]) -> Hardware:
    """The profile of a shipped name (in any case), or of a YAML file, whatever its suffix.

    Raises:
        UnknownNameError: no profile has that name, or several might be meant.
        InputError: the file can't be read, or what it says is wrong.
    """
    is_path = isinstance(name_or_path, os.PathLike)
    given = os.fspath(name_or_path) if isinstance(name_or_path, os.PathLike) else name_or_path
    if not isinstance(given, str):
        kind = type(given).__name__
        raise InputError(f"hardware: a name or a path is needed, not {kind}")
    if not given.strip():
        raise InputError("hardware: the name is empty; `perfmodel hardware list` shows them")
    if is_path or "/" in given or given.lower().endswith(SUFFIXES):
        return Hardware.parse(read_yaml(given), given)
    try:
        return load_shipped(shipped_name(given))
    except UnknownNameError:
        if "\0" not in given and os.path.lexists(given):
            return Hardware.parse(read_yaml(given), given)
        raise


@cache
def load_shipped(name: str) -> Hardware:
    """The shipped profile of an exact name; it is frozen, so one copy serves all."""
    file = hardware_dir() / f"{name}.yaml"
    return Hardware.parse(read_yaml(file), file.name)


def shipped_name(given: str) -> str:
    """The exact name behind a name in any case, or behind another that means one profile only.

    Raises:
        UnknownNameError: one line with the names that might be meant.
    """
    wanted = re.sub(r"-sxm\d\b", "-sxm", re.sub(r"[\s_]+", "-", given.strip().lower()))
    names = hardware_names()
    for name in (wanted, without_capacity(wanted)):
        exact = ALIASES.get(name, name)
        if exact in names:
            return exact
    raise UnknownNameError(
        f"no hardware is called {given!r:.60}{suggestion(wanted, names)}; "
        "list them with `perfmodel hardware list`, or give a YAML file"
    )


def without_capacity(wanted: str) -> str:
    """``l40s`` for ``l40s-48gb``: a capacity behind a name may stay away if it is the right one."""
    match = re.fullmatch(r"(.+)-(\d{1,5})gb", wanted)
    base = ALIASES.get(match[1], match[1]) if match else wanted
    if match is None or base not in hardware_names():
        return wanted
    capacity = load_shipped(base).memory.capacity_gb
    return base if abs(capacity - int(match[2])) <= 0.1 * capacity else wanted


def suggestion(wanted: str, names: list[str]) -> str:
    """``; did you mean …?`` with the names that begin so, or are spelt alike."""
    begin = [name for name in names if wanted and name.startswith(wanted)]
    close = begin or difflib.get_close_matches(wanted, names, n=4, cutoff=0.5)
    return f"; did you mean {', '.join(close[:8])}?" if close else ""
