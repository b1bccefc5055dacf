"""Axes of the page's pictures: from values to pixels of an SVG, and the ticks between."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STEPS = (1.0, 2.0, 5.0)
"""Ticks within a decade where there are few decades."""
FEW_DECADES = 2.2
PREFIXES = {1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "µ"}


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis."""

    at: float
    """Pixels."""
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from ``low`` to ``high``, drawn from ``start`` to ``end`` pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = True

    def at(self, value: float) -> float:
        """The pixel of a value, beyond the ends too; of a log axis nothing is below ``low``."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, unit: str) -> tuple[Tick, ...]:
        """Round values along a log axis."""
        decades = math.log10(self.high / self.low)
        steps = STEPS if decades < FEW_DECADES else STEPS[:1]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        values = (step * 10.0**power for power in range(first, last + 1) for step in steps)
        return self.ticks_at(values, unit)

    def ticks_at(self, values: Iterable[float], unit: str) -> tuple[Tick, ...]:
        """Those of the values that the axis holds."""
        slack = 1e-9 * abs(self.high)
        inside = (v for v in values if self.low - slack <= v <= self.high + slack)
        return tuple(Tick(self.at(value), short(value, unit)) for value in inside)


def short(value: float, unit: str) -> str:
    """A round value with a decimal prefix.

    >>> short(2e13, "FLOP/s"), short(0.005, "s"), short(1000, ""), short(0, "B")
    ('20 TFLOP/s', '5 ms', '1k', '0 B')
    """
    factor = next((f for f in PREFIXES if abs(value) >= 0.9995 * f), 1.0)
    number = f"{value / factor:.3g}"
    space = " " if unit else ""
    return f"{number}{space}{PREFIXES[factor]}{unit}"


def widened(values: Iterable[float], *, by: float = 1.15) -> tuple[float, float]:
    """Ends of a log axis that holds all values."""
    found = [value for value in values if value > 0 and math.isfinite(value)]
    return (min(found) / by, max(found) * by) if found else (0.1, 10.0)


def linear_ticks(high: float, count: int = 4) -> list[float]:
    """About ``count`` round values from 0 to ``high``.

    >>> linear_ticks(95)
    [0.0, 25.0, 50.0, 75.0]
    """
    raw = high / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = min((s * power for s in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - raw))
    return [step * i for i in range(math.floor(high / step + 1e-9) + 1)]


def thinned(ticks: Sequence[Tick], room: float) -> tuple[Tick, ...]:
    """Ticks at least ``room`` pixels apart, the first one kept."""
    kept: list[Tick] = []
    for tick in ticks:
        if not kept or abs(tick.at - kept[-1].at) >= room:
            kept.append(tick)
    return tuple(kept)


def path(points: Iterable[tuple[float, float]], *, closed: bool = False) -> str:
    """A polyline as the ``d`` of an SVG path; empty for no point.

    >>> path([(0, 1), (2.25, 3)])
    'M0 1L2.2 3'
    """
    drawn = "L".join(
        " ".join(f"{value:.1f}".removesuffix(".0") for value in point) for point in points
    )
    if not drawn:
        return ""
    return f"M{drawn}Z" if closed else f"M{drawn}"
