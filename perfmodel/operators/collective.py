"""Exchanges between GPUs: what they carry, and how the ranks lie among the nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perfmodel.operators.operator import Operator, Shape
from perfmodel.operators.quantity import Quantity

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]


@dataclass(frozen=True, kw_only=True)
class Collective(Operator):
    """An exchange between ``ranks`` GPUs."""

    kind: CollectiveKind
    message_bytes: Quantity
    """What the result holds on one rank (all-reduce, all-gather), or what one rank sends."""
    ranks: int
    span: int
    """GPUs from the first to the last rank: what decides whether a node holds them all."""
    near: int = 1
    """Ranks that stand next to each other, however far the others are (see `ranks_inside`)."""
    stages: int = 0
    """Stages of the pipeline that ``span`` covers, where each sends to the next; 0: one pair."""

    @property
    def shape(self) -> Shape:
        """Message and ranks."""
        return {"message_bytes": self.message_bytes, "ranks": self.ranks}

    @property
    def activation_bytes(self) -> Quantity:
        """The message is read from device memory and its result written."""
        return 2 * self.message_bytes

    @property
    def wire_bytes(self) -> Quantity:
        """Bytes one GPU sends by the bandwidth-optimal algorithm (ring, or pairwise exchange).

        An all-reduce is a reduce-scatter and an all-gather, each (n − 1)/n of the message.
        """
        if self.kind == "send_recv":
            return self.message_bytes
        passes = 2 if self.kind == "all_reduce" else 1
        return passes * (self.ranks - 1) / self.ranks * self.message_bytes

    def ranks_inside(self, node: int) -> int:
        """Ranks that share a node of ``node`` GPUs, the same number in each node.

        Ranks lie evenly over the span, ``near`` of them side by side: a node holds its share of
        the span, or as many neighbours as it has room for. Where that doesn't divide the ranks,
        they are spread evenly over more nodes.
        """
        most = max(node * self.ranks // self.span, min(self.near, node))
        return next(n for n in range(min(most, self.ranks), 0, -1) if self.ranks % n == 0)

    def hops_between(self, node: int) -> float:
        """Share of a pipeline's hand-overs that leave a node of ``node`` GPUs.

        Those where a GPU of one stage and its partner in the next are on different nodes; for
        an exchange along ``stages``.
        """
        size = self.span // self.stages
        crossing = [
            any(gpu // node != (gpu + size) // node for gpu in range(first, first + size))
            for first in range(0, self.span - size, size)
        ]
        return sum(crossing) / len(crossing)
