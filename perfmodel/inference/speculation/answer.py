"""What speculation gains in a case: speed-up, best number of tokens, where it stops paying."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perfmodel.inference.phase import Cost, PhaseCost
from perfmodel.inference.speculation.acceptance import round_tokens
from perfmodel.inference.speculation.best import Best, best_setting, first_unpaid
from perfmodel.inference.speculation.draft import Draft
from perfmodel.inference.speculation.rounds import PREFIX, Rounds
from perfmodel.inference.steps import mean_context
from perfmodel.operators.cache import cache_bytes
from perfmodel.operators.quantity import Quantity, as_quantity, maximum, minimum
from perfmodel.specs.workload import Workload


@dataclass(frozen=True)
class Speculated:
    """A round at the mean context beside a plain decode step there."""

    rounds: Rounds
    workload: Workload
    plain: Cost
    """A decode step without speculation."""
    round: PhaseCost
    max_sequences: Quantity
    """What fits into memory over the deployment: batches beyond aren't looked at."""

    @property
    def draft(self) -> Draft:
        """Who drafts."""
        return self.rounds.draft

    @property
    def expected_tokens(self) -> float:
        """Mean tokens of a round, per sequence."""
        return round_tokens(self.draft.speculation)

    @property
    def round_s(self) -> Quantity:
        """Seconds of a round."""
        return self.round.total.time_s

    @property
    def draft_s(self) -> Quantity:
        """The draft's part of a round."""
        rows = (r for r in self.round.operators if r.name.startswith(PREFIX))
        return sum((row.cost.time_s for row in rows), 0.0)

    @property
    def verify_s(self) -> Quantity:
        """The target's part of a round."""
        return self.round_s - self.draft_s

    @property
    def speedup(self) -> Quantity:
        """Tokens per second over those of plain decoding: E·T_plain/T_round."""
        return self.expected_tokens * self.plain.time_s / self.round_s

    @property
    def speedup_interval(self) -> tuple[Quantity, Quantity]:
        """Low and high end of the speed-up E/(1 + r), where r is what a round takes beyond a step.

        Both run the same kernels, so what is wrong with these cancels but for r: its log width
        is those of both times in quadrature. The acceptance is taken as exact, and so is a
        stated cost of the draft.
        """
        plain, whole = self.plain, self.round.total
        added = whole.time_s / plain.time_s - 1
        down = _quadrature(_log(plain.time_s, plain.low_s), _log(whole.high_s, whole.time_s))
        up = _quadrature(_log(plain.high_s, plain.time_s), _log(whole.time_s, whole.low_s))
        exact = 0.0 if self.draft.speculation.draft_cost is not None else 1.0
        tokens = self.expected_tokens
        ends = [tokens / (1 + added * np.exp(exact * width)) for width in (down, -up)]
        low, high = minimum(*ends), maximum(*ends)
        return as_quantity(low), as_quantity(high)

    @property
    def draft_cost(self) -> Quantity | None:
        """What a drafted token adds to a round as a share of a plain step; None without any."""
        nodes = self.draft.speculation.nodes
        return (self.round_s / self.plain.time_s - 1) / nodes if nodes else None

    @property
    def draft_kv_bytes_per_token(self) -> float:
        """What the draft's own cache grows by with each token of a sequence, on one GPU."""
        return float(cache_bytes(self.draft.layers, 1, self.draft.formats.cache))

    @cached_property
    def best(self) -> Best:
        """The number of tokens, or the part of the tree, that gives most tokens per second."""
        sequences, cached = mean_context(self.workload, self.rounds.plan)
        return best_setting(self.rounds, sequences, cached, self.plain.time_s)

    @cached_property
    def break_even_batch(self) -> Quantity | None:
        """The smallest batch at which a round gains nothing; NaN where each that fits gains.

        In the shape that prompt and output broadcast to: the workload's batch has no part in it.
        None where the draft's cost is stated: it doesn't depend on the batch.
        """
        if self.draft.speculation.draft_cost is not None:
            return None
        _, cached = mean_context(self.workload, self.rounds.plan)
        dp = self.rounds.plan.parallel.dp
        replica = first_unpaid(self.rounds, cached, as_quantity(self.max_sequences) / dp)
        return (replica - 1) * dp + 1


def _log(high: Quantity, low: Quantity) -> Quantity:
    return as_quantity(np.log(np.asarray(high) / np.asarray(low)))


def _quadrature(a: Quantity, b: Quantity) -> Quantity:
    return as_quantity(np.sqrt(np.asarray(a) ** 2 + np.asarray(b) ** 2))
