"""Serving engines: limits, memory that they keep, host time and kernels, from YAML."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.specs.base import Spec
from perfmodel.specs.engine_groups import (
    Gib,
    GraphUse,
    LimitChoice,
    Limits,
    Scheduler,
    StaticReserve,
    Tier,
)
from perfmodel.specs.engine_timing import Host, Kernels
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.yaml_file import read_yaml
from perfmodel.units import GIB

ENGINES = Path(__file__).parent / "engines"


MemoryRule = Literal["total", "static", "free", "free_after_weights"]


class Activation(Spec):
    """Peak of activations: logits × sequences, hidden × tokens, and a constant."""

    bytes_per_logit: Annotated[float, Field(ge=0, le=1e3)]
    bytes_per_hidden: Annotated[float, Field(ge=0, le=1e3)]
    fixed_gib: Gib


class Outside(Spec):
    """Device memory that neither weights, cache nor activations use."""

    one_gpu: Gib
    several_gpus: Gib


class Engine(Spec):
    """An engine's defaults and memory formula, with their source."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str
    source: str
    kv_layout: Literal["paged", "contiguous", "flat"]
    block_size: Annotated[int, Field(ge=1, le=2**20)]
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share that ``memory_rule`` applies; ``static_reserve`` gives it where None."""
    static_reserve: StaticReserve | None = None
    memory_rule: MemoryRule = "total"
    """What the share is of; see `inference.memory_rule`."""
    large_device_gib: Gib
    small_limit_architectures: tuple[str, ...] = Field(default=(), strict=False)
    limits: LimitChoice
    tiers: tuple[Tier, ...] = Field(default=(), strict=False)
    """Defaults by device; ``limits`` where none matches."""
    scheduler: Scheduler | None = None
    graph: GraphUse = GraphUse()
    activation: Activation
    outside_gib: Outside
    mxfp4_expert_multiple: Annotated[int, Field(ge=1, le=2**14)] = 1
    memory_source: str | None = None
    """Where the memory fields come from when ``source`` is about something else."""
    stack: str | None = None
    """The calibration that this engine's kernel factors are relative to: ``generic`` for engines
    with kernels of their own, None for those that run the libraries that were measured."""
    host: Host = Host(source="assumed: none stated, so the host takes no time")
    kernels: Kernels = Kernels()

    @model_validator(mode="after")
    def _check(self) -> Engine:
        if self.gpu_memory_utilization is None and self.static_reserve is None:
            raise PydanticCustomError(
                "share", "gpu_memory_utilization or static_reserve must be stated"
            )
        return self

    def _tier(self, hardware: Hardware) -> Tier | None:
        size = hardware.capacity_bytes
        return next((t for t in self.tiers if t.matches(hardware.name, size)), None)

    def default_limits(self, hardware: Hardware) -> Limits:
        """The limits that the engine takes on ``hardware`` when none are given."""
        tier = self._tier(hardware)
        if tier is not None:
            return tier.limits
        named_small = any(
            word.lower() in hardware.name.lower() for word in self.small_limit_architectures
        )
        large = hardware.capacity_bytes >= self.large_device_gib * GIB and not named_small
        return self.limits.large if large else self.limits.small

    def graph_batch(self, hardware: Hardware, tp: int) -> int | None:
        """The largest decode batch that is captured; None: any."""
        tier = self._tier(hardware)
        if tier is None or tier.graph_batch is None:
            return self.graph.decode_batch
        wide = tp >= 4 and tier.graph_batch_tp4 is not None
        return tier.graph_batch_tp4 if wide else tier.graph_batch

    def utilisation(
        self, hardware: Hardware, tokens: int, captured: int | None, gpus: int
    ) -> float:
        """The default share of the device's memory.

        Args:
            hardware: the device.
            tokens: the budget of a step.
            captured: the largest decode batch that is captured.
            gpus: of one replica.
        """
        if self.static_reserve is None or self.gpu_memory_utilization is not None:
            return self.gpu_memory_utilization or 1.0
        capacity = hardware.capacity_bytes
        return self.static_reserve.utilisation(capacity, tokens, captured or 0, gpus)


def engine_names() -> list[str]:
    """Engines that perfmodel ships."""
    return sorted(path.stem for path in ENGINES.glob("*.yaml"))


def engine_path(name: str) -> Path:
    """The file of a shipped preset.

    Raises:
        UnknownNameError: with the names that there are.
    """
    if name not in engine_names():
        known = ", ".join(engine_names())
        raise UnknownNameError(f"unknown engine {name[:60]!r}; known: {known}")
    return ENGINES / f"{name}.yaml"


@lru_cache(maxsize=32)
def load_engine(name_or_path: str) -> Engine:
    """An engine by name, or from a YAML file.

    Raises:
        InputError: an unknown name, a file that describes no engine, or its wrong field.
    """
    if name_or_path in engine_names():
        path = ENGINES / f"{name_or_path}.yaml"
        return Engine.parse(read_yaml(path), str(path))
    path = Path(name_or_path)
    is_path = "/" in name_or_path or path.suffix in {".yaml", ".yml"} or _exists(path)
    if not name_or_path.strip() or not is_path:
        known = ", ".join(engine_names())
        raise UnknownNameError(
            f"--engine: unknown engine {name_or_path[:60]!r}; known: {known}, or a YAML file"
        )
    return _from_file(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _from_file(path: Path) -> Engine:
    try:
        fields = read_yaml(path)
    except InputError as error:
        what = "this is no engine file: " if path.is_file() else ""
        raise InputError(f"--engine: {what}{error}") from None
    needed = {field.alias or name for name, field in Engine.model_fields.items()
              if field.is_required()}  # fmt: skip
    if len(needed & fields.keys()) < len(needed) / 2:
        hint = f"; it needs the keys {', '.join(sorted(needed))}"
        if "peaks_tflops" in fields:
            hint = " but a hardware profile"
        raise InputError(f"--engine: {path}: this is no engine file{hint}")
    return Engine.parse(fields, str(path))
