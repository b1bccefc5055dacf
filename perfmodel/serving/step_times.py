"""What an engine asks of its step times, and what it tells while it runs."""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from perfmodel.serving.instance import Instance
    from perfmodel.serving.ranks import Ranks
    from perfmodel.serving.sequence import Sequence

Chunk = tuple[int, int]
"""Tokens of one prompt that a step computes, and those before them in the cache."""


class StepTimes(Protocol):
    """Seconds of an engine's steps."""

    tokens_per_step: float
    """Tokens that a decoding sequence gains in a step, at least one: more with speculation."""
    width: int
    """Tokens that a decoding sequence puts into a step: one, and its drafts."""

    def decode(self, sequences: int, context: float) -> float:
        """A step of ``sequences`` decoding sequences with ``context`` cached tokens in all."""

    def mixed(self, sequences: int, context: float, chunks: list[Chunk], ended: int) -> float:
        """The same beside ``chunks`` of prompts, of which ``ended`` end in this step."""

    def linear_up_to(self, sequences: int, context: float) -> float:
        """The context in all up to which the decode step's time is linear in it."""


class RankTimes(StepTimes, Protocol):
    """Seconds of the steps of one rank, beside others that may have more or less to do."""

    def decode(self, sequences: int, context: float, everywhere: int = 0) -> float:
        """As of `StepTimes`; ``everywhere``: sequences on all ranks; 0: each has as many."""

    def mixed(
        self, sequences: int, context: float, chunks: list[Chunk], ended: int, everywhere: int = 0
    ) -> float:
        """As of `StepTimes`; ``everywhere``: tokens on all ranks; 0: each has as many."""


class Observer(Protocol):
    """Is told what happens in an engine."""

    def gap(self, seconds: float, tokens: float) -> None:
        """``tokens`` came ``seconds`` after the ones before them."""

    def runs(self, instance: Instance | Ranks, start: float, ended: int, decodes: int) -> None:
        """Steps run from ``start`` to the instance's clock, told before what they change.

        So the instance shows what it holds meanwhile; ``ended`` prompts, in neither of its queues
        any more, end in them, and ``decodes`` of them decode.
        """

    def step(self, instance: Instance | Ranks, start: float, prefill_tokens: int) -> None:
        """Steps ran from ``start`` to the instance's clock."""

    def preempted(self, sequence: Sequence, now: float) -> None:
        """A sequence lost its place, and waits again."""


def steps_until(span: float, first: float, slope: float, steps: int) -> tuple[int, float]:
    """Steps of first, first + slope, … seconds until ``span`` is over, and their time.

    k steps take k·first + slope·k(k − 1)/2; the smallest k that reaches ``span`` is taken.
    """
    if slope > 0:
        half = first - slope / 2
        taken = (sqrt(half * half + 2 * slope * max(span, 0.0)) - half) / slope
    else:
        taken = span / first
    count = min(steps, max(1, ceil(taken - 1e-9)))
    return count, count * first + slope * count * (count - 1) / 2
