"""Where the time goes: the operators of each phase, the small ones together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.inference.roofline import Mark
from perfmodel.operators.record import Phase as PhaseName
from perfmodel.text import percent, seconds
from reports.html.columns import NONE, Columns, share_width
from reports.html.grid import Grid

NAMED = 7
"""Operators that have a colour of their own."""
OTHERS = "others"
PHASES: tuple[PhaseName, ...] = ("prefill", "decode")
Times = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The operators that are named, the largest at the setting that is shown first, and others."""

    names: tuple[str, ...]
    """Operators; the last may be `OTHERS`."""
    columns: Columns
    """``time.PHASE.NUMBER``, ``share.…`` and ``width.…``."""


def breakdown(grid: Grid, start: int) -> Breakdown:
    """The parts of both phases in every setting; ``start``: the one that is shown first."""
    times = {phase: _times(grid.marks(phase)) for phase in PHASES}
    names = _named(times, start)
    every = {name for of in times.values() for name in of}
    columns: Columns = {}
    for phase, of in times.items():
        total = sum(of.values(), np.zeros(grid.size))
        rest = sum((t for name, t in of.items() if name not in names), np.zeros(grid.size))
        for number, name in enumerate((*names, OTHERS)):
            own = rest if name == OTHERS else of.get(name, np.zeros(grid.size))
            columns |= _part(f"{phase}.{number}", own, total, grid.fits())
    shown = (*names, OTHERS) if every - set(names) else names
    return Breakdown(shown, columns)


def _times(settings: Iterable[tuple[Mark, ...]]) -> Times:
    """Seconds of each operator name, one for each setting."""
    rows: list[dict[str, float]] = []
    for marks in settings:
        row: dict[str, float] = {}
        for mark in marks:
            row[mark.name] = row.get(mark.name, 0.0) + mark.time_s
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.asarray([row.get(name, 0.0) for row in rows]) for name in names}


def _named(times: dict[PhaseName, Times], start: int) -> tuple[str, ...]:
    """The names with the largest shares at ``start``, or anywhere for the last two."""
    first: dict[str, float] = {}
    ever: dict[str, float] = {}
    for of in times.values():
        total = np.asarray(sum(of.values()))
        for name, seconds_of in of.items():
            shares = seconds_of / total
            first[name] = max(first.get(name, 0.0), float(shares[start]))
            ever[name] = max(ever.get(name, 0.0), float(shares.max()))
    largest = sorted(first, key=lambda name: -first[name])[: NAMED - 2]
    others = sorted((n for n in ever if n not in largest), key=lambda name: -ever[name])
    return tuple(sorted([*largest, *others[:2]], key=lambda name: -first[name]))


def _part(
    key: str, own: NDArray[np.float64], total: NDArray[np.float64], fits: NDArray[np.bool_]
) -> Columns:
    shares = own / total
    there = fits & (own > 0)
    return {
        f"time.{key}": [seconds(t) if ok else NONE for t, ok in zip(own, there, strict=True)],
        f"share.{key}": [percent(s) if ok else NONE for s, ok in zip(shares, there, strict=True)],
        f"width.{key}": [share_width(s if ok else 0) for s, ok in zip(shares, there, strict=True)],
    }
