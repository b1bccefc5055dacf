"""Where labels of a picture stand so that none covers another, a mark, or leaves the axes.

Each label tries the places around its anchors, the nearest first, and takes the cheapest one that
is free; what matters most is placed first. That is deterministic, and a label that is drawn never
overlaps another: force-directed placement (adjustText) promises neither. All sizes are in pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
"""(n, 2) pixels."""
GAPS = (3.0, 5.0, 8.0, 12.0, 17.0, 24.0, 32.0, 42.0, 54.0, 68.0, 85.0, 105.0, 130.0)
"""Distances of a label from its mark that are tried, in points."""
ANGLES = 24
LEADER_FROM = 9.0
"""Points of distance from which a line ties a label to its mark."""
LINE_COST = 3.0
"""Cost of each point's length of a drawn line under a label, in points of distance."""
OTHER_COST = 30.0
"""Cost of standing nearer to another mark than to the own one, in points of distance."""
OTHER_FROM = 14.0
"""Points that another mark must be farther away than the own one to cost nothing."""
CROSSING_COST = 25.0
"""Cost of each line that a leader crosses, in points of distance."""
TURN_COST = 6.0
"""Cost of the least liked direction."""
STEP = 2.0
"""Points between the samples of a line."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x0: float
    y0: float
    x1: float
    y1: float

    def overlaps(self, other: Box) -> bool:
        """Whether both share an area."""
        across = self.x0 < other.x1 and other.x0 < self.x1
        return across and self.y0 < other.y1 and other.y0 < self.y1

    def holds(self, other: Box) -> bool:
        """Whether ``other`` lies inside."""
        across = self.x0 <= other.x0 and other.x1 <= self.x1
        return across and self.y0 <= other.y0 and other.y1 <= self.y1

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The point of the rectangle that is nearest to (x, y)."""
        return min(max(x, self.x0), self.x1), min(max(y, self.y0), self.y1)


@dataclass(frozen=True, slots=True)
class Label:
    """What wants a place."""

    width: float
    height: float
    anchors: tuple[tuple[float, float], ...]
    """Points that it may stand at; the first is liked best."""
    radius: float = 0.0
    """Of the mark around its anchor."""
    lines: tuple[int, ...] = ()
    """The numbers of the lines that it names, where it names those and no mark."""
    toward: float | None = None
    """The direction that it would rather stand in, in degrees from the right, upwards."""
    farthest: float = GAPS[-1]
    """Points of distance beyond which it is rather left out."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A label's place, and the line that ties it to its mark."""

    box: Box
    leader: tuple[tuple[float, float], tuple[float, float]] | None


def sample(points: Points, step: float) -> Points:
    """Points along a polyline, about ``step`` apart."""
    pieces = []
    for start, end in pairwise(points):
        length = float(np.hypot(*(end - start)))
        share = np.linspace(0, 1, max(2, int(length / step) + 1))[:, None]
        pieces.append(start + share * (end - start))
    return np.concatenate(pieces) if pieces else np.empty((0, 2))


