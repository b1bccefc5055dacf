"""A time over sequences and tokens as lines in cells, cut until they are near enough.

For each number of sequences there is a row. A cell holds the line through its two ends; where a
time inside misses that line by more than a tolerance, in any row, the cell is cut further, down to
buckets (`cells`), and those at the edge in them. A jump anywhere in a cell moves a number near its
middle off the line by half the jump, so that no miss is much more than twice what is tolerated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.operators.quantity import Array, Quantity
from perfmodel.planning.sweep.cells import CellOf, Cells, Whole, first_cells
from perfmodel.planning.sweep.places import Places

AT_ONCE = 100_000
"""Prices that are worked out together."""
FEW = 64
"""Numbers of sequences that each have a row, however large they are."""
PROBES = 16
"""Numbers of tokens at which rows are compared where there are more."""
ROW_INNER = 3
"""Numbers of sequences between two rows at which they are compared."""
FIRST = 5
"""The fewest tokens, each of which is among them: kernels for few queries differ."""

Price = Callable[[Array, Array], Quantity]
"""Seconds of sequences (rows, 1) and tokens (columns,)."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """Seconds at both ends of cells, for each row."""

    cells: Cells
    first: Array
    last: Array

    def at(self, which: NDArray[np.bool_]) -> _Lines:
        """Of some of the cells."""
        return _Lines(self.cells.at(which), self.first[:, which], self.last[:, which])

    @classmethod
    def joined(cls, parts: list[_Lines]) -> _Lines:
        """All parts in order."""
        order = np.argsort(np.concatenate([part.cells.first for part in parts]))
        first, last = (
            np.concatenate([getattr(part.cells, end) for part in parts])[order]
            for end in ("first", "last")
        )
        values = (
            np.concatenate([getattr(part, end) for part in parts], axis=1)[:, order]
            for end in ("first", "last")
        )
        return cls(Cells(first, last), *values)


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Cuts cells until their lines are near enough."""

    price: Price
    scale: Price | None
    """Seconds of the same step that aren't in ``price``."""
    rows: Array
    tolerance: float
    inner: int
    """Numbers inside a cell that are compared with its line."""

    def lines(self, cells: Cells) -> _Lines:
        """Lines that miss by no more than the tolerance halfway, or at an edge in a bucket."""
        found = []
        while len(cells.first):
            lines, bent = self._drawn(cells)
            cut = bent & cells.can_split()
            stuck = bent & (cells.size > 2) & ~cut
            found += [lines.at(~cut & ~stuck), *self._at_edges(lines.at(stuck))]
            cells = cells.at(cut).split()
        return _Lines.joined(found)

    def _drawn(self, cells: Cells) -> tuple[_Lines, NDArray[np.bool_]]:
        """Lines, and which of them miss a number inside in any row."""
        inner = [cells.inside(i, self.inner + 1) for i in range(1, self.inner + 1)]
        columns = np.concatenate([cells.first, cells.last, *inner])
        first, last, *others = np.split(
            _priced(self.price, self.rows, columns), self.inner + 2, axis=1
        )
        bent = np.zeros(len(cells.first), dtype=bool)
        for at, seconds in zip(inner, others, strict=True):
            share = (at - cells.first) / np.maximum(cells.last - cells.first, 1)
            missed = np.abs(first + share * (last - first) - seconds)
            whole = seconds
            if self.scale is not None:
                whole = seconds + _priced(self.scale, self.rows, at)
            bent |= np.any(missed > self.tolerance * whole, axis=0)
        return _Lines(cells, first, last), bent

    def _at_edges(self, lines: _Lines) -> list[_Lines]:
        """Each cell cut in two where it jumps: the half with the larger change, again and again."""
        if not len(lines.cells.first):
            return []
        low, high = lines.cells.first.copy(), lines.cells.last.copy()
        at_low, at_high = lines.first, lines.last
        while np.any(high - low > 1):
            middle = (low + high) // 2
            value = _priced(self.price, self.rows, middle)
            up = np.abs(value - at_low).sum(axis=0) > np.abs(at_high - value).sum(axis=0)
            low, high = np.where(up, low, middle), np.where(up, middle, high)
            at_low, at_high = np.where(up, at_low, value), np.where(up, value, at_high)
        cells = lines.cells.cut_after(low)
        before = np.stack([lines.first, at_high], axis=2).reshape(len(self.rows), -1)
        behind = np.stack([at_low, lines.last], axis=2).reshape(len(self.rows), -1)
        return [_Lines(cells, before, behind)]


