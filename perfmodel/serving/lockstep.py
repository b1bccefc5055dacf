"""Attention replicas that share experts: what a step takes in which each has work of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perfmodel.serving.step_times import Chunk, RankTimes


class Share(NamedTuple):
    """What one rank computes in a step."""

    sequences: int
    """That decode."""
    context: float
    """Their cached tokens in all."""
    chunks: tuple[Chunk, ...] = ()
    """Of prompts."""
    ended: int = 0
    """Prompts that end in this step."""


class LockstepSteps:
    """Step times of ranks that wait for each other at the experts.

    The experts' work is of all ranks' tokens; the rest is that of the slowest rank, of attention
    and layers of its own.

    Args:
        one: steps of one rank.
        ranks: how many there are.
    """

    def __init__(self, one: RankTimes, ranks: int) -> None:
        self.one = one
        self.ranks = ranks

    def decode(self, shares: Sequence[Share]) -> float:
        """Seconds of a step that only decodes."""
        everywhere = sum(share.sequences for share in shares)
        decode = self.one.decode
        return max(decode(n, context, everywhere) for n, context, *_ in foremost(shares))

    def mixed(self, shares: Sequence[Share]) -> float:
        """Seconds of a step in which some rank computes chunks of prompts."""
        filling = {share for share in shares if share.chunks}
        beside = foremost(share for share in shares if not share.chunks)
        everywhere = self.one.width * sum(share.sequences for share in shares)
        everywhere += sum(new for share in shares for new, _ in share.chunks)
        mixed = self.one.mixed
        return max(
            mixed(n, context, list(chunks), ended, everywhere)
            for n, context, chunks, ended in (*filling, *beside)
        )

    def stretch(self, shares: Sequence[Share], steps: int) -> tuple[int, float, float]:
        """As many of ``steps`` decode steps as have times on a line; those of first and last.

        They end where the slowest rank's time bends, or another rank becomes the slowest.
        """
        one = self.one
        everywhere = sum(share.sequences for share in shares)
        slow = foremost(shares)
        first = [one.decode(n, context, everywhere) for n, context, *_ in slow]
        if steps > 1:
            steps = min(self._linear(share, steps) for share in slow)
        if steps == 1:
            return 1, max(first), max(first)
        last = [
            one.decode(n, context + (steps - 1) * n * one.tokens_per_step, everywhere)
            for n, context, *_ in slow
        ]
        if len(slow) == 1:
            return steps, first[0], last[0]
        return _until_overtaken(first, last, steps)

    def _linear(self, share: Share, steps: int) -> int:
        """Steps in which one rank's time is linear."""
        growth = share.sequences * self.one.tokens_per_step
        reach = self.one.linear_up_to(share.sequences, share.context)
        if share.context + (steps - 1) * growth <= reach:
            return steps
        return max(1, int((reach - share.context) / growth) + 1)


def foremost(shares: Iterable[Share]) -> list[Share]:
    """Those that decode and may be the slowest: no other has as many sequences and as much context.

    >>> [(s.sequences, s.context) for s in foremost([Share(3, 900), Share(2, 800), Share(2, 950)])]
    [(3, 900), (2, 950)]
    """
    found: list[Share] = []
    longest = 0.0
    for share in sorted(set(shares), reverse=True):
        if share.sequences and share.context > longest:
            found.append(share)
            longest = share.context
    return found


def _until_overtaken(first: list[float], last: list[float], steps: int) -> tuple[int, float, float]:
    """The steps in which the slowest line stays the slowest; its times at the first and last."""
    slowest = max(range(len(first)), key=lambda rank: (first[rank], last[rank]))
    slope = (last[slowest] - first[slowest]) / (steps - 1)
    fit = steps
    for begins, ends in zip(first, last, strict=True):
        if ends > last[slowest]:
            gains = (ends - begins) / (steps - 1) - slope
            fit = min(fit, int((first[slowest] - begins) / gains) + 1)
    return fit, first[slowest], first[slowest] + (fit - 1) * slope
