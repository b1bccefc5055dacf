"""Whole numbers cut into cells, finer where they are small, and the cell of a number by its bits.

A kernel's time over tokens or context goes in stairs whose edges are multiples of powers of two
(rows of a tile, keys of a block), and is nearly a line between them. A cell is a run of numbers
[k·2^s, (k + 1)·2^s − 1], so that its ends can meet those edges. A float's exponent and the first
bits of its mantissa, its bucket, tell the cell without a search. A bucket may have one edge inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.operators.quantity import Array

Whole = NDArray[np.int64]

BITS = 10
"""Bits of the mantissa that tell cells apart: none is narrower than 1/1,024 of its numbers."""
_SHIFT = 52 - BITS
_LEAST = 0.5
"""What stands for 0, which has no exponent."""
_BASE = (1023 - 1) << BITS
"""The bucket of `_LEAST`."""
PER_OCTAVE = 3
"""Cells of a first cut for each doubling, as a power of two."""
EVEN = 7
"""First cells are 2^7 = 128 wide (a block of keys, the largest tile's rows) from 128 to 1,024."""
HALVINGS = 2
"""A cell that isn't a line is cut into 2^2."""


def bucket(x: Array) -> Whole:
    """The bucket of numbers from 0 on, whole or not; those of a bucket share their cell."""
    bits: Whole = np.maximum(x, _LEAST).view(np.int64)
    found: Whole = (bits >> _SHIFT) - _BASE
    return found


@dataclass(frozen=True, slots=True)
class Cells:
    """Runs of whole numbers: ``first`` … ``last``, both included, in order and without gaps."""

    first: Whole
    last: Whole

    @property
    def size(self) -> Whole:
        """Numbers in each."""
        width: Whole = self.last - self.first + 1
        return width

    def inside(self, part: int, of: int) -> Whole:
        """The number that lies ``part``/``of`` into each, less a 32nd.

        Even stairs meet the line between their ends at halves and quarters: just before them they
        are farthest from it.
        """
        number: Whole = self.first + (32 * part - of) * self.size // (32 * of)
        return number

    def at(self, which: NDArray[np.bool_]) -> Cells:
        """Some of the cells."""
        return Cells(self.first[which], self.last[which])

    @property
    def _finest(self) -> Whole:
        """Numbers of a bucket."""
        width: Whole = np.maximum(_power_below(self.first) >> BITS, 1)
        return width

    def can_split(self) -> NDArray[np.bool_]:
        """Whether each has parts that buckets tell apart."""
        return self.size > self._finest

    def split(self) -> Cells:
        """Each cut into up to 2^`HALVINGS` equal parts, none finer than a bucket."""
        part = np.maximum(self.size >> HALVINGS, np.minimum(self._finest, self.size))
        count = self.size // part
        start = np.repeat(self.first, count)
        width = np.repeat(part, count)
        step = np.arange(len(start)) - np.repeat(np.cumsum(count) - count, count)
        first = start + step * width
        return Cells(first, first + width - 1)

    def cut_after(self, number: Whole) -> Cells:
        """Each cut in two behind ``number``, which is in it and isn't its last."""
        first = np.stack([self.first, number + 1], axis=1).ravel()
        return Cells(first, np.stack([number, self.last], axis=1).ravel())


class CellOf:
    """Which cell a number lies in; those outside take the nearest."""

    def __init__(self, cells: Cells) -> None:
        first = cells.first.astype(np.float64)
        starts = bucket(first)
        self._top = int(bucket(cells.last[-1:].astype(np.float64))[0]) + 1
        opens = np.zeros(self._top + 1, dtype=np.int64)
        opens[starts[bucket(first - 1) < starts]] = 1  # the bucket's first number begins a cell
        before = np.searchsorted(starts, np.arange(self._top + 1), side="left")
        self._cell = np.maximum(before - 1 + opens, 0).astype(np.int32)
        self._end = cells.last + 1.0
        self._end[-1] = np.inf

    def __call__(self, x: Array) -> NDArray[np.int64]:
        """The cells of numbers, whole or not: those of their whole parts."""
        cell = self._cell.take(np.minimum(bucket(x), self._top))
        found: NDArray[np.int64] = cell + (x >= self._end.take(cell))
        return found


def _power_below(x: Whole) -> Whole:
    """The largest power of two up to each number; 1 for 0."""
    exponent = np.frexp(np.maximum(x, 1).astype(np.float64))[1] - 1
    power: Whole = np.left_shift(np.int64(1), exponent.astype(np.int64))
    return power


def first_cells(low: int, high: int) -> Cells:
    """The first cut of the numbers from ``low`` to ``high``, rounded out to whole cells.

    >>> cells = first_cells(1, 20)
    >>> list(zip(cells.first.tolist(), cells.last.tolist()))[-5:]
    [(14, 14), (15, 15), (16, 17), (18, 19), (20, 21)]
    """
    octave = np.arange(max(low, 1).bit_length() - 1, max(high, 1).bit_length())
    width = np.minimum(np.maximum(octave - PER_OCTAVE, np.where(octave >= EVEN, EVEN, 0)), octave)
    count = 1 << (octave - width)
    start = np.repeat(np.int64(1) << octave, count)
    size = np.repeat(np.int64(1) << width, count)
    step = np.arange(len(start)) - np.repeat(np.cumsum(count) - count, count)
    first = start + step * size
    if low == 0:
        first, size = np.insert(first, 0, 0), np.insert(size, 0, 1)
    last = first + size - 1
    near = (last >= low) & (first <= high)
    return Cells(first[near], last[near])
