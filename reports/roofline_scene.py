"""What a roofline picture shows, in FLOP per byte and FLOP/s: roofs, marks, and what they say.

An operator that counts no FLOPs has no place under a roof. It stands in a strip at the left edge,
at its bytes/s times the strip's intensity: as far below the memory roof as it reads more slowly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.inference.ceilings import Ceiling
from perfmodel.inference.roofline import DeviceRoofline, Mark, Measured, Roofline
from perfmodel.operators.record import Phase
from reports.figure import COLOURS
from reports.roofline_roofs import (
    Corner,
    Frame,
    Line,
    Manner,
    colour_of,
    corners_of,
    lines_of,
)

PHASES: tuple[Phase, ...] = ("prefill", "decode")
SHAPES: dict[Phase, str] = {"prefill": "o", "decode": "s"}
FILLS = ("full", "none", "left", "bottom", "right", "top", "full")
"""Its marks: full, hollow, or half full."""
STRIP = 0.12
"""Part of the width, in decades, that the strip of operators without FLOPs takes."""
SMALL = 7.5
"""Inches of width below which texts leave away what the lines themselves show."""
FULL = 0.0035
"""Part of the figure that a mark of 100 % would cover."""
LEAST = 4.0
"""Area of the smallest mark in square points: smaller ones couldn't be seen."""
DEEPEST = 1e6
"""The foot of the picture is at most so far below its top."""


@dataclass(frozen=True, slots=True)
class Dot:
    """One operator's mark."""

    mark: Mark
    device: int
    at: tuple[float, float]
    area: float
    """Square points."""
    shape: str
    fill: str
    colour: str

    @property
    def size(self) -> float:
        """Diameter of a round mark, or side of a square one, in points: of the same area."""
        return float(np.sqrt(self.area * (4 / np.pi if self.shape == "o" else 1)))

    @property
    def name(self) -> str:
        """What the file calls it."""
        m = self.mark
        return f"mark/{self.device}/{m.phase}/{m.setting}/{m.name}"


@dataclass(frozen=True, slots=True)
class Scene:
    """All of a roofline picture but its labels' places."""

    frame: Frame
    lines: tuple[Line, ...]
    corners: tuple[Corner, ...]
    dots: tuple[Dot, ...]
    paths: tuple[tuple[Dot, ...], ...]
    """Each operator's marks through the settings of a path."""
    measured: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    """By family: timed calls."""


def scene_of(result: Roofline, measured: Sequence[Measured], size: tuple[float, float]) -> Scene:
    """What a picture of ``size`` inches shows."""
    frame = _frame(result, measured)
    single = len(result.devices) == 1
    dots: list[Dot] = []
    paths: list[tuple[Dot, ...]] = []
    for number, device in enumerate(result.devices):
        for track in _tracks(device, len(result.settings)):
            made = [_dot(mark, number, frame, size, single=single) for mark in track]
            shown = tuple(dot for dot in made if dot is not None)
            dots += shown
            if len(shown) > 1:
                paths.append(shown)
    manner = Manner(single, size[0] < SMALL)
    lines = [x for n, d in enumerate(result.devices) for x in lines_of(d, n, frame, manner)]
    corners = [x for n, d in enumerate(result.devices) for x in corners_of(d, n, manner)]
    return Scene(
        frame, tuple(lines), tuple(corners), tuple(dots), tuple(paths), _calls(measured, frame)
    )


def _tracks(device: DeviceRoofline, settings: int) -> Iterator[tuple[Mark, ...]]:
    """The marks of each operator over the settings: a phase has the same operators in all."""
    for phase in PHASES:
        yield from zip(*(device.of(phase, setting) for setting in range(settings)), strict=True)


def _frame(result: Roofline, measured: Sequence[Measured]) -> Frame:
    marks = [m for d in result.devices for m in d.marks if m.on_roof]
    placed = [m.intensity for m in marks] + [m.intensity for m in measured if m.flops > 0]
    corners = [r.flops_per_byte for d in result.devices for r in d.ridges]
    peaks = [c.datasheet for d in result.devices for c in d.ceilings
             if c.kind == "compute" and c.datasheet and _drawn(c, result)]  # fmt: skip
    main = min(placed, default=1.0) / 2
    right = max([*(6 * c for c in corners), 2 * max(placed, default=1.0)])
    left = float(main * (main / right) ** (STRIP / (1 - STRIP)))
    slowest = min(d.hardware.memory_bandwidth for d in result.devices)
    seen = [m.flops_per_s for m in marks if m.share >= 0.005]
    seen += [m.flops_per_s for m in measured if m.flops > 0]
    seen += [m.bytes_per_s * left for d in result.devices for m in d.marks
             if not m.on_roof and m.bytes > 0 and m.share >= 0.01]  # fmt: skip
    top = 7 * max(peaks)
    foot = min([0.5 * slowest * left, *(y / 2.5 for y in seen)])
    return Frame(left, main, right, max(foot, top / DEEPEST), top)


def _drawn(ceiling: Ceiling, result: Roofline) -> bool:
    """Formats that nothing uses are shown where they crowd no other device's roofs."""
    return ceiling.used or len(result.devices) == 1


def place(mark: Mark | Measured, column: float, foot: float) -> tuple[float, float]:
    """Where a mark stands; without FLOPs in the strip, without bytes too at its foot."""
    if mark.flops > 0 and mark.bytes > 0:
        return mark.intensity, max(mark.flops_per_s, foot)
    reads = mark.bytes / mark.time_s * column
    return column, max(reads, foot)


def _dot(
    mark: Mark, device: int, frame: Frame, size: tuple[float, float], *, single: bool
) -> Dot | None:
    if mark.time_s <= 0:
        return None
    full = FULL * size[0] * size[1] * 72**2
    return Dot(
        mark=mark,
        device=device,
        at=place(mark, frame.column(mark.phase), frame.foot),
        area=max(mark.share * full, LEAST),
        shape=SHAPES[mark.phase],
        fill=FILLS[device % len(FILLS)],
        colour=COLOURS[PHASES.index(mark.phase)] if single else colour_of(device),
    )


def _calls(
    measured: Sequence[Measured], frame: Frame
) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    families: dict[str, list[tuple[float, float]]] = {}
    middle = float(np.sqrt(frame.left * frame.main))
    for call in measured:
        families.setdefault(call.family, []).append(place(call, middle, frame.foot))
    return tuple((name, tuple(points)) for name, points in families.items())
