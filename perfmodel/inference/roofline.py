"""Where each operator of prefill and decode sits under the roofs of one or several devices."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.ceilings import (
    DEVICE_MEMORY,
    Attained,
    Ceiling,
    Kind,
    Ridge,
    ceilings_of,
    ridges,
)
from perfmodel.inference.estimate import Estimate, Phase, estimate, running
from perfmodel.inference.phase import OperatorCost
from perfmodel.operators.record import Phase as PhaseName
from perfmodel.operators.record import Shape
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload

PATHS = ("batch", "prompt", "output", "cached_prefix")
"""Quantities of a workload that a path may follow."""
Name = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Mark:
    """One operator of a phase: its work and time in one step of one GPU (of each stage).

    ``flops``, ``bytes`` and times are totals over ``count`` executions, in all chunks of a chunked
    prefill.
    """

    phase: PhaseName
    name: str
    setting: int
    """Which of the workload's settings, in the order of `Roofline.settings`."""
    shape: Shape
    count: int
    arithmetic: str
    flops: float
    bytes: float
    """Device-memory traffic."""
    wire_bytes: float
    time_s: float
    low_s: float
    high_s: float
    roof_s: float
    """The same work at the datasheet's rates."""
    share: float
    """Of the phase's time."""
    bound: str
    """``compute``, ``memory``, ``network`` or ``launch``."""
    source: str

    @property
    def on_roof(self) -> bool:
        """Whether it has FLOPs and bytes, and so a place under the roofs."""
        return self.flops > 0 and self.bytes > 0 and self.time_s > 0

    @property
    def intensity(self) -> float:
        """FLOPs per byte of device memory; 0 where none are counted."""
        return self.flops / self.bytes if self.bytes > 0 else 0.0

    @property
    def flops_per_s(self) -> float:
        """FLOP/s that it reaches."""
        return self.flops / self.time_s if self.time_s > 0 else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes/s of device memory that it reaches."""
        return self.bytes / self.time_s if self.time_s > 0 else 0.0

    @property
    def attained(self) -> float:
        """Share of the datasheet's roof at its intensity: 1 is as fast as it could be."""
        return self.roof_s / self.time_s if self.time_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One timed call on the device: exact work over the time it took."""

    family: str
    """``gemm``, ``attention_decode``, …"""
    arithmetic: str
    flops: float
    bytes: float
    time_s: float

    @property
    def intensity(self) -> float:
        """FLOPs per byte of device memory."""
        return self.flops / self.bytes if self.bytes > 0 else 0.0

    @property
    def flops_per_s(self) -> float:
        """FLOP/s that it reached."""
        return self.flops / self.time_s


@dataclass(frozen=True, slots=True)
class DeviceRoofline:
    """The roofs of one device, and the operators under them."""

    hardware: Hardware
    calibration: str
    """What turned work into time."""
    ceilings: tuple[Ceiling, ...]
    marks: tuple[Mark, ...]
    estimate: Estimate
    """The whole answer that the marks are of."""

    @property
    def ridges(self) -> tuple[Ridge, ...]:
        """Ridge points of the arithmetics in use."""
        return ridges(self.ceilings)

    def of(self, phase: PhaseName, setting: int = 0) -> tuple[Mark, ...]:
        """The marks of one phase in one setting."""
        return tuple(m for m in self.marks if m.phase == phase and m.setting == setting)


@dataclass(frozen=True, slots=True)
class Roofline:
    """A model's operators under the roofs of one or several devices."""

    model: Model
    workload: Workload
    path: Literal["batch", "prompt", "output", "cached_prefix"] | None
    """The quantity that the settings differ in; None for a single one."""
    settings: tuple[int, ...]
    """Its values, ascending as given; the batch where there is one setting."""
    devices: tuple[DeviceRoofline, ...]


