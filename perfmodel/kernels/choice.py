"""Which calibration prices a device: its own, a relative's, or the generic one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from perfmodel.errors import UnknownNameError
from perfmodel.kernels.calibration_file import Calibrated, load_calibrated
from perfmodel.specs.hardware import Hardware, hardware_dir, load_hardware

GENERIC = "generic"
"""The stack that stands for no calibration: assumed shares for all devices."""
Origin = Literal["fitted", "transferred"]
CARRIES_WELL = ("gemm.", "attention_decode.", "collective.")
"""Families whose parameters, fitted on H100, kept about nine of ten of H200's times in an interval
1.5 times as wide in its logarithm; for prefill, MLA and experts it takes twice the width."""
TRANSFER_WIDENS = 1.5
TRANSFER_WIDENS_OTHERS = 2.0


@dataclass(frozen=True, slots=True)
class Choice:
    """A calibration, and how it comes to price this device."""

    calibrated: Calibrated
    origin: Origin

    @property
    def label(self) -> str:
        """What an output says of it."""
        c = self.calibrated
        release = c.release.split(",")[0]  # of several, the one with the most rows
        what = release if c.stack in release else f"{c.stack} {release}"
        if self.origin == "fitted":
            return f"fitted ({what})"
        return f"transferred from {c.hardware} ({what})"


def transfer_widens(set_name: str) -> float:
    """Factor on an interval's log width for another device's parameters, or another format's."""
    return TRANSFER_WIDENS if set_name.startswith(CARRIES_WELL) else TRANSFER_WIDENS_OTHERS


def _folder() -> Path:
    return Path(str(hardware_dir())) / "calibrations"


@lru_cache(maxsize=1)
def available() -> dict[str, dict[str, Path]]:
    """Calibration files by hardware and stack."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(_folder().glob("*.*.yaml")):
        hardware, stack = path.name.removesuffix(".yaml").rsplit(".", 1)
        found.setdefault(hardware, {})[stack] = path
    return found


def _relative(hardware: Hardware, stack: str | None) -> str | None:
    """The calibrated device of the same generation whose memory is the nearest in speed."""
    near: list[tuple[float, str]] = []
    for name, stacks in available().items():
        if name == hardware.name or (stack is not None and stack not in stacks):
            continue
        other = load_hardware(name)
        same = hardware.compute_capability is not None
        if same and other.compute_capability == hardware.compute_capability:
            ratio = other.memory_bandwidth / hardware.memory_bandwidth
            near.append((max(ratio, 1 / ratio), name))
    return min(near)[1] if near else None


@lru_cache(maxsize=8)
def _load(path: Path) -> Calibrated:
    return load_calibrated(path)


@lru_cache(maxsize=8)
def _load_as_of(path: Path, modified_ns: int) -> Calibrated:
    """A file as it was last written: many estimates by one calibration read it once."""
    return load_calibrated(path)


def _from_file(path: Path, hardware: Hardware) -> Choice:
    try:
        found = _load_as_of(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):  # no such file, or no name of one: the loader says what is wrong
        found = load_calibrated(path)
    return Choice(found, "fitted" if found.hardware == hardware.name else "transferred")


def choose_calibration(hardware: Hardware, stack: str | None = None) -> Choice | None:
    """The calibration for a device: of ``stack``, or the first that it has; None: the generic one.

    A ``stack`` that ends in .yaml or .yml is a file that `calibrate fit` wrote.

    Raises:
        UnknownNameError: a stack that no device is calibrated for.
        InputError: a file that isn't a calibration.
    """
    if stack is not None and stack.endswith((".yaml", ".yml")):
        return _from_file(Path(stack), hardware)
    stacks = sorted({name for own in available().values() for name in own})
    if stack is not None and stack not in stacks:
        raise UnknownNameError(
            f"--stack: no calibration for {stack!r:.40}; there are: {', '.join(stacks) or 'none'}"
        )
    own = available().get(hardware.name, {})
    wanted = own.get(stack) if stack else next(iter(own.values()), None)
    if wanted is not None:
        return Choice(_load(wanted), "fitted")
    relative = _relative(hardware, stack)
    if relative is None:
        return None
    files = available()[relative]
    return Choice(_load(files[stack] if stack else next(iter(files.values()))), "transferred")
