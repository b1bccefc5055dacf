"""Attention replicas that share experts: they step together, each with its part of the batch."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapreplace

from perfmodel.serving.step_times import Chunk, RankTimes


class Rooms:
    """Tokens of prompts on each rank of a step: a chunk goes to the one with the fewest.

    Args:
        ranks: how many.
        budget: tokens that each has room for.
    """

    def __init__(self, ranks: int, budget: int = 0) -> None:
        self._budget = budget
        self._taken = [(0, rank) for rank in range(ranks)]  # as a heap

    @property
    def emptiest(self) -> int:
        """The rank that takes the next chunk."""
        return self._taken[0][1]

    def take(self, size: int) -> int:
        """Give that rank a chunk of ``size`` tokens; the room for the one after it."""
        tokens, rank = self._taken[0]
        heapreplace(self._taken, (tokens + size, rank))
        return self._budget - self._taken[0][0]


class LockstepSteps:
    """Step times of ``replicas`` ranks that wait for each other at the experts.

    Decoding sequences are spread evenly. The experts' work is of all ranks' tokens; the rest is
    that of the slowest rank, of attention and layers of its own.
    """

    def __init__(self, one: RankTimes, replicas: int) -> None:
        self._one = one
        self._replicas = replicas
        self.tokens_per_step = one.tokens_per_step
        self.width = one.width

    def _share(self, sequences: int) -> int:
        return -(-sequences // self._replicas)

    def decode(self, sequences: int, context: float) -> float:
        """Seconds of a step that only decodes."""
        own = self._share(sequences)
        return self._one.decode(own, context / sequences * own, sequences)

    def mixed(self, sequences: int, context: float, chunks: list[Chunk], ended: int) -> float:
        """Seconds of a step that decodes beside chunks of prompts."""
        own = self._share(sequences)
        held = context / sequences * own if sequences else 0.0
        everywhere = sequences * self.width + sum(new for new, _ in chunks)
        ends = self._share(ended)
        return max(
            self._one.mixed(own, held, mine, min(ends, len(mine)), everywhere)
            for mine in _distinct(dealt(chunks, self._replicas))
        )

    def linear_up_to(self, sequences: int, context: float) -> float:
        """The context in all up to which the decode step's time is linear in it."""
        own = self._share(sequences)
        return self._one.linear_up_to(own, context / sequences * own) / own * sequences


def dealt(chunks: Iterable[Chunk], ranks: int) -> list[list[Chunk]]:
    """The chunks of each rank that has any, dealt as `fill.fill_step` counts them."""
    rooms = Rooms(ranks)
    piles: list[list[Chunk]] = [[] for _ in range(ranks)]
    for chunk in chunks:
        piles[rooms.emptiest].append(chunk)
        rooms.take(chunk[0])
    return [pile for pile in piles if pile]


def _distinct(piles: list[list[Chunk]]) -> Iterable[list[Chunk]]:
    """Piles without their repeats: equal prompts make most ranks alike."""
    return {tuple(pile): pile for pile in piles}.values()
