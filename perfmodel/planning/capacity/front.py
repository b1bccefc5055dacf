"""User speed against cost: the loads of all choices, and those that nothing else beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isnan, nan

import numpy as np

from perfmodel.planning.capacity.answer import Choice, Plan
from perfmodel.planning.capacity.question import needs_of
from perfmodel.planning.capacity.sizing import HOUR_S, Level, size_fleet
from perfmodel.units import MEGA

DEAREST = 5.0
"""Multiple of the cheapest fleet's rent beyond which nobody pays for speed: replicas that are as
good as empty are left out."""


@dataclass(frozen=True, slots=True)
class Point:
    """A choice whose replicas are loaded up to ``rate`` each."""

    choice: int
    """Its place in the plan."""
    rate: float
    gpus: int
    tokens_per_s: float
    """Of one user: 1/TPOT in the busiest hour."""
    usd_per_hour: float
    usd_per_million_output_tokens: float
    """The whole rent over output tokens, prompts included."""
    front: bool
    """Nothing is both cheaper and faster."""


def front_points(plan: Plan) -> tuple[Point, ...]:
    """Every load that keeps the promises, as a fleet; cheapest first.

    Fewer requests on each GPU are faster and dearer. Choices without a price, or whose requests
    generate one token, have no points.
    """
    promised = [c.level for c in plan.traffic.classes]
    points = [
        point
        for place, choice in enumerate(plan.choices)
        for level in choice.levels
        if level.rate <= choice.level.rate and level.keeps(promised)
        for point in [_point(plan, choice, place, level)]
        if point.usd_per_hour < inf and point.tokens_per_s < inf
    ]
    points.sort(key=lambda p: (p.usd_per_hour, -p.tokens_per_s))
    points = [p for p in points if p.usd_per_hour <= DEAREST * points[0].usd_per_hour]
    best, marked = 0.0, []
    for point in points:
        marked.append(replace(point, front=point.tokens_per_s > best))
        best = max(best, point.tokens_per_s)
    return tuple(marked)


def _point(plan: Plan, choice: Choice, place: int, level: Level) -> Point:
    price = plan.terms.usd_per_gpu_hour.get(choice.hardware.name)
    needs = needs_of(plan.traffic, plan.terms, price.middle if price else nan)
    fleet = size_fleet(level.rate, choice.gpus_per_replica, choice.prefill_share, needs)
    each = needs.rate * needs.peak / fleet.replicas
    return Point(
        choice=place,
        rate=level.rate,
        gpus=fleet.gpus,
        tokens_per_s=1 / tpot_at(choice.levels, each),
        usd_per_hour=fleet.usd_per_hour,
        usd_per_million_output_tokens=fleet.usd_per_hour
        * MEGA
        / (needs.rate * HOUR_S * needs.output),
        front=False,
    )


def tpot_at(levels: Sequence[Level], rate: float) -> float:
    """TPOT of the worst served class at a load between those that were simulated; NaN of none.

    Below the smallest load it is that load's.
    """
    worst = [max((s.tpot_s for s in x.seen if s.tpot_s is not None), default=nan) for x in levels]
    return float(np.interp(rate, [x.rate for x in levels], worst))


def with_front(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Choices, marked where no other one is both cheaper and faster; ``choices`` are unaltered."""

    def stands(choice: Choice) -> tuple[float, float]:
        usd = choice.fleet.usd_per_hour
        return (inf if isnan(usd) else usd), choice.tpot_s or 0.0

    def beaten(by: Choice, choice: Choice) -> bool:
        theirs, own = stands(by), stands(choice)
        return theirs != own and theirs[0] <= own[0] and theirs[1] <= own[1]

    return tuple(replace(c, front=not any(beaten(o, c) for o in choices)) for c in choices)
