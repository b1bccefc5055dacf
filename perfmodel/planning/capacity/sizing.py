"""From the load that one replica carries to a fleet, its cost and its energy.

The workbook's formulas are these functions; both take the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.specs.traffic import ServiceLevel
from perfmodel.units import MEGA

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a request class sees, at the traffic's percentile, in seconds."""

    ttft_s: float
    tpot_s: float | None
    """None where only one token is generated."""
    e2e_s: float

    def missed(self, level: ServiceLevel) -> tuple[str, ...]:
        """The limits that are exceeded: ``ttft``, ``tpot``, ``e2e``."""
        pairs = (
            ("ttft", self.ttft_s, level.ttft_s),
            ("tpot", self.tpot_s, level.tpot_s),
            ("e2e", self.e2e_s, level.e2e_s),
        )
        return tuple(
            name
            for name, value, limit in pairs
            if value is not None and limit is not None and value > limit
        )


@dataclass(frozen=True, slots=True)
class Level:
    """One replica under one offered load, as simulated."""

    rate: float
    """Requests per second that come."""
    batch: float
    """Sequences in prefill or decode, averaged over time."""
    utilisation: float
    """Share of the time in which a step runs."""
    kv_utilisation: float
    preemptions: int
    seen: tuple[Seen, ...]
    """By class, in the traffic's order."""

    def keeps(self, levels: Sequence[ServiceLevel]) -> bool:
        """Whether every class gets what it was promised."""
        return not any(s.missed(level) for s, level in zip(self.seen, levels, strict=True))


@dataclass(frozen=True, slots=True)
class Needs:
    """What a fleet is sized for; tokens are means per request."""

    rate: float
    """Mean requests per second."""
    peak: float
    """The busiest hour's multiple of it."""
    prompt: float
    output: float
    utilisation_target: float
    """Share of a replica's greatest rate that it is loaded with in the busiest hour."""
    spare: int
    """Replicas that may fail while the others still hold the busiest hour: 1 is N+1."""
    usd_per_gpu_hour: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """Replicas for one level of need, and what they cost."""

    replicas: int
    """Spare ones included."""
    gpus: int
    utilisation: float
    """Load of the busiest hour over what all replicas carry."""
    utilisation_degraded: float
    """The same with the spare replicas gone."""
    usd_per_hour: float
    usd_per_million_prompt_tokens: float
    usd_per_million_output_tokens: float


def best_level(levels: Sequence[Level], promised: Sequence[ServiceLevel]) -> Level | None:
    """The largest load below which every load keeps all service levels; None where none does.

    Loads are ascending. A load beyond one that fails isn't taken, even if it happens to pass.
    """
    kept = None
    for level in levels:
        if not level.keeps(promised):
            break
        kept = level
    return kept


def size_fleet(rate_per_replica: float, gpus: int, prefill_share: float, needs: Needs) -> Fleet:
    """Replicas of ``gpus`` GPUs, each carrying at most ``rate_per_replica`` requests per second.

    replicas = ⌈rate·peak / (target·rate_per_replica)⌉ + spare. The whole fleet's rent is divided
    over the mean rate's tokens: ``prefill_share`` of it, prefill's share of the time that steps
    take, over prompt tokens, the rest over output tokens.
    """
    busiest = needs.rate * needs.peak
    working = max(1, math.ceil(busiest / (needs.utilisation_target * rate_per_replica) - 1e-9))
    replicas = working + needs.spare
    usd = replicas * gpus * needs.usd_per_gpu_hour
    per_hour = needs.rate * HOUR_S / MEGA
    return Fleet(
        replicas=replicas,
        gpus=replicas * gpus,
        utilisation=busiest / (replicas * rate_per_replica),
        utilisation_degraded=busiest / (working * rate_per_replica),
        usd_per_hour=usd,
        usd_per_million_prompt_tokens=usd * prefill_share / (per_hour * needs.prompt),
        usd_per_million_output_tokens=usd * (1 - prefill_share) / (per_hour * needs.output),
    )
