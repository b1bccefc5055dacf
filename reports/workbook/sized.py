"""What the formulas of a choice's fleet give, by the program's own functions."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.planning.capacity.answer import Energy
from perfmodel.planning.capacity.choice import busy_share
from perfmodel.planning.capacity.energy import energy_of
from perfmodel.planning.capacity.sizing import Fleet, Level, best_level, size_fleet
from reports.workbook.between import between
from reports.workbook.case import Case, Facts
from reports.workbook.cells import NONE, Scalar
from reports.workbook.loads import Loads, slowest

ALL_MET = "beyond what was simulated"
ENDS = ("low", "", "high")
"""Of a price; the middle one has no word."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A choice's level and fleet, at the low, middle and high price."""

    case: Case
    facts: Facts
    level: Level | None
    fleets: dict[str, Fleet] | None
    """By end of the price, at 0 USD without one; None where no load keeps the promises."""
    prices: dict[str, float] | None
    limit: str

    @property
    def fleet(self) -> Fleet | None:
        """At the middle price."""
        return None if self.fleets is None else self.fleets[""]

    def slowest(self, name: str) -> Scalar:
        """TTFT or TPOT of the slowest class at the level, in ms."""
        return NONE if self.level is None else slowest(self.level, name)

    def at_rate(self, rate: float, values: list[Scalar], *, from_zero: bool = False) -> Scalar:
        """A figure of a replica between the loads that were simulated."""
        rates = [level.rate for level in self.facts.choice.levels]
        return between(rate, rates, values, from_zero=from_zero)

    def each(self, rate: float) -> float:
        """A replica's part of a rate of the whole fleet."""
        assert self.fleet is not None  # noqa: S101  (the caller looked)
        return rate / self.fleet.replicas

    def busiest(self, name: str) -> Scalar:
        """TTFT or TPOT of the slowest class in the busiest hour, in ms."""
        if self.fleet is None:
            return NONE
        values = [slowest(level, name) for level in self.facts.choice.levels]
        return self.at_rate(self.each(self.case.busiest), values)

    @property
    def energy(self) -> Energy | None:
        """Power at the mean rate; None without a TDP or a fleet."""
        tdp = self.facts.hardware.tdp_w
        if self.fleet is None or tdp is None:
            return None
        rate = self.case.plan.traffic.rate
        busy = busy_share(self.facts.choice.levels, self.each(rate))
        tokens = rate * (self.case.prompt + self.case.output)
        return energy_of(tdp, self.fleet.gpus, busy, tokens)


def _prices(case: Case, facts: Facts) -> dict[str, float] | None:
    price = case.plan.terms.usd_per_gpu_hour.get(facts.hardware.name)
    return None if price is None else {"low": price.low, "": price.middle, "high": price.high}


def kept(case: Case, facts: Facts) -> Level | None:
    """The largest load of a choice that keeps the promises."""
    return best_level(facts.choice.levels, [c.level for c in case.plan.traffic.classes])


def fleet_of(case: Case, facts: Facts, month: int, price: float) -> Fleet | None:
    """The fleet of a month; None where no load keeps the promises."""
    level, choice = kept(case, facts), facts.choice
    if level is None:
        return None
    needs = case.needs(month, price)
    return size_fleet(level.rate, choice.gpus_per_replica, choice.prefill_share, needs)


def sized(case: Case, facts: Facts, loads: Loads, number: int) -> Sized:
    """What the formulas of a choice give for the inputs as written; ``number`` from 0."""
    level, prices = kept(case, facts), _prices(case, facts)
    fleets = {
        end: fleet
        for end in ENDS
        if (fleet := fleet_of(case, facts, 0, (prices or {}).get(end, 0.0))) is not None
    }
    used = 0 if level is None else facts.choice.levels.index(level) + 1
    broken = loads.values(number, "first_exceeded")
    limit = ALL_MET if used == len(broken) else str(broken[used])
    return Sized(case, facts, level, fleets or None, prices, limit)
