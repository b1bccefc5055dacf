"""The lines of a roofline: roofs of the datasheet, what kernels reach of them, ridge points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.inference.ceilings import DEVICE_MEMORY, Ceiling
from perfmodel.inference.roofline import DeviceRoofline
from perfmodel.text import digits, si
from reports.html.geometry import path
from reports.html.plane import LETTER, Plane

CROWDED = 0.06
"""Part of all marks of all settings from which a roof isn't named in the picture."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Roof:
    """One line, and its text along it."""

    path: str
    kind: str
    """``datasheet``, ``attained`` or ``unused``: how it is drawn."""
    text: str
    x: float
    y: float
    angle: float


@dataclass(frozen=True, slots=True)
class Corner:
    """A ridge point, with its text at the foot of the picture."""

    x: float
    y: float
    text: str
    text_y: float


@dataclass(frozen=True, slots=True)
class Line:
    """One roof in FLOP per byte and FLOP/s."""

    points: tuple[tuple[float, float], ...]
    kind: str
    text: str
    along: int
    """The piece that the text stands at."""


def roof_lines(device: DeviceRoofline, left: float, right: float) -> Iterator[Line]:
    """The roofs, the weakest first: those of the datasheet, then what kernels reach of them."""
    computes = [c for c in device.ceilings if c.kind == "compute"]
    levels = [c for c in device.ceilings if c.kind == "memory"]
    used = [c for c in computes if c.used and c.datasheet is not None]
    highest = max(used, key=lambda c: c.datasheet or 0.0)
    main = next(c for c in levels if c.datasheet is not None)
    yield from _unused(computes, main, highest, right)
    for kind in ("attained", "datasheet"):
        for compute in used:
            yield from _compute_roof(compute, main, kind, right)
        for level in levels:
            yield from _memory_roof(level, highest, kind, left)


def _rate(ceiling: Ceiling, kind: str) -> float | None:
    if kind == "datasheet":
        return ceiling.datasheet
    return None if ceiling.attained is None else ceiling.attained.rate


def _compute_roof(compute: Ceiling, main: Ceiling, kind: str, right: float) -> Iterator[Line]:
    rate, slope = _rate(compute, kind), _rate(main, kind)
    if rate is not None and slope is not None:
        text = f"{compute.name} {si(rate, 'FLOP/s')}" if kind == "datasheet" else ""
        yield Line(((rate / slope, rate), (right, rate)), kind, text, 0)


def _memory_roof(level: Ceiling, highest: Ceiling, kind: str, left: float) -> Iterator[Line]:
    slope, peak = _rate(level, kind), _rate(highest, kind)
    if slope is None or peak is None:
        return
    named = kind == "datasheet" or level.datasheet is None
    text = f"{level.name} {si(slope, 'B/s')}" if named else ""
    yield Line(((left, slope * left), (peak / slope, peak)), kind, text, 0)


def _unused(
    computes: Sequence[Ceiling], main: Ceiling, highest: Ceiling, right: float
) -> Iterator[Line]:
    """The roofs of formats that nothing uses here; those of one height are one line."""
    peaks: dict[float, list[str]] = {}
    for ceiling in computes:
        peak = ceiling.datasheet
        if not ceiling.used and peak is not None and peak > (highest.datasheet or 0.0):
            peaks.setdefault(peak, []).append(ceiling.name)
    slope = main.datasheet or 1.0
    for peak, names in peaks.items():
        start = (highest.datasheet or 0.0) / slope
        points = ((start, start * slope), (peak / slope, peak), (right, peak))
        yield Line(points, "unused", f"{', '.join(names)} {si(peak, 'FLOP/s')} (not used)", 1)


def pixels_of(plane: Plane, line: Line) -> list[tuple[float, float]]:
    """The line inside the picture: a memory roof may begin below its foot."""
    points = []
    for x, y in line.points:
        low = plane.y.low
        points.append(plane.spot(x * low / y, low) if y < low else plane.spot(x, y))
    return points


def roof_of(plane: Plane, line: Line, dots: Floats) -> Roof:
    """A line with its text, where the fewest marks are; without one where many would cover it.

    Args:
        plane: the axes.
        line: one of `roof_lines`.
        dots: (n, 3) places and radii of all marks in all settings.
    """
    points = pixels_of(plane, line)
    bare = Roof(path(points), line.kind, "", 0, 0, 0)
    start, end = np.asarray(points[line.along : line.along + 2])
    length = float(np.hypot(*(end - start)))
    width = LETTER * plane.layout.text * len(line.text)
    if not line.text or width > length:
        return bare
    unit = (end - start) / length
    above = np.array([unit[1], -unit[0]]) * (0.35 * plane.layout.text + 3)
    along = np.linspace(width / 2, length - width / 2, 25)
    middles = start + along[:, None] * unit + above
    # A flat roof's text is liked best at its end, a slanted one's in its middle.
    liked = along[-1] if unit[1] == 0 else length / 2
    covered = np.asarray([_covered(middle, unit, width, dots) for middle in middles])
    at = int(np.argmin(covered + np.abs(along - liked) / length))
    if covered[at] > CROWDED * len(dots):
        return bare
    x, y = middles[at]
    angle = math.degrees(math.atan2(unit[1], unit[0]))
    return Roof(bare.path, line.kind, line.text, round(x, 1), round(y, 1), round(angle, 1))


def _covered(middle: Floats, unit: Floats, width: float, dots: Floats) -> float:
    """How many of the marks lie under a text of ``width`` along ``unit``."""
    away = dots[:, :2] - middle
    along = np.abs(away @ unit) - width / 2
    across = np.abs(away @ np.array([-unit[1], unit[0]])) - 7
    gap = np.maximum(np.maximum(along, across), 0)
    return float((gap < dots[:, 2]).sum())


def corners_of(device: DeviceRoofline, plane: Plane) -> Iterator[Corner]:
    """The ridge points of the datasheet's roofs with the device memory's."""
    found = [r for r in device.ridges if r.of == "datasheet" and r.level == DEVICE_MEMORY]
    for number, ridge in enumerate(found):
        x, y = plane.spot(ridge.flops_per_byte, ridge.flops_per_s)
        whose = f"{ridge.arithmetic} " if len(found) > 1 else ""
        row = plane.layout.bottom - plane.layout.text * (0.6 + 1.3 * number)
        text = f"{whose}ridge {digits(ridge.flops_per_byte)} FLOP/B"
        yield Corner(round(x, 1), round(y, 1), text, round(row, 1))