class Page:
    """A picture's free room: what stands on it already, and labels that join it."""

    def __init__(
        self, inside: Box, lines: Sequence[Points], marks: Sequence[Box], point: float
    ) -> None:
        """Start with what is drawn.

        Args:
            inside: where labels may stand.
            lines: polylines, better not covered.
            marks: boxes that no label may cover.
            point: pixels of a typographic point.
        """
        self._inside = inside
        self._point = point
        self._labels: list[tuple[float, float, float, float]] = []
        boxes = [(b.x0, b.y0, b.x1, b.y1) for b in marks]
        self._marks = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
        every = [sample(line, STEP * point) for line in lines]
        self._number = np.repeat(np.arange(len(every)), [len(line) for line in every])
        self._lines: Points = np.concatenate(every) if every else np.empty((0, 2))
        self._leaders: Points = np.empty((0, 2))

    def place(self, label: Label) -> Placed | None:
        """The cheapest free place for a label, which is taken from then on; None where none is."""
        best: tuple[float, Placed] | None = None
        for number, anchor in enumerate(label.anchors):
            if label.lines and self._own(label, anchor).any():
                continue  # the line lies under a mark there
            most = np.inf if best is None else best[0]
            found = self._around(label, anchor, number * self._point, most)
            if found is not None:
                best = found
        if best is None:
            return None
        placed = best[1]
        box = placed.box
        self._labels.append((box.x0, box.y0, box.x1, box.y1))
        if placed.leader is not None:
            line = sample(np.asarray(placed.leader), STEP * self._point)
            self._leaders = np.concatenate([self._leaders, line])
        return placed

    def _around(
        self, label: Label, anchor: tuple[float, float], cost: float, most: float
    ) -> tuple[float, Placed] | None:
        """The cheapest free place at one anchor that costs less than ``most``."""
        gaps = np.asarray([g for g in GAPS if g <= label.farthest]) * self._point
        angles = np.arange(ANGLES) * (2 * np.pi / ANGLES)
        gap, angle = (a.ravel() for a in np.meshgrid(gaps, angles, indexing="ij"))
        costs = cost + gap + self._turn(label, angle)
        boxes = self._boxes(label, anchor, gap, angle)
        kept = np.flatnonzero((costs < most) & self._free(boxes))
        gap, boxes, costs = gap[kept], boxes[kept], costs[kept]
        costs = costs + self._crossed(boxes) + self._mistaken(label, anchor, boxes, gap)
        best: tuple[float, Placed] | None = None
        for at in np.argsort(costs, kind="stable"):
            so_far = most if best is None else best[0]
            if not costs[at] < so_far:
                return best
            box = Box(*map(float, boxes[at]))
            leader = self._leader(label, anchor, box, float(gap[at]))
            if leader is None:
                return float(costs[at]), Placed(box, leader)
            total = float(costs[at]) + self._crossings(label, leader)
            if total < so_far and self._leads(leader, label, anchor):
                best = total, Placed(box, leader)
        return best

    def _boxes(
        self, label: Label, anchor: tuple[float, float], gap: Points, angle: Points
    ) -> NDArray[np.float64]:
        """(n, 4) boxes that touch the circle of radius + gap around the anchor."""
        x, y = np.cos(angle), np.sin(angle)
        square = np.maximum(np.abs(x), np.abs(y))
        away = label.radius + gap
        cx = anchor[0] + x * away + x / square * label.width / 2
        cy = anchor[1] + y * away + y / square * label.height / 2
        w, h = label.width / 2, label.height / 2
        return np.stack([cx - w, cy - h, cx + w, cy + h], axis=1)

    def _turn(self, label: Label, angle: Points) -> Points:
        if label.toward is None:
            return np.zeros(angle.shape, dtype=np.float64)
        turned = 1 - np.cos(angle - float(np.radians(label.toward)))
        cost: Points = TURN_COST * self._point * turned / 2
        return cost

    def _crossed(self, boxes: NDArray[np.float64]) -> Points:
        """The cost of the lines under each box."""
        under = _count(boxes, self._lines)
        cost: Points = np.asarray(LINE_COST * self._point * STEP * under, dtype=np.float64)
        return cost

    def _mistaken(
        self, label: Label, anchor: tuple[float, float], boxes: NDArray[np.float64], gap: Points
    ) -> Points:
        """The cost of standing nearer to another mark, or line, which it would seem to name."""
        if not label.lines:
            others = self._marks[~self._own(label, anchor)]
        else:
            points = self._lines[~np.isin(self._number, label.lines)]
            others = np.concatenate([points, points], axis=1)
        if not len(others):
            return np.zeros(len(boxes))
        x = np.maximum(others[:, 0] - boxes[:, None, 2], boxes[:, None, 0] - others[:, 2])
        y = np.maximum(others[:, 1] - boxes[:, None, 3], boxes[:, None, 1] - others[:, 3])
        nearest = np.hypot(np.maximum(x, 0), np.maximum(y, 0)).min(axis=1)
        farther = (nearest - gap) / (OTHER_FROM * self._point)
        cost: Points = OTHER_COST * self._point * np.clip(1 - farther, 0, 1)
        return cost

    def _own(self, label: Label, anchor: tuple[float, float]) -> NDArray[np.bool_]:
        """The marks that lie on the label's own."""
        m = self._marks
        x = np.maximum(np.maximum(m[:, 0] - anchor[0], anchor[0] - m[:, 2]), 0)
        y = np.maximum(np.maximum(m[:, 1] - anchor[1], anchor[1] - m[:, 3]), 0)
        own: NDArray[np.bool_] = np.hypot(x, y) <= label.radius + self._point
        return own

    def _free(self, boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
        i = self._inside
        inside = (boxes[:, 0] >= i.x0) & (boxes[:, 1] >= i.y0)
        inside &= (boxes[:, 2] <= i.x1) & (boxes[:, 3] <= i.y1)
        free: NDArray[np.bool_] = inside & (_count(boxes, self._leaders) == 0)
        t = np.concatenate([self._marks, np.asarray(self._labels).reshape(-1, 4)])
        if len(t):
            across = (boxes[:, None, 0] < t[:, 2]) & (t[:, 0] < boxes[:, None, 2])
            up = (boxes[:, None, 1] < t[:, 3]) & (t[:, 1] < boxes[:, None, 3])
            free &= ~(across & up).any(axis=1)
        return free

    def _leader(
        self, label: Label, anchor: tuple[float, float], box: Box, gap: float
    ) -> tuple[tuple[float, float], tuple[float, float]] | None:
        if gap < LEADER_FROM * self._point:
            return None
        end = box.nearest(*anchor)
        x, y = end[0] - anchor[0], end[1] - anchor[1]
        length = float(np.hypot(x, y))
        if length <= label.radius:
            return None
        start = anchor[0] + x / length * label.radius, anchor[1] + y / length * label.radius
        return start, end

    def _crossings(
        self, label: Label, leader: tuple[tuple[float, float], tuple[float, float]]
    ) -> float:
        """The cost of the lines that a leader crosses, its own apart."""
        line = sample(np.asarray(leader), STEP * self._point)
        step = STEP * self._point
        (x0, y0), (x1, y1) = line.min(axis=0) - step, line.max(axis=0) + step
        x, y = self._lines.T
        others = (x > x0) & (x < x1) & (y > y0) & (y < y1) & ~np.isin(self._number, label.lines)
        points, number = self._lines[others], self._number[others]
        if not len(points):
            return 0.0
        near = np.hypot(*(line[:, None, :] - points[None]).transpose(2, 0, 1)).min(axis=0)
        crossed = np.unique(number[near < step])
        return CROSSING_COST * self._point * len(crossed)

    def _leads(
        self,
        leader: tuple[tuple[float, float], tuple[float, float]],
        label: Label,
        anchor: tuple[float, float],
    ) -> bool:
        """Whether a leader crosses no label, mark or other leader on its way."""
        line = sample(np.asarray(leader), STEP * self._point)
        # Marks that overlap the label's own can't be avoided.
        others = self._marks[~self._own(label, anchor)]
        taken = np.concatenate([others, np.asarray(self._labels).reshape(-1, 4)])
        if _count(taken, line).any():
            return False
        if len(self._leaders):
            apart = np.hypot(*(line[:, None, :] - self._leaders[None]).transpose(2, 0, 1))
            return bool((apart > STEP * self._point).all())
        return True


def _count(boxes: NDArray[np.float64], points: Points) -> NDArray[np.int64]:
    """How many of the points lie in each box."""
    if not len(points):
        return np.zeros(len(boxes), dtype=np.int64)
    x, y = points[:, 0], points[:, 1]
    across = (x > boxes[:, None, 0]) & (x < boxes[:, None, 2])
    inside: NDArray[np.int64] = (across & (y > boxes[:, None, 1]) & (y < boxes[:, None, 3])).sum(1)
    return inside
