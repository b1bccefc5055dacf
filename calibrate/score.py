"""How wrong predictions are: absolute errors in per cent, bias, coverage of the interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.operators.quantity import Array


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of a set of rows, in per cent of the measured time."""

    rows: int
    median: float
    mean: float
    p90: float
    bias: float
    """Median of the signed error: positive where predictions are too slow."""
    coverage: float
    """Share of rows inside the stated interval, in per cent; NaN without one."""


def score(
    predicted: Array, measured: Array, low: Array | None = None, high: Array | None = None
) -> Score:
    """Compare ``predicted`` with ``measured`` seconds (n,)."""
    if len(measured) == 0:
        return Score(0, *[float("nan")] * 5)
    signed = 100 * (predicted / measured - 1)
    error = np.abs(signed)
    inside = np.nan
    if low is not None and high is not None:
        inside = float(100 * np.mean((low <= measured) & (measured <= high)))
    return Score(
        rows=len(measured),
        median=float(np.median(error)),
        mean=float(error.mean()),
        p90=float(np.percentile(error, 90)),
        bias=float(np.median(signed)),
        coverage=inside,
    )
