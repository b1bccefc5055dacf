"""How far numbers that were fitted on deployments hold for others.

What a fit finds on one deployment is partly the engine's, and holds for its other deployments,
and partly that deployment's own: errors of its kernels, its release. Rows of several deployments
show which: each model (or GPU) is predicted from the others, with shares of the fit carried over
from none to all, and the share with the smallest error is used. One model says nothing of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.serving_fit import Response, fit_common
from calibrate.serving_preset import Numbers

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of the prior's variance that may be common to all deployments."""
FIELDS = ("model", "gpu")
"""What deployments differ in."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """Numbers for deployments that weren't measured."""

    numbers: Numbers
    share: float
    """Of the prior's variance that is common: 0 is the preset, unchanged."""
    fields: tuple[str, ...]
    """What was left out in turn, value by value; empty where nothing varies."""


def deployment(r: Response) -> Key:
    """Rows of one engine, model, GPU and format, whatever tp, lengths and load."""
    row = r.predicted.row
    return (row.engine, row.model, row.gpu, row.weights)


def carried(rows: Sequence[Response], fields: Sequence[str] = FIELDS) -> Carried:
    """What holds for other values of ``fields``, of those that vary; rows of one engine."""
    varied = tuple(f for f in fields if len({value_of(r, f) for r in rows}) > 1)
    share = min((_share(rows, field) for field in varied), default=0.0)
    return Carried(_common(rows, share), share, varied)


def value_of(r: Response, field: str) -> str:
    """What a row has in ``field``."""
    value: str = getattr(r.predicted.row, field)
    return value


def grouped(rows: Sequence[Response]) -> list[list[Response]]:
    """By deployment."""
    found: dict[Key, list[Response]] = {}
    for row in rows:
        found.setdefault(deployment(row), []).append(row)
    return list(found.values())


def _common(rows: Sequence[Response], share: float) -> Numbers:
    return fit_common(grouped(rows), share) if share else rows[0].own


def _share(rows: Sequence[Response], field: str) -> float:
    """The share with which each value's rows are predicted best from the others'."""
    errors = [_left_out(rows, field, share) for share in SHARES]
    return SHARES[int(np.argmin(errors))]


def _left_out(rows: Sequence[Response], field: str, share: float) -> float:
    """Mean over the values of the mean error of TPOT, as a log."""
    errors = []
    for value in dict.fromkeys(value_of(r, field) for r in rows):
        numbers = _common([r for r in rows if value_of(r, field) != value], share).array
        here = [r for r in rows if value_of(r, field) == value]
        pairs = np.array([(r.at(numbers).tpot_ms, r.predicted.row.tpot_ms) for r in here])
        errors.append(float(np.mean(np.abs(np.log(pairs[:, 0] / pairs[:, 1])))))
    return float(np.mean(errors))
