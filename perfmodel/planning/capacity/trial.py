"""One replica simulated under a load of mixed requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from perfmodel.planning.capacity.candidates import Candidate
from perfmodel.planning.capacity.metered import metered
from perfmodel.planning.capacity.question import Question
from perfmodel.planning.capacity.requests import ClassLatencies, demand_of
from perfmodel.planning.capacity.sizing import Level
from perfmodel.serving.serve import run

BEYOND = 60
"""Requests of the rarest class that are wanted beyond the percentile: the share that exceeds its
value is then known to 1/√60 = 13 % of itself, 90 % as 88.7 to 91.3."""
LEAST, MOST = 2000, 20_000
"""Requests that are counted in any case, and at most."""
TURNOVERS, SETTLING = 8, 3
"""Times that the requests in the system are replaced while it is counted, and before."""
GROWTH = 1.35
"""Growth of the time that requests spend, from the first half of them to the second, that counts
as a queue without end."""


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated load."""

    level: Level
    steady: bool
    """Whether the time that requests spend doesn't keep on growing."""
    prefill_share: float
    """Prefill's share of the rent: of the time that steps take, or of the GPUs where pools are."""


class Trial:
    """A candidate under the traffic's mix, at whatever load is asked for.

    All loads meet the same requests. The first ones, while the system fills, and the last ones,
    who leave one that empties, count for nothing.
    """

    def __init__(self, candidate: Candidate, question: Question, e2e_s: float) -> None:
        self.candidate = candidate
        self._question = question
        self._e2e_s = e2e_s
        self._times = metered(candidate.case.engine.times)
        engine = replace(candidate.case.engine, times=self._times)
        self._case = replace(candidate.case, engine=engine)
        self.runs = 0

    def at(self, rate: float) -> Run:
        """Simulate ``rate`` requests per second.

        Raises:
            InputError: a request that is drawn can never be served.
        """
        expected = rate * self._e2e_s
        found = self._run(rate, expected)
        inside = found.level.batch
        if inside > 1.5 * max(expected, 1.0):  # it had not settled
            found = self._run(rate, inside)
        return found

    def _counted(self, inside: float) -> int:
        traffic = self._question.traffic
        beyond = (1 - traffic.percentile / 100) * min(traffic.shares())
        wanted = max(LEAST, ceil(BEYOND / beyond), ceil(TURNOVERS * inside))
        return min(wanted, MOST)

    def _run(self, rate: float, inside: float) -> Run:
        question, candidate = self._question, self.candidate
        warmup, tail = min(ceil(SETTLING * inside) + 20, MOST), min(ceil(inside), MOST)
        counted = self._counted(inside)
        latencies = ClassLatencies(len(question.parts), warmup, warmup + counted)
        total = warmup + counted + tail
        demand = demand_of(question.traffic, question.parts, rate, total, question.rules.seed)
        self._times.prefill_s = 0.0
        result = run(self._case, demand, replace(candidate.serving, warmup=warmup), ended=latencies)
        self.runs += 1
        busy = result.utilisation * result.instances
        share = self._times.prefill_s / total * result.requests_per_s / busy
        pools = candidate.serving.disaggregate
        level = Level(
            rate=rate,
            batch=result.mean_running,
            utilisation=min(result.utilisation, 1.0),
            kv_utilisation=result.kv_utilisation,
            preemptions=result.preemptions,
            seen=latencies.seen(question.traffic.percentile),
        )
        return Run(
            level=level,
            steady=latencies.growth() < GROWTH,
            prefill_share=pools[0] / sum(pools) if pools else min(share, 1.0),
        )
