"""Step times that also add up what prompts take of them."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.serving.lockstep import LockstepSteps, Share
from perfmodel.serving.step_times import Chunk, StepTimes


class MeteredSteps:
    """As ``one``; `prefill_s` sums what steps take beyond decoding alone, by each engine that asks.

    An engine asks for a step with prompts once, when it runs it. A step that decodes beside a
    prompt counts for prefill as far as it is longer than the same decode step.
    """

    def __init__(self, one: StepTimes) -> None:
        self._one = one
        self.tokens_per_step = one.tokens_per_step
        self.width = one.width
        self.linear_up_to = one.linear_up_to
        self.decode = one.decode
        self.prefill_s = 0.0

    def mixed(self, sequences: int, context: float, chunks: list[Chunk], ended: int) -> float:
        """Seconds of a step that decodes beside chunks of prompts."""
        seconds = self._one.mixed(sequences, context, chunks, ended)
        alone = self._one.decode(sequences, context) if sequences else 0.0
        self.prefill_s += max(seconds - alone, 0.0)
        return seconds


class MeteredLockstep(LockstepSteps):
    """The same of ranks that step together: a prompt on one of them keeps all waiting."""

    def __init__(self, times: LockstepSteps) -> None:
        super().__init__(times.one, times.ranks)
        self.prefill_s = 0.0

    def mixed(self, shares: Sequence[Share]) -> float:
        """Seconds of a step in which some rank computes chunks of prompts."""
        seconds = super().mixed(shares)
        decodes = any(share.sequences for share in shares)
        alone = self.decode(shares) if decodes else 0.0
        self.prefill_s += max(seconds - alone, 0.0)
        return seconds


def metered(times: StepTimes | LockstepSteps) -> MeteredSteps | MeteredLockstep:
    """``times``, metered."""
    return MeteredLockstep(times) if isinstance(times, LockstepSteps) else MeteredSteps(times)
