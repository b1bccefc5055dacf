"""The axes of a roofline in each of its sizes, and where a mark stands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.html.geometry import Axis
from reports.html.marks import Track

LEAST_SHARE = 0.005
"""Of a phase's time: a smaller operator doesn't stretch the axes."""
DEEPEST = 1e6
"""The foot of the picture is at most so far below its top."""
ABOVE = 3.2
"""The top over the highest roof: there is room for its name."""
LETTER = 0.58
"""Width of a letter over its size, on average and with room to spare."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A size of the picture, in pixels."""

    name: str
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    text: float
    """Size of letters."""
    full: float
    """Radius of a mark with all of a phase's time."""
    names: int
    """Operators that are named at most."""
    x_room: float
    """Pixels between two ticks."""


WIDE = Layout("wide", 920, 530, 74, 900, 10, 480, 14, 25, 10, 56)
NARROW = Layout("narrow", 358, 420, 54, 344, 8, 380, 11.5, 17, 5, 44)
LAYOUTS = (WIDE, NARROW)
SMALLEST = 3.5
"""Radius of the smallest mark."""


@dataclass(frozen=True, slots=True)
class Plane:
    """The axes of one size: FLOP per byte across, FLOP/s upwards."""

    layout: Layout
    x: Axis
    y: Axis

    def spot(self, intensity: float, rate: float) -> tuple[float, float]:
        """The pixel of a place."""
        return self.x.at(intensity), self.y.at(rate)

    def radius(self, share: float) -> float:
        """Pixels of a mark with that share of its phase's time."""
        return max(SMALLEST, self.layout.full * math.sqrt(share))


def dots_of(plane: Plane, found: Sequence[Track]) -> NDArray[np.float64]:
    """(n, 3): place and radius of every mark in every setting."""
    return np.asarray(
        [
            (*plane.spot(m.intensity, m.flops_per_s), plane.radius(m.share))
            for track in found
            for m in track.marks
            if m is not None
        ]
    )


def plane_of(layout: Layout, found: Sequence[Track], *, corner: float, peak: float) -> Plane:
    """Axes that hold the marks of all settings, the last ridge point and the highest roof.

    Args:
        layout: the size.
        found: the operators.
        corner: FLOP per byte of the last ridge point.
        peak: FLOP/s of the highest roof.
    """
    marks = [m for track in found for m in track.marks if m is not None]
    seen = [m for m in marks if m.share >= LEAST_SHARE] or marks
    top = ABOVE * peak
    x = Axis(
        min(m.intensity for m in seen) / 2,
        max(2 * max(m.intensity for m in seen), 8 * corner),
        layout.left,
        layout.right,
    )
    foot = max(min(m.flops_per_s for m in seen) / 2, top / DEEPEST)
    return Plane(layout, x, Axis(foot, top, layout.bottom, layout.top))
