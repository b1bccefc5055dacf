"""What a pool of engines holds over time: means weighted by time, and a bounded timeline."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
POINTS = 512
"""Points of a timeline at most, an even number: when it is full, pairs become one."""

Interval = tuple[float, float, int, int, float, float]
"""Start, end, sequences running and waiting, blocks on average and at most."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Averages over equal stretches of time, all arrays of shape (points,)."""

    time_s: Array
    """Where each stretch begins."""
    running: Array
    waiting: Array
    kv_utilisation: Array


class Occupancy:
    """Intervals in which something was held, of any number of engines and in any order.

    Args:
        blocks: capacity of one engine's cache.
        engines: how many there are.
    """

    def __init__(self, blocks: float, engines: int) -> None:
        self.blocks, self.engines = blocks, engines
        self.begin = -inf
        """From when on the means count."""
        self.last = 0.0
        self.busy_s = self.running_s = self.waiting_s = self.blocks_s = 0.0
        self.peak = 0.0
        self._rows: list[Interval] = []
        self._origin = inf
        self._width = 0.0
        self._integrals = np.zeros((3, POINTS))

    def count_from(self, begin: float) -> None:
        """Forget what the means hold of the time before."""
        self.begin = begin
        self.busy_s = self.running_s = self.waiting_s = self.blocks_s = self.peak = 0.0

    def add(self, row: Interval) -> int:
        """Take in one interval; how many wait to be counted."""
        self._rows.append(row)
        return len(self._rows)

    def flush(self) -> None:
        """Count the intervals that were gathered."""
        if not self._rows:
            return
        start, end, running, waiting, mean, most = np.array(self._rows).T
        self._rows = []
        self.last = max(self.last, float(end.max()))
        seconds = np.maximum(end - np.maximum(start, self.begin), 0.0)
        self.running_s += float(seconds @ running)
        self.waiting_s += float(seconds @ waiting)
        self.blocks_s += float(seconds @ mean)
        # only an interval in which something runs is an engine's step
        self.busy_s += float(seconds @ (running > 0))
        self.peak = max(self.peak, float(np.where(seconds > 0, most, 0.0).max()))
        self._draw(start, end, np.array([running, waiting, mean]))

    def _draw(self, start: Array, end: Array, values: Array) -> None:
        """Add the intervals to the timeline's stretches."""
        if self._width == 0.0:
            self._origin = float(start.min())
            self._width = max(self.last - self._origin, 1e-9) / POINTS
        while self.last > self._origin + POINTS * self._width * (1 + 1e-12):
            self._integrals[:, : POINTS // 2] = self._integrals[:, ::2] + self._integrals[:, 1::2]
            self._integrals[:, POINTS // 2 :] = 0.0
            self._width *= 2
        # The sum of all intervals is a step function of time: its integral at the stretches' ends.
        knots = np.concatenate([start, end])
        order = np.argsort(knots, kind="stable")
        knots = knots[order]
        levels = np.cumsum(np.concatenate([values, -values], axis=1)[:, order], axis=1)
        sums = np.zeros_like(levels)
        np.cumsum(levels[:, :-1] * np.diff(knots), axis=1, out=sums[:, 1:])
        edges = self._origin + self._width * np.arange(POINTS + 1)
        edges[0], edges[-1] = -inf, inf  # rounding leaves nothing out
        self._integrals += np.diff([np.interp(edges, knots, row) for row in sums], axis=1)

    def timeline(self, others: tuple[Occupancy, ...] = ()) -> Timeline:
        """The averages so far, of these engines and those of ``others`` together."""
        parts = (self, *others)
        origin = min(part._origin for part in parts)
        last = max(part.last for part in parts)
        width = max(part._width for part in parts)
        if width == 0.0:
            empty = np.zeros(0)
            return Timeline(empty, empty, empty, empty)
        while last > origin + POINTS * width * (1 + 1e-12):
            width *= 2
        edges = np.asarray(origin + width * np.arange(POINTS + 1), np.float64)
        sums = sum((part._integral(edges) for part in parts), np.zeros((3, POINTS + 1)))
        points = max(1, min(POINTS, int(np.ceil((last - origin) / width * (1 - 1e-9)))))
        spans = np.minimum(np.diff(edges), np.maximum(last - edges[:-1], 1e-300))[:points]
        running, waiting, blocks = np.diff(sums, axis=1)[:, :points] / spans
        capacity = sum(part.blocks * part.engines for part in parts)
        return Timeline(edges[:points], running, waiting, blocks / capacity)

    def _integral(self, edges: Array) -> Array:
        """(3, edges) the integrals up to each edge."""
        if self._width == 0.0:
            return np.zeros((3, len(edges)))
        own = self._origin + self._width * np.arange(POINTS + 1)
        own = np.minimum(own, max(self.last, self._origin))  # nothing comes after the last
        sums = np.zeros((3, POINTS + 1))
        np.cumsum(self._integrals, axis=1, out=sums[:, 1:])
        return np.array([np.interp(edges, own, row) for row in sums])
