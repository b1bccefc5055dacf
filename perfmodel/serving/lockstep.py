"""Attention replicas that share experts: they step together, each with its part of the batch."""

from __future__ import annotations

from perfmodel.serving.step_times import Chunk, StepTimes


class LockstepSteps:
    """Step times of ``replicas`` ranks that wait for each other at the experts.

    Decoding sequences are spread evenly; of the prompts' chunks, the longest first in turn, the
    fullest rank has as many as any.
    """

    def __init__(self, one: StepTimes, replicas: int) -> None:
        self._one = one
        self._replicas = replicas
        self.tokens_per_step = one.tokens_per_step
        self.width = one.width

    def _share(self, sequences: int) -> int:
        return -(-sequences // self._replicas)

    def decode(self, sequences: int, context: float) -> float:
        """Seconds of a step that only decodes."""
        own = self._share(sequences)
        return self._one.decode(own, context / sequences * own)

    def mixed(self, sequences: int, context: float, chunks: list[Chunk], ended: int) -> float:
        """Seconds of a step that decodes beside chunks of prompts."""
        own = self._share(sequences)
        mine = sorted(chunks, reverse=True)[:: self._replicas]
        held = context / sequences * own if sequences else 0.0
        return self._one.mixed(own, held, mine, min(self._share(ended), len(mine)))

    def linear_up_to(self, sequences: int, context: float) -> float:
        """The context in all up to which the decode step's time is linear in it."""
        own = self._share(sequences)
        return self._one.linear_up_to(own, context / sequences * own) / own * sequences
