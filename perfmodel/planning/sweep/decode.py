"""All decode steps of many settings: sums over the context, read off one surface."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.inference.phase import Device
from perfmodel.inference.pipeline import decode_phase
from perfmodel.inference.plan import Plan
from perfmodel.inference.speculation.acceptance import round_tokens
from perfmodel.inference.speculation.rounds import Rounds, mean_round
from perfmodel.operators.quantity import Array, Quantity
from perfmodel.planning.sweep.surface import Surface
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.workload import Workload

TOLERANCE = 2.2e-3
"""How far a step's line may miss it inside a cell."""
EXACT_TO = 512
"""Sequences up to which waves of work make each number a case of its own."""


@dataclass(frozen=True, slots=True)
class DecodePrice:
    """Seconds of one decode step, or round of speculation, exactly as an estimate prices it."""

    plan: Plan
    device: Device
    host: Host | None

    def __call__(self, sequences: Array, cached: Array) -> Quantity:
        """A step of a replica's ``sequences`` that find ``cached`` tokens each."""
        plan = self.plan
        # The mean step of two output tokens is the one after the prompt.
        load = Workload(batch=plan.parallel.dp * sequences, prompt=cached, output=2)
        if plan.draft is None:
            return decode_phase(plan.model, load, plan, self.device, self.host).total.time_s
        rounds = Rounds(plan.model, plan, plan.draft, self.device, self.host)
        return mean_round(rounds, load).total.time_s

    @property
    def tokens(self) -> float:
        """Tokens of each sequence that a step gives, on average."""
        draft = self.plan.draft
        return 1.0 if draft is None else round_tokens(draft.speculation)

    @property
    def whole_cache(self) -> bool:
        """Whether every step runs over the length set aside (`steps.mean_context`)."""
        return self.plan.engine.kernels.static_cache


class DecodeTimes:
    """Seconds of the steps that give all output tokens but the first.

    With T tokens a step, (output − 1)/T steps begin at prompt, prompt + T, …: their sum is 1/T
    of the integral of a step's time from prompt − T/2 over output − 1 tokens; of less than a step,
    around the prompt.

    Args:
        price: a step.
        sequences: of a replica: the numbers that are asked for.
        shortest: the shortest prompt.
        longest: the largest sum of prompt and output.
    """

    def __init__(
        self, price: DecodePrice, sequences: Array, shortest: float, longest: float
    ) -> None:
        self._tokens = price.tokens
        self._whole = price.whole_cache
        low = max(int(shortest - self._tokens / 2), 1)
        self._surface = Surface(
            price, sequences, low, max(int(longest), low), tolerance=TOLERANCE, exact_to=EXACT_TO
        )

    def seconds(self, sequences: Array, prompt: Array, output: Array) -> Array:
        """Of settings of a replica's ``sequences``; 0 where one token is asked for."""
        steps, rows = output - 1, self._surface.rows(sequences)
        if self._whole:
            at = np.maximum(prompt + output - 2, 1)
            return np.asarray(steps * self._surface.values(rows, at) / self._tokens)
        start = prompt - np.minimum(steps, self._tokens) / 2
        return np.asarray(self._surface.sums(rows, start, start + steps) / self._tokens)
