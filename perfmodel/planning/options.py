"""Changes applied to a case: exactly what `estimate` says of the changed deployment."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InputError
from perfmodel.planning.lever import Change, Limits
from perfmodel.planning.outcome import Gains, Metric, Outcome, gains
from perfmodel.planning.situation import Estimator, Situation
from perfmodel.specs.workload import LARGEST

NOTICEABLE = 0.02
"""A change of a quantity below 2 % counts as little: far inside any interval."""
PER_OCTAVE = 8
"""Batches from one to its double that are looked at where limits are set: 9 % apart."""
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


def _fitting(estimator: Estimator, situation: Situation) -> Situation | None:
    """``situation`` at the largest batch that fits; None: not even one sequence does."""
    batch = int(min(estimator.memory(situation).max_sequences, LARGEST))
    for _ in range(TRIES):
        if batch < 1:
            return None
        tried = situation.with_values(workload={"batch": batch})
        memory = estimator.memory(tried)
        if memory.fits:
            return tried
        batch = min(batch - 1, int(memory.max_sequences))
    return None


def _rungs(dp: int, top: int) -> np.ndarray:
    """Batches from ``dp`` on, the same for all ``top`` up to the next power of two.

    Settings that look at equal batches share the prices of the operators that they share.
    """
    octaves = max(1, math.ceil(math.log2(top / dp)))
    steps = np.arange(octaves * PER_OCTAVE + 1)
    return np.unique(np.round(dp * 2.0 ** (steps / PER_OCTAVE)))


def _probed(estimator: Estimator, ladder: Situation, limits: Limits) -> np.ndarray:
    """Which batches of a ladder keep the limits, TPOT taken at the mean context.

    TTFT needs no decode steps, and the mean step is the one after a prompt of that length: both
    cost a fraction of the whole estimate.
    """
    load = ladder.workload
    ok = np.ones(np.shape(load.batch), dtype=bool)
    if limits.ttft_s is not None:
        first = ladder.with_values(workload={"output": 1})
        ok &= np.asarray(estimator.of(first).ttft_s) <= limits.ttft_s
    if limits.tpot_s is not None and load.output > 1:
        context = load.prompt + (load.output - 2) // 2
        values = {"prompt": context, "cached_prefix": context - 1, "output": 2}
        step = ladder.with_values(workload=values | {"prefill_chunk": None})
        ok &= np.asarray(estimator.of(step).tpot_s) <= limits.tpot_s
    return ok


def _keeping(estimator: Estimator, top: Situation, limits: Limits) -> Situation | None:
    """``top`` at the largest batch that keeps the limits, less up to 9 %; None: none does.

    All batches of a ladder are looked at together; TTFT and TPOT grow with the batch but for
    small steps of the kernels.
    """
    rungs = _rungs(top.deployment.dp, int(top.workload.batch))
    ladder = top.with_values(workload={"batch": rungs})
    within = rungs <= top.workload.batch
    keep = rungs[_probed(estimator, ladder, limits) & within]
    tried = [int(rung) for rung in keep[-2:]]
    if keep.size == np.count_nonzero(within):
        tried.append(int(top.workload.batch))
    for batch in reversed(tried):  # the mean context's step may be a shade too fast or slow
        kept = top.with_values(workload={"batch": batch})
        if Outcome(kept, estimator.of(kept)).keeps(limits):
            return kept
    return None


def grown(estimator: Estimator, situation: Situation, limits: Limits) -> Situation | None:
    """``situation`` at the largest batch that fits and keeps the limits; None where none does."""
    top = _fitting(estimator, situation)
    bounded = limits.ttft_s is not None or limits.tpot_s is not None
    return _keeping(estimator, top, limits) if top is not None and bounded else top


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
