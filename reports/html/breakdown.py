"""Where the time goes: the groups of operators of each phase, in every setting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.inference.breakdown import GROUPS
from perfmodel.inference.breakdown import breakdown as group_times
from perfmodel.operators.quantity import Array
from perfmodel.operators.record import Phase as PhaseName
from perfmodel.text import percent, seconds
from reports.html.columns import NONE, Columns, share_width
from reports.html.grid import Grid

PHASES: tuple[PhaseName, ...] = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Groups that take time in some setting, in the order of `GROUPS`."""

    groups: tuple[tuple[int, str], ...]
    """Each with its number there, which is its colour's too."""
    columns: Columns
    """``time.PHASE.NUMBER``, ``share.…`` and ``width.…``."""


def breakdown(grid: Grid) -> Breakdown:
    """The parts of both phases in every setting."""
    times = {phase: _times(grid, phase) for phase in PHASES}
    shown = [
        (n, group) for n, group in enumerate(GROUPS) if any(group in of for of in times.values())
    ]
    columns: Columns = {}
    for phase, of in times.items():
        total = sum(of.values(), np.zeros(grid.size))
        for number, group in shown:
            own = of.get(group, np.zeros(grid.size))
            columns |= _part(f"{phase}.{number}", own, own / total, grid.fits())
    return Breakdown(tuple(shown), columns)


def _times(grid: Grid, phase: PhaseName) -> dict[str, Array]:
    """Seconds of each group, one for each setting."""
    times: dict[str, Array] = {}
    start = 0
    for part in grid.parts:
        result, size = part.roofline.estimate, len(part.batches)
        for group, spent in group_times(result, getattr(result, phase)).groups:
            times.setdefault(group, np.zeros(grid.size))[start : start + size] = spent
        start += size
    return times


def _part(key: str, own: Array, shares: Array, fits: np.ndarray) -> Columns:
    there = fits & (own > 0)
    return {
        f"time.{key}": [seconds(t) if ok else NONE for t, ok in zip(own, there, strict=True)],
        f"share.{key}": [percent(s) if ok else NONE for s, ok in zip(shares, there, strict=True)],
        f"width.{key}": [share_width(s if ok else 0) for s, ok in zip(shares, there, strict=True)],
    }
