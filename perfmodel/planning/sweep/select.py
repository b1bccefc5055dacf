"""The best settings of a table, and those that no other beats in every respect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.operators.quantity import Array
from perfmodel.planning.sweep.columns import wanted_end
from perfmodel.planning.sweep.table import Table, Words

Places = NDArray[np.int64]


def best(table: Table, by: str, top: int, per: Sequence[str]) -> Table:
    """The ``top`` rows by a column, of each combination of the columns ``per``; the best first.

    Equal ones in the order of their settings; rows without a number aren't looked at.
    """
    score = _score(table, by)
    rows = np.flatnonzero(np.isfinite(score))
    if not per and len(rows) > 4 * top:
        limit = np.partition(score[rows], top - 1)[top - 1]
        rows = rows[score[rows] <= limit]
    setting = table.values("setting")
    if not per:
        return table.taken(rows[np.lexsort((setting[rows], score[rows]))][:top])
    group = _groups(table, per)[rows]
    order = np.lexsort((setting[rows], score[rows], group))
    ordered = group[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return table.taken(rows[order][rank < top])


def _score(table: Table, by: str) -> Array:
    """Smaller is better."""
    column, high = wanted_end(by)
    values = table.values(column)
    return -values if high else values


def _groups(table: Table, per: Sequence[str]) -> Places:
    """A number for each row, equal for rows that agree in all columns ``per``."""
    group = np.zeros(table.rows, dtype=np.int64)
    for name in per:
        column = table.columns[name]
        values: NDArray[Any]
        if isinstance(column, Words):
            rank = np.argsort(np.argsort(np.asarray(column.words)))
            values = rank[column.codes]
        else:
            values = column
        _, code = np.unique(values, return_inverse=True)
        _, group = np.unique(group * (int(code.max(initial=0)) + 1) + code, return_inverse=True)
    return group


def front(table: Table, objectives: Sequence[str]) -> Table:
    """Rows that no row beats: as good in every objective and better in one.

    Of rows that are equal in all of them the first setting stands for all. In the order of the
    first objective, the best first.
    """
    scores = np.stack([_score(table, name) for name in objectives], axis=1)
    rows = np.flatnonzero(np.all(np.isfinite(scores), axis=1))
    keys = [table.values("setting")[rows], *scores[rows].T[::-1]]
    rows = rows[np.lexsort(keys)]
    kept = _two(scores[rows]) if len(objectives) == 2 else _many(scores[rows])
    return table.taken(rows[kept])


def _two(scores: Array) -> NDArray[np.bool_]:
    """In the order of the first score, rows whose second is below all before."""
    before = np.minimum.accumulate(np.concatenate([[np.inf], scores[:-1, 1]]))
    kept: NDArray[np.bool_] = scores[:, 1] < before
    return kept


def _many(scores: Array) -> NDArray[np.bool_]:
    """Each row of the front in its turn strikes out the rows that it beats or equals."""
    kept = np.zeros(len(scores), dtype=bool)
    left = np.arange(len(scores))
    while len(left):
        first, rest = left[0], left[1:]
        kept[first] = True
        left = rest[np.any(scores[rest] < scores[first], axis=1)]
    return kept
