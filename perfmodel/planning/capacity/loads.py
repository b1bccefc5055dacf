"""Ascending loads of one replica, chosen so that the largest one that does is known closely."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, sqrt

from perfmodel.planning.capacity.candidates import Candidate
from perfmodel.planning.capacity.requests import ClassLatencies, demand_of
from perfmodel.planning.capacity.sizing import Level
from perfmodel.serving.mix import Part
from perfmodel.serving.serve import Serving, run
from perfmodel.specs.traffic import ServiceLevel, Traffic

CLOSE = 1.03
"""Ratio of the smallest load that fails to the largest that does."""
TAIL = 150
"""Requests beyond the percentile that are wanted of the rarest class."""
LEAST, MOST = 1500, 60_000
"""Requests that are counted in any case, and at most."""
SATURATED = 1.35
"""Growth of the number in the system, first half to second, that no steady state shows."""
DEEPEST = 1 / 400
"""Share of the guessed load below which nothing is looked for."""


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated load."""

    level: Level
    steady: bool
    """Whether the number in the system doesn't keep growing."""
    e2e_s: float


class Trial:
    """A candidate under the traffic's mix at whatever load is asked for."""

    def __init__(
        self, candidate: Candidate, traffic: Traffic, parts: tuple[Part, ...], seed: int = 0
    ) -> None:
        self.candidate = candidate
        self._traffic, self._parts, self._seed = traffic, parts, seed
        self.prefill_s = 0.0

    def at(self, rate: float, e2e_s: float) -> Run:
        """Simulate ``rate``; ``e2e_s`` is about how long a request takes."""
        found = self._run(rate, rate * e2e_s)
        inside = found.level.batch
        if inside > 1.5 * max(rate * e2e_s, 1.0):
            found = self._run(rate, inside)
        return found

    def _counted(self) -> int:
        beyond = (1 - self._traffic.percentile / 100) * min(self._traffic.shares())
        return min(max(LEAST, ceil(TAIL / beyond)), MOST)

    def _run(self, rate: float, inside: float) -> Run:
        traffic, candidate = self._traffic, self.candidate
        warmup, tail = ceil(3 * inside) + 20, ceil(inside)
        counted = max(self._counted(), ceil(8 * inside))
        latencies = ClassLatencies(len(self._parts), warmup, warmup + counted)
        demand = demand_of(traffic, self._parts, rate, warmup + counted + tail, self._seed)
        serving = candidate.serving
        serving = Serving(
            serving.scheduler, serving.prefix_caching, serving.router, serving.disaggregate, warmup
        )
        result = run(candidate.case, demand, serving, ended=latencies)
        level = Level(
            rate=rate,
            batch=result.mean_running,
            utilisation=min(result.utilisation, 1.0),
            kv_utilisation=result.kv_utilisation,
            preemptions=result.preemptions,
            seen=latencies.seen(traffic.percentile),
        )
        return Run(level, latencies.growth() < SATURATED, result.e2e_s.mean)


@dataclass(frozen=True, slots=True)
class Explored:
    """Loads in ascending order, and why no larger one is known to do."""

    levels: tuple[Level, ...]
    saturated: bool
    """The next load is more than the replica can serve for ever."""


def explore(
    at: Callable[[float], Run], promised: tuple[ServiceLevel, ...], guess: float, cap: float
) -> Explored:
    """Find the boundary between loads that keep ``promised`` and those that don't.

    Args:
        at: simulates a load.
        promised: to each class.
        guess: a load near the boundary.
        cap: a load beyond which the replica is saturated for certain.
    """
    runs: dict[float, Run] = {}

    def keeps(rate: float) -> bool:
        runs[rate] = at(rate)
        return runs[rate].steady and runs[rate].level.keeps(promised)

    low, high = _bracket(keeps, min(guess, cap), cap)
    while low and high / low > CLOSE:
        middle = sqrt(low * high)
        if keeps(middle):
            low = middle
        else:
            high = middle
    if low:
        for share in (0.25, 0.5, 0.75, 0.9):
            keeps(share * low)
    levels = tuple(runs[rate].level for rate in sorted(runs) if runs[rate].steady)
    beyond = runs.get(high)
    return Explored(levels, beyond is None or not beyond.steady)


def _bracket(keeps: Callable[[float], bool], guess: float, cap: float) -> tuple[float, float]:
    """A load that does and a larger one that doesn't; 0 where none does."""
    if keeps(guess):
        low, high = guess, min(1.25 * guess, cap)
        while high < cap and keeps(high):
            low, high = high, min(1.25 * high, cap)
        return low, high
    low, high = guess / 1.4, guess
    while low > guess * DEEPEST:
        if keeps(low):
            return low, high
        low, high = low / (high / low) ** 1.5, low
    return 0.0, high
