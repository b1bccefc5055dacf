"""Changes applied to a case: exactly what `estimate` says of the changed deployment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.estimate import Estimate
from perfmodel.planning.lever import Change, Limits
from perfmodel.planning.outcome import Gains, Metric, Outcome, gains
from perfmodel.planning.situation import Estimator, Situation
from perfmodel.specs.workload import LARGEST

NOTICEABLE = 0.02
"""A change of a quantity below 2 % counts as little: far inside any interval."""
LADDER = 17
"""Batches that are looked at together where limits bound the batch."""
TRIES = 6
"""Rounds of shrinking a batch whose own size changes what fits beside it."""


@dataclass(frozen=True, slots=True)
class Option:
    """One change, or several together, with what they give."""

    changes: tuple[Change, ...]
    outcome: Outcome
    gains: Gains
    largest: Outcome | None
    """A single change at the largest batch that fits and keeps the limits; None where none does,
    and for combinations, which hold that batch as a change of its own."""

    @property
    def setting(self) -> str:
        """All changes in a few words."""
        return " + ".join(_said(change, self.outcome) for change in self.changes)

    @property
    def price(self) -> str:
        """What all changes cost beside time and memory, in words."""
        return "; ".join(dict.fromkeys(c.price.words for c in self.changes if c.price.words))

    def alters_nothing(self) -> bool:
        """Whether no quantity moves by as much as is worth a word."""
        ratios = (self.gains.ttft, self.gains.tpot, self.gains.throughput, self.gains.memory,
                  self.gains.cost)  # fmt: skip
        return all(abs(r.value - 1) < NOTICEABLE for r in ratios if r is not None)


def _said(change: Change, outcome: Outcome) -> str:
    if not change.grows:
        return change.setting
    return f"largest batch ({outcome.situation.workload.batch:,})"


def _fitting(estimator: Estimator, situation: Situation, batch: int) -> Situation | None:
    """``situation`` at the largest batch up to ``batch`` that fits; None: not even one does."""
    for _ in range(TRIES):
        if batch < 1:
            return None
        tried = situation.with_values(workload={"batch": min(batch, LARGEST)})
        memory = estimator.of(tried).memory
        if memory.fits:
            return tried
        batch = min(batch - 1, int(memory.max_sequences))
    return None


def _within(result: Estimate, limits: Limits) -> np.ndarray:
    ok = np.ones(np.shape(result.ttft_s), dtype=bool)
    if limits.ttft_s is not None:
        ok &= np.asarray(result.ttft_s) <= limits.ttft_s
    if limits.tpot_s is not None:
        ok &= ~(np.asarray(result.tpot_s) > limits.tpot_s)  # no TPOT keeps any limit
    return ok


def _keeping(
    estimator: Estimator, situation: Situation, top: int, limits: Limits
) -> Situation | None:
    """``situation`` at the largest batch up to ``top`` that keeps the limits, less a few per cent.

    Batches are looked at on a ladder, and once more between its two rungs; TTFT and TPOT grow
    with the batch but for small steps of the kernels.
    """
    low, high = situation.deployment.dp, top
    for _ in range(2):
        rungs = np.unique(np.round(np.geomspace(low, high, LADDER)))
        ladder = situation.with_values(workload={"batch": rungs})
        ok = np.flatnonzero(_within(estimator.of(ladder), limits))
        if not ok.size:
            return None
        low = int(rungs[ok[-1]])
        if ok[-1] + 1 == rungs.size:
            break
        high = int(rungs[ok[-1] + 1])
    kept = situation.with_values(workload={"batch": low})
    return kept if Outcome(kept, estimator.of(kept)).keeps(limits) else None


def grown(estimator: Estimator, situation: Situation, limits: Limits) -> Situation | None:
    """``situation`` at the largest batch that fits and keeps the limits; None where none does."""
    start = estimator.of(situation).memory
    top = _fitting(estimator, situation, int(min(start.max_sequences, LARGEST)))
    if top is None or (limits.ttft_s is None and limits.tpot_s is None):
        return top
    if Outcome(top, estimator.of(top)).keeps(limits):
        return top
    return _keeping(estimator, top, int(top.workload.batch), limits)


def applied(
    estimator: Estimator, situation: Situation, changes: tuple[Change, ...], limits: Limits
) -> Situation:
    """``situation`` with all changes made, the batch last.

    Raises:
        InputError: the changes don't go together, or no batch fits or keeps the limits.
    """
    for change in changes:
        situation = situation.with_values(dict(change.deployment), dict(change.workload))
    if not any(change.grows for change in changes):
        return situation
    found = grown(estimator, situation, limits)
    if found is None:
        raise InputError(f"not even one sequence fits{_limited(limits)}")
    return found


def make_option(
    estimator: Estimator, base: Outcome, changes: tuple[Change, ...], limits: Limits
) -> Option:
    """Estimate the changed case and compare it with ``base``.

    Raises:
        InputError: model, hardware or engine don't allow the changes.
    """
    situation = applied(estimator, base.situation, changes, limits)
    outcome = Outcome(situation, estimator.of(situation))
    return Option(
        changes=changes,
        outcome=outcome,
        gains=gains(base, outcome),
        largest=at_largest(estimator, situation, limits) if len(changes) == 1 else None,
    )


def _limited(limits: Limits) -> str:
    return "" if limits.ttft_s is None and limits.tpot_s is None else " and keeps the limits"


def at_largest(estimator: Estimator, situation: Situation, limits: Limits) -> Outcome | None:
    """The outcome at the largest batch that fits and keeps the limits."""
    found = grown(estimator, situation, limits)
    return None if found is None else Outcome(found, estimator.of(found))


def rank_key(option: Option, metric: Metric, limits: Limits) -> tuple[bool, bool, float]:
    """Sorts what fits before what doesn't, what keeps the limits before the rest, then by gain."""
    outcome = option.outcome
    return not outcome.fits, not outcome.keeps(limits), -option.gains.factor(metric)
