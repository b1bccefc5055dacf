"""What a setting gives, and how that compares with the base case."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from perfmodel.inference.estimate import Estimate, Phase
from perfmodel.operators.quantity import Quantity
from perfmodel.planning.gain import (
    Ratio,
    Touched,
    all_terms,
    decode_terms,
    exactly,
    prefill_terms,
    ratio,
    touched,
)
from perfmodel.planning.lever import Limits
from perfmodel.planning.situation import Situation
from perfmodel.units import MEGA

Metric = Literal["ttft", "tpot", "throughput", "memory", "cost"]
METRICS: tuple[Metric, ...] = ("ttft", "tpot", "throughput", "memory", "cost")
SECONDS_PER_HOUR = 3600
UNLIKE = 0.2
"""Part of what changes that is priced by assumed shares on one side only, from which two prices
aren't alike."""
SMALL = 0.01
"""Share of the whole time below which nobody asks how something is priced."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The operator that takes most of a phase, and the resource that limits it."""

    operator: str
    share: float
    """Of the phase's time."""
    bound: str


def usd_per_million_tokens(result: Estimate) -> tuple[Quantity, Quantity] | None:
    """USD per 10⁶ output tokens at the low and the high rent; None without a price.

    GPUs × USD per hour / 3600 / (output tokens per second, prefill included) × 10⁶.
    """
    price = result.hardware.price_usd_per_hour
    if price is None:
        return None
    gpus = result.plan.parallel.gpus
    per_dollar_hour = gpus / SECONDS_PER_HOUR / result.output_tokens_per_s * MEGA
    return price[0] * per_dollar_hour, price[1] * per_dollar_hour


@dataclass(frozen=True, slots=True)
class Outcome:
    """One setting with its estimate."""

    situation: Situation
    estimate: Estimate

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token."""
        return float(self.estimate.ttft_s)

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first; None where there is no second."""
        value = float(self.estimate.tpot_s)
        return None if math.isnan(value) else value

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of the batch per second, prefill included."""
        return float(self.estimate.output_tokens_per_s)

    @property
    def gpus(self) -> int:
        """GPUs of the deployment."""
        return self.estimate.plan.parallel.gpus

    @property
    def fits(self) -> bool:
        """Whether the memory holds it."""
        return bool(self.estimate.memory.fits)

    @property
    def required_bytes(self) -> float:
        """Memory of the fullest GPU that is taken, the engine's reserve included."""
        return float(self.estimate.memory.required_bytes)

    @property
    def usd_per_million_tokens(self) -> tuple[float, float] | None:
        """USD per 10⁶ output tokens at the low and the high rent; None without a price."""
        cost = usd_per_million_tokens(self.estimate)
        return None if cost is None else (float(cost[0]), float(cost[1]))

    def keeps(self, limits: Limits) -> bool:
        """Whether TTFT and TPOT stay within the limits."""
        return not self.missed(limits)

    def missed(self, limits: Limits) -> tuple[str, ...]:
        """The limits that it misses: ``ttft``, ``tpot``."""
        tpot = 0.0 if self.tpot_s is None else self.tpot_s
        return tuple(
            name
            for name, value, limit in (
                ("ttft", self.ttft_s, limits.ttft_s),
                ("tpot", tpot, limits.tpot_s),
            )
            if limit is not None and value > limit
        )

    @property
    def prefill_limit(self) -> Bottleneck:
        """What limits prefill now."""
        return _bottleneck(self.estimate.prefill)

    @property
    def decode_limit(self) -> Bottleneck:
        """What limits decode now."""
        return _bottleneck(self.estimate.decode)

    def next_limit(self, metric: Metric) -> Bottleneck:
        """What limits the phase that the metric is about; the longer one for throughput."""
        decodes = self.estimate.total_s > 2 * self.estimate.ttft_s
        if metric == "ttft" or (metric != "tpot" and not decodes):
            return self.prefill_limit
        return self.decode_limit


def _bottleneck(phase: Phase) -> Bottleneck:
    times: dict[str, float] = {}
    bounds: dict[str, str] = {}
    for row in sorted(phase.cost.operators, key=lambda row: float(row.cost.time_s)):
        times[row.name] = times.get(row.name, 0.0) + float(row.cost.time_s)
        bounds[row.name] = str(row.cost.bound)  # of its longest part
    name = max(times, key=lambda n: times[n])
    return Bottleneck(name, times[name] / float(phase.time_s), bounds[name])


@dataclass(frozen=True, slots=True)
class Gains:
    """A setting over the base case, quantity by quantity: below 1 is less of it."""

    ttft: Ratio
    tpot: Ratio | None
    """None where only one token is generated."""
    throughput: Ratio
    memory: Ratio
    """Of the bytes taken on the fullest GPU."""
    cost: Ratio | None
    """Of USD per output token; None without a price."""
    touched: Touched
    """The part of the whole batch's time that the setting alters."""

    def of(self, metric: Metric) -> Ratio | None:
        """The ratio of one quantity."""
        found: Ratio | None = getattr(self, metric)
        return found

    def factor(self, metric: Metric) -> float:
        """How many times better the metric gets: above 1 is a gain; 1 where it has no value."""
        found = self.of(metric)
        if found is None:
            return 1.0
        return found.value if metric == "throughput" else found.inverse.value

    @property
    def unlike(self) -> bool:
        """Whether fitted kernels price what changes on one side, and assumed shares on the other.

        Then the difference between the two ways of pricing is part of the ratio.
        """
        t = self.touched
        larger = max(t.before, t.after)
        return larger > SMALL and abs(t.assumed_before - t.assumed_after) > UNLIKE * larger


def gains(base: Outcome, after: Outcome) -> Gains:
    """What a setting changes, each ratio with its interval.

    The interval of TPOT is that of the decode step at the mean context.
    """
    old, new = base.estimate, after.estimate
    batches = float(new.workload.batch) / float(old.workload.batch)
    before, now = all_terms(old), all_terms(new)
    whole = ratio(before, now, float(new.total_s) / float(old.total_s))
    throughput = whole.inverse.times(batches)
    tpot = None
    if base.tpot_s is not None and after.tpot_s is not None:
        tpot = ratio(decode_terms(old), decode_terms(new), after.tpot_s / base.tpot_s)
    priced = old.hardware.price is not None
    return Gains(
        ttft=ratio(prefill_terms(old), prefill_terms(new), after.ttft_s / base.ttft_s),
        tpot=tpot,
        throughput=throughput,
        memory=exactly(after.required_bytes / base.required_bytes),
        cost=throughput.inverse.times(after.gpus / base.gpus) if priced else None,
        touched=touched(before, now),
    )
