"""A request, and how it stands in an engine."""

from __future__ import annotations

Prefix = tuple[tuple[str, int], ...]
"""What a prompt begins with: (name, tokens) of each part. Prompts whose parts have the same names
hold the same tokens there, as far as the shorter of them goes."""


class Sequence:
    """A request and its state: mutable, and small because there are many.

    Args:
        number: its place in the stream.
        arrival_s: when its user sent it.
        prompt: tokens, at least one.
        output: tokens to generate, at least one.
        prefix: parts of the prompt that others may share.
    """

    __slots__ = (
        "admitted_s", "arrival_s", "base", "born", "finish_s", "finish_step", "first_s",
        "generated", "held", "node", "number", "output", "preemptions", "prefix", "prompt",
        "to_prefill",
    )  # fmt: skip

    def __init__(
        self, number: int, arrival_s: float, prompt: int, output: int, prefix: Prefix = ()
    ) -> None:
        self.number = number
        self.arrival_s = arrival_s
        self.prompt = prompt
        self.output = output
        self.prefix = prefix
        self.to_prefill = prompt
        """Tokens whose keys and values are still to be computed."""
        self.generated = 0
        """Output tokens made so far."""
        self.admitted_s = -1.0
        self.first_s = -1.0
        self.finish_s = -1.0
        self.base = 0.0
        """Context minus what a sequence decoding since the start would have gained: constant."""
        self.born = 0
        """The same in whole tokens, for the blocks that it holds."""
        self.finish_step = 0
        self.held = 0.0
        """Blocks set aside apart from those that grow with the context."""
        self.node: object | None = None
        """The end of its prefix in the prefix cache."""
        self.preemptions = 0

    @property
    def context(self) -> int:
        """Tokens in its cache once it is prefilled: the last output token isn't fed in yet."""
        return self.prompt + self.generated - 1

    @property
    def remaining(self) -> int:
        """Output tokens still to come."""
        return self.output - self.generated
