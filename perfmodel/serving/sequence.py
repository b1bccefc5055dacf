"""A request, and how it stands in an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.serving.radix import Node

Prefix = tuple[tuple[str, int], ...]
"""What a prompt begins with: (name, tokens) of each part. Prompts whose parts have the same names
hold the same tokens there, as far as the shorter of them goes."""


class Sequence:
    """A request and its state: mutable, and small because there are many.

    Args:
        number: its place in the stream; no two of one engine are equal.
        arrival_s: when its user sent it.
        prompt: tokens, at least one.
        output: tokens to generate, at least one.
        prefix: parts of the prompt that others may share.
        part: which part of a mix it belongs to.
    """

    __slots__ = (
        "admitted_s", "arrival_s", "born", "finish_s", "finish_step", "first_s", "generated",
        "held", "hit_tokens", "in_host", "last_s", "node", "number", "output", "part",
        "preemptions", "prefix", "prompt", "rank", "shared", "to_prefill",
    )  # fmt: skip
    rank: int
    """Which of an engine's ranks it belongs to; only where there are several."""

    def __init__(
        self,
        number: int,
        arrival_s: float,
        prompt: int,
        output: int,
        prefix: Prefix = (),
        part: int = 0,
    ) -> None:
        self.number = number
        self.arrival_s = arrival_s
        self.prompt = prompt
        self.output = output
        self.prefix = prefix
        self.part = part
        self.to_prefill = prompt
        """Tokens whose keys and values are still to be computed."""
        self.generated = 0
        """Output tokens made so far; while it decodes, those made when it began to."""
        self.admitted_s = self.first_s = self.finish_s = -1.0
        self.last_s = -1.0
        """When its last token came, where it has lost its place since."""
        self.born = 0
        """Its context minus the tokens that a sequence decoding since the engine's start would
        have gained: constant while it decodes."""
        self.finish_step = 0
        self.held = 0.0
        """Blocks set aside for it alone, apart from those that grow with the context, less those
        that the prefix cache holds for it."""
        self.shared = 0
        """Blocks of its prompt that the prefix cache holds."""
        self.hit_tokens = 0
        """Tokens of its prompt that the prefix cache had when it was first admitted."""
        self.node: Node | None = None
        """The end of its prompt in the prefix cache."""
        self.in_host = 0.0
        """Blocks that were moved to the host's memory when it lost its place."""
        self.preemptions = 0

    @property
    def context(self) -> int:
        """Tokens in its cache once it is prefilled: the last output token isn't fed in yet."""
        return self.prompt + self.generated - 1

    @property
    def remaining(self) -> int:
        """Output tokens still to come."""
        return self.output - self.generated


Work = list[tuple[Sequence, int]]
"""Sequences, and the tokens of each prompt that a step computes."""
