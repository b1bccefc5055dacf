"""The ratio of two estimates with an interval: what a change does to a time.

Both estimates are made by one calibration. An operator that the change leaves as it is has the
same error before and after: it moves numerator and denominator together. Operators that differ
are priced at other shapes, by other kernels or in other numbers; their errors before and after
are taken as independent of each other. With C the seconds in common, A those that only the time
before has, B those that only the time after has,

    ratio = (C + B) / (C + A),

and the interval's half-widths, in the logarithm, are the root of the summed squares of what the
ratio moves by when A, B or C alone goes to an end of its own interval. Without a change it is
exactly 1. Errors of changed operators that agree in sign, as neighbouring shapes of one kernel
have, would make it narrower: it is on the wide side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from perfmodel.inference.estimate import Estimate
from perfmodel.inference.phase import OperatorCost

Term = tuple[str, float, float, float, str]
"""An operator in a phase: name, seconds, the ends of their interval, and what priced it."""
Ends = tuple[float, float, float]
ASSUMED = "assumed"
"""The source of a time that no fit priced."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """After over before, with a 90 % interval."""

    value: float
    low: float
    high: float

    @property
    def inverse(self) -> Ratio:
        """Before over after."""
        return Ratio(1 / self.value, 1 / self.high, 1 / self.low)

    def times(self, factor: float) -> Ratio:
        """Scaled by an exact number."""
        return Ratio(factor * self.value, factor * self.low, factor * self.high)


def exactly(value: float) -> Ratio:
    """A ratio of counts, which has no error."""
    return Ratio(value, value, value)


def _terms(operators: Iterable[OperatorCost], steps: float) -> list[Term]:
    found: list[Term] = []
    for row in operators:
        time, low, high = (
            steps * float(end) for end in (row.cost.time_s, row.cost.low_s, row.cost.high_s)
        )
        found.append((row.name, time, low, high, row.source))
    return found


def prefill_terms(result: Estimate) -> list[Term]:
    """The operators of TTFT."""
    return _terms(result.prefill.cost.operators, 1.0)


def decode_terms(result: Estimate) -> list[Term]:
    """The operators of TPOT: those of the decode step at the mean context."""
    return _terms(result.decode.cost.operators, 1.0)


def all_terms(result: Estimate) -> list[Term]:
    """The operators of the whole batch's time: prefill, and output − 1 mean decode steps."""
    steps = float(result.workload.output) - 1
    return prefill_terms(result) + _terms(result.decode.cost.operators, steps)


def _sum(terms: Counter[Term], end: Literal[1, 2, 3]) -> float:
    return math.fsum(count * term[end] for term, count in terms.items())


def _sums(terms: Counter[Term]) -> Ends:
    return _sum(terms, 1), _sum(terms, 2), _sum(terms, 3)


def ratio(before: Iterable[Term], after: Iterable[Term], value: float) -> Ratio:
    """The ratio of two times made of ``before`` and ``after``; ``value`` is its exact middle."""
    old, new = Counter(before), Counter(after)
    shared = old & new
    c, a, b = _sums(shared), _sums(old - shared), _sums(new - shared)
    if a == b:
        return exactly(value)

    def moved(common: int, gone: int, come: int) -> float:
        middle = (c[0] + b[0]) / (c[0] + a[0])
        return math.log((c[common] + b[come]) / (c[common] + a[gone]) / middle)

    corners = [moved(0, 0, 1), moved(0, 0, 2), moved(0, 1, 0), moved(0, 2, 0)]
    corners += [moved(1, 0, 0), moved(2, 0, 0)]
    pairs = zip(corners[::2], corners[1::2], strict=True)
    up, down = 0.0, 0.0
    for one, other in pairs:
        up += max(one, other, 0.0) ** 2
        down += min(one, other, 0.0) ** 2
    return Ratio(value, value * math.exp(-math.sqrt(down)), value * math.exp(math.sqrt(up)))


@dataclass(frozen=True, slots=True)
class Touched:
    """The part of a time that a change alters, as shares of the whole time before the change."""

    before: float
    """Operators that aren't the same after."""
    after: float
    """Operators that take their place."""
    assumed_before: float
    """The part of ``before`` that assumed efficiencies price."""
    assumed_after: float
    """The part of ``after`` that assumed efficiencies price."""


def touched(before: Iterable[Term], after: Iterable[Term]) -> Touched:
    """What a change alters, and how much of it is priced by assumption before and after."""
    old, new = Counter(before), Counter(after)
    shared = old & new
    gone, come = old - shared, new - shared
    total = _sum(old, 1) or 1.0
    parts = (_sum(gone, 1), _sum(come, 1), _assumed(gone), _assumed(come))
    return Touched(*(part / total for part in parts))


def _assumed(terms: Counter[Term]) -> float:
    return math.fsum(count * term[1] for term, count in terms.items() if term[4] == ASSUMED)
