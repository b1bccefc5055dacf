"""Ascending loads of one replica, chosen so that the largest one that does is known closely."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt

from perfmodel.planning.capacity.sizing import Level
from perfmodel.planning.capacity.trial import Run
from perfmodel.specs.traffic import ServiceLevel

CLOSE = 1.03
"""Ratio of the smallest load that fails to the largest that does."""
TRIES = 20
MIDDLE = 1.1
"""Ratio of both ends from which they are halved where the line between them misleads."""
EMPTY = 1 / 100
"""Share of the first guess at which a replica is as good as empty: what fails there always does."""
CURVE = (0.25, 0.5, 0.7, 0.85, 1.2)
"""Multiples of the largest load at which a replica is shown too, as far as it can serve them."""
SKETCH = (0.5,)
"""The same of a replica that is looked at less closely."""
ALIKE = 1.08
"""Ratio of two loads of which one is enough."""


def strain(level: Level, promised: Sequence[ServiceLevel]) -> tuple[float, int, str]:
    """The worst ratio of what is seen to what is promised; the class, and ttft, tpot or e2e.

    0 where nothing is promised.
    """
    worst = (0.0, 0, "")
    for index, (seen, limits) in enumerate(zip(level.seen, promised, strict=True)):
        for name in ("ttft", "tpot", "e2e"):
            value, limit = getattr(seen, f"{name}_s"), getattr(limits, f"{name}_s")
            if value is not None and limit is not None and value / limit > worst[0]:
                worst = (value / limit, index, name)
    return worst


@dataclass(frozen=True, slots=True)
class Explored:
    """The loads that were simulated, in ascending order; those without a steady state apart."""

    runs: tuple[Run, ...]
    failed: Run | None
    """The smallest load that doesn't do; None where the replica's capacity ends the search."""
    best: Run | None
    """The largest load that does, every smaller one doing too."""

    @property
    def levels(self) -> tuple[Level, ...]:
        """As `Choice.levels`."""
        return tuple(run.level for run in self.runs)


class Explorer:
    """Looks for the boundary between loads that keep what is promised and those that don't.

    Args:
        at: simulates a load.
        promised: to each class.
        capacity: requests per second beyond which a queue grows for certain.
    """

    def __init__(
        self, at: Callable[[float], Run], promised: Sequence[ServiceLevel], capacity: float
    ) -> None:
        self._at = at
        self._promised = promised
        self._capacity = capacity
        self._runs: dict[float, Run] = {}
        self._low, self._high = 0.0, inf
        self._same = 0
        """How many loads in a row have moved the same end of the bracket."""

    def _keeps(self, rate: float) -> bool:
        run = self._runs[rate] = self._at(rate)
        return run.steady and run.level.keeps(self._promised)

    def explore(self, guess: float) -> Explored:
        """Bracket the boundary to within `CLOSE`, from a load near it."""
        start = rate = min(guess, self._capacity)
        for _ in range(TRIES):
            self._narrow(rate)
            if self._found() or (not self._low and rate <= start * EMPTY):
                break
            rate = self._next(rate, start)
        return self.explored()

    def at(self, rate: float) -> Run:
        """One more load, whether it does or not."""
        if rate not in self._runs:
            self._keeps(rate)
        return self._runs[rate]

    @property
    def emptiest(self) -> Run:
        """The smallest load that was simulated."""
        return self._runs[min(self._runs)]

    def widen(self, shares: Sequence[float]) -> Explored:
        """Simulate more loads below and above the boundary, so that the whole curve is known."""
        low = self._low
        for share in shares:
            rate = share * low
            near = any(1 / ALIKE < rate / other < ALIKE for other in self._runs if other)
            if low and not near and rate <= self._capacity:
                self._keeps(rate)
        return self.explored()

    def explored(self) -> Explored:
        """What is known so far."""
        rates = sorted(self._runs)
        best = failed = None
        for rate in rates:
            run = self._runs[rate]
            if not (run.steady and run.level.keeps(self._promised)):
                failed = run
                break
            best = run
        return Explored(tuple(self._runs[r] for r in rates if self._runs[r].steady), failed, best)

    def _narrow(self, rate: float) -> None:
        low = self._low
        if self._keeps(rate):
            self._low = rate
        else:
            self._high = rate
        side = 1 if self._low != low else -1
        self._same = self._same + side if self._same * side > 0 else side

    def _found(self) -> bool:
        low, high = self._low, self._high
        return bool(low) and (high / low <= CLOSE or low >= self._capacity * (1 - 1e-9))

    def _strain(self, rate: float) -> float | None:
        run = self._runs[rate]
        worst = strain(run.level, self._promised)[0]
        return worst if run.steady and worst > 0 else None

    def _next(self, last: float, start: float) -> float:
        low, high = self._low, self._high
        if high == inf:
            worst = self._strain(low) or 0.5
            least = 1 + 0.04 * 2.0 ** (self._same - 1)  # bolder each time
            return min(low * min(max(1 / sqrt(worst), least), 1.6), self._capacity)
        if not low:
            return start * EMPTY if high < 0.6 * start else self._lower(high)
        if high / low < CLOSE**2.5:  # one right beside the last may close it
            return last * CLOSE * 0.9999 if last == low else last / CLOSE * 1.0001
        return min(max(self._crossing(), low * 1.01), high / 1.01)

    def _lower(self, high: float) -> float:
        worst = self._strain(high) or 1.5
        return high * min(max(1 / worst, 0.5), 0.9)

    def _crossing(self) -> float:
        """Where the strain reaches 1, along a line through both ends in logarithms."""
        low, high = self._low, self._high
        below, above = self._strain(low), self._strain(high)
        if abs(self._same) > 1 and high / low > MIDDLE:  # the line is far off: halve instead
            return sqrt(low * high)
        if below is None or above is None or above <= below:
            return sqrt(low * high)
        part = log(1 / below) / log(above / below)
        found: float = low * (high / low) ** min(max(part, 0.1), 0.9)
        return found