def roofline(
    model: Model | Name,
    hardware: Hardware | Name | Sequence[Hardware | Name],
    workload: Workload | None = None,
    deployment: Deployment | None = None,
    *,
    roofline_only: bool = False,
) -> Roofline:
    """Place every operator of prefill and of the mean decode step under a device's roofs.

    Args:
        model: a `Model`, or what `load_model` takes.
        hardware: a `Hardware` or what `load_hardware` takes, or several of them.
        workload: one of batch, prompt, output and cached prefix may be an array: a path.
        deployment: parallel layout, formats and engine settings.
        roofline_only: the datasheet's roof, without calibration: every operator lies on it.

    Raises:
        InputError: as `estimate`; no hardware; or a workload with more than one array.
    """
    several = [hardware] if isinstance(hardware, Hardware | str | os.PathLike) else list(hardware)
    if not several:
        raise InputError("hardware: name at least one")
    workload = Workload() if workload is None else workload
    path = path_of(workload)
    settings = getattr(workload, path or "batch")
    devices = []
    for one in several:
        result = estimate(model, one, workload, deployment, roofline_only=roofline_only)
        model = result.model if isinstance(model, Model) else model
        devices.append(_device(result))
    return Roofline(
        model=devices[0].estimate.model,
        workload=workload,
        path=path,
        settings=tuple(int(value) for value in np.ravel(settings)),
        devices=tuple(devices),
    )


def path_of(workload: Workload) -> Any:
    """The quantity of a workload that has several values; None where all have one.

    Raises:
        InputError: several do, or one is a table.
    """
    varied = [name for name in PATHS if np.ndim(getattr(workload, name))]
    if len(varied) > 1:
        raise InputError(f"a path follows one quantity: {' and '.join(varied)} both have several")
    if varied and np.ndim(getattr(workload, varied[0])) > 1:
        raise InputError(f"{varied[0]}: a path is a list of values, not a table")
    return varied[0] if varied else None


def _device(result: Estimate) -> DeviceRoofline:
    size = max(int(np.size(getattr(result.workload, name))) for name in PATHS)
    marks = [*_marks("prefill", result.prefill, size), *_marks("decode", result.decode, size)]
    device, runs, _ = running(result.hardware, result.plan, roofline_only=result.roofline_only)
    return DeviceRoofline(
        hardware=result.hardware,
        calibration=result.calibration,
        ceilings=ceilings_of(device, runs, result.plan, list(_reached(marks))),
        marks=tuple(marks),
        estimate=result,
    )


def _reached(marks: Iterable[Mark]) -> Iterator[tuple[Kind, str, Attained]]:
    """What operators reach of their arithmetic, and of the device memory."""
    for mark in marks:
        if mark.on_roof:
            yield "compute", mark.arithmetic, _attained(mark, mark.flops)
        if mark.bytes > 0 and mark.time_s > 0:
            yield "memory", DEVICE_MEMORY, _attained(mark, mark.bytes)


def _attained(mark: Mark, work: float) -> Attained:
    return Attained(work / mark.time_s, work / mark.high_s, work / mark.low_s, mark.source)


def _marks(name: PhaseName, phase: Phase, size: int) -> Iterator[Mark]:
    """The marks of a phase, setting by setting."""
    total = _each(phase.time_s, size)
    columns = [(row, _columns(row, size)) for row in phase.cost.operators]
    for setting in range(size):
        for row, values in columns:
            own = {field: column[setting] for field, column in values.items()}
            yield Mark(
                phase=name,
                name=row.name,
                setting=setting,
                shape={n: _each(s, size)[setting] for n, s in row.shape.items()},
                count=row.count,
                arithmetic=row.arithmetic,
                share=own["time_s"] / total[setting] if total[setting] > 0 else 0.0,
                source=row.source,
                **own,
            )


def _columns(row: OperatorCost, size: int) -> dict[str, list[Any]]:
    numbers = ("flops", "bytes", "wire_bytes", "time_s", "low_s", "high_s", "roof_s", "bound")
    return {name: _each(getattr(row.cost, name), size) for name in numbers}


def _each(value: Any, size: int) -> list[Any]:
    """A quantity's value in each setting, as Python's own numbers and names."""
    out: list[Any] = np.broadcast_to(value, (size,)).tolist()
    return out
