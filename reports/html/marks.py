"""The operators of a grid as marks of a roofline: who they are, and what is said of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfmodel.inference.roofline import Mark
from perfmodel.operators.record import Phase as PhaseName
from perfmodel.text import digits, percent, seconds, si
from reports.html.breakdown import PHASES
from reports.html.columns import NONE, Columns
from reports.html.figures import LIMITS
from reports.html.grid import Grid

SAID = ("time", "share", "intensity", "rate", "roof", "bound")
"""What a mark says of itself, besides phase and name."""


@dataclass(frozen=True, slots=True)
class Track:
    """One operator of a phase through all settings."""

    phase: PhaseName
    name: str
    count: int
    marks: tuple[Mark | None, ...]
    """None where the setting doesn't fit, or doesn't have it."""

    def share(self, setting: int) -> float:
        """Of the phase's time."""
        mark = self.marks[setting]
        return 0.0 if mark is None else mark.share


def tracks(grid: Grid, start: int) -> tuple[Track, ...]:
    """Operators with FLOPs and bytes, those that are the largest at ``start`` first."""
    fits = grid.fits()
    found: list[Track] = []
    for phase in PHASES:
        rows: dict[tuple[str, int], list[Mark | None]] = {}
        for setting, marks in enumerate(grid.marks(phase)):
            for key, mark in _numbered(marks):
                if mark.on_roof and fits[setting]:
                    rows.setdefault(key, [None] * grid.size)[setting] = mark
        for (name, _), own in rows.items():
            count = next(mark.count for mark in own if mark is not None)
            found.append(Track(phase, name, count, tuple(own)))
    return tuple(sorted(found, key=lambda track: -track.share(start)))


def _numbered(marks: Iterable[Mark]) -> Iterable[tuple[tuple[str, int], Mark]]:
    """Marks with their name and how many of that name went before."""
    seen: dict[str, int] = {}
    for mark in marks:
        seen[mark.name] = seen.get(mark.name, -1) + 1
        yield (mark.name, seen[mark.name]), mark


def said(number: int, track: Track) -> Columns:
    """What the mark says in each setting."""
    texts = [_said(mark) for mark in track.marks]
    return {f"tip.{number}.{name}": [text[at] for text in texts] for at, name in enumerate(SAID)}


def off_roof(grid: Grid) -> list[str]:
    """Shares of the phases' times whose operators count no FLOPs, in each setting."""
    prefill, decode = (
        [percent(sum(m.share for m in marks if not m.on_roof)) for marks in grid.marks(phase)]
        for phase in PHASES
    )
    return [
        f"{first} of prefill’s time and {second} of decode’s"
        for first, second in zip(prefill, decode, strict=True)
    ]


def _said(mark: Mark | None) -> tuple[str, ...]:
    if mark is None:
        return (NONE,) * len(SAID)
    interval = "" if mark.low_s == mark.high_s else f" ({_ends(mark)})"
    return (
        f"{seconds(mark.time_s)}{interval}",
        percent(mark.share),
        f"{digits(mark.intensity)} FLOP/B",
        si(mark.flops_per_s, "FLOP/s"),
        percent(mark.attained),
        LIMITS[mark.bound],
    )


def _ends(mark: Mark) -> str:
    return f"{seconds(mark.low_s)} – {seconds(mark.high_s)}"