def _priced(price: Price, rows: Array, columns: Whole) -> Array:
    """Seconds for all rows and columns, few enough columns at a time to bound memory."""
    out = np.empty((len(rows), len(columns)))
    width = max(1, AT_ONCE // len(rows))
    for start in range(0, len(columns), width):
        part = slice(start, start + width)
        out[:, part] = price(rows[:, None], columns[part].astype(np.float64))
    return out


class Surface:
    """Seconds over (sequences, tokens), and their sums over tokens.

    Args:
        price: what prices them.
        rows: the numbers of sequences that are asked for, in order, each once.
        low: fewest tokens that are asked for.
        high: most.
        scale: seconds of the same step that aren't in ``price``.
        tolerance: how far a line may miss the time inside, as a share of the whole step.
        inner: numbers inside a cell at which that is looked at.
        exact_to: sequences up to which each number has a row of its own; beyond, many numbers lie
            between rows that are chosen like cells.
    """

    def __init__(
        self,
        price: Price,
        rows: Array,
        low: int,
        high: int,
        scale: Price | None = None,
        *,
        tolerance: float,
        inner: int = 1,
        exact_to: int = 1,
    ) -> None:
        start = first_cells(low, high)
        self._between = None
        many = rows[rows > exact_to]
        if len(many) > FEW:
            chosen, self._between = _chosen(price, scale, many, start, tolerance)
            rows = np.concatenate([rows[rows <= exact_to], chosen])
        lines = _Cutter(price, scale, rows, tolerance, inner).lines(start)
        cells, first, last = lines.cells, lines.first, lines.last
        self._places = Places(rows)
        self._cells = len(cells.first)
        self._cell = CellOf(cells)
        slope = (last - first) / np.maximum(cells.last - cells.first, 1)
        base = first - slope * cells.first
        self._slope, self._base = slope.ravel(), base.ravel()
        self._sum = _antiderivative(cells, slope, base).ravel()

    def rows(self, sequences: Array) -> Rows:
        """Where ``sequences`` lie among the rows."""
        if self._between is None:
            return Rows(self._places(sequences) * self._cells, None, None)
        low, high, share = self._between(sequences)
        return Rows(self._places(low) * self._cells, self._places(high) * self._cells, share)

    def values(self, rows: Rows, tokens: Array) -> Array:
        """Seconds at ``tokens``."""
        cell = self._cell(tokens)
        return rows.mixed(lambda row: self._value(row + cell, tokens))

    def _value(self, at: Whole, tokens: Array) -> Array:
        value: Array = self._base.take(at) + self._slope.take(at) * tokens
        return value

    def sums(self, rows: Rows, start: Array, stop: Array) -> Array:
        """The integral over tokens from ``start`` to ``stop``.

        From a − 1/2 to b + 1/2 for whole a and b it is the sum over a … b.
        """
        low, high = self._cell(start + 0.5), self._cell(stop + 0.5)
        return rows.mixed(
            lambda row: self._integral(row + high, stop) - self._integral(row + low, start)
        )

    def _integral(self, at: Whole, tokens: Array) -> Array:
        line = self._base.take(at) + self._slope.take(at) * (0.5 * tokens)
        integral: Array = self._sum.take(at) + tokens * line
        return integral


def _antiderivative(cells: Cells, slope: Array, base: Array) -> Array:
    """What the integral of each cell's line is short of one over all cells."""
    low, high = cells.first - 0.5, cells.last + 0.5
    whole = base * (high - low) + slope / 2 * (high**2 - low**2)
    before = np.cumsum(whole, axis=1) - whole
    return np.asarray(before - low * (base + slope / 2 * low))


@dataclass(frozen=True, slots=True)
class Rows:
    """Offsets of rows in a surface's tables; between two where sequences have no row."""

    first: Whole
    second: Whole | None
    share: Array | None

    def mixed(self, of: Callable[[Whole], Array]) -> Array:
        """A value of one row, or on the line between two."""
        first = of(self.first)
        if self.second is None or self.share is None:
            return first
        return first + self.share * (of(self.second) - first)


Between = Callable[[Array], tuple[Array, Array, Array]]


def _chosen(
    price: Price, scale: Price | None, rows: Array, cells: Cells, tolerance: float
) -> tuple[Array, Between]:
    """Rows that the others lie between, found at a few numbers of tokens."""
    end = len(cells.first) - 1
    some = np.linspace(0, end, PROBES).round().astype(np.int64)
    some = np.unique(np.minimum(np.concatenate([np.arange(FIRST), some]), end))
    columns = cells.last[some].astype(np.float64)

    def across(other: Price) -> Price:
        # The row's number takes the column's place: cells are those of sequences less one.
        return lambda at, less: np.transpose(np.asarray(other(less[:, None] + 1, at[:, 0])))

    fewest = int(rows[0])
    low, high = fewest - 1, int(rows[-1]) - 1
    others = None if scale is None else across(scale)
    cutter = _Cutter(across(price), others, columns, tolerance, ROW_INNER)
    found = cutter.lines(first_cells(low, high)).cells
    cell_of = CellOf(found)
    first, last = found.first + 1.0, found.last + 1.0

    def between(sequences: Array) -> tuple[Array, Array, Array]:
        cell = cell_of(sequences - 1)
        own = sequences < fewest
        before = np.where(own, sequences, first.take(cell))
        behind = np.where(own, sequences, last.take(cell))
        return before, behind, (sequences - before) / np.maximum(behind - before, 1)

    return np.unique(np.concatenate([first, last])), between
