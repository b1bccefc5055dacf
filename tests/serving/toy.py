"""Engines with made-up step times, whose results can be worked out by hand."""

from dataclasses import dataclass
from typing import Any

from perfmodel.serving.blocks import Blocks
from perfmodel.serving.engine import Engine
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.policy import POLICIES
from perfmodel.serving.step_times import Chunk


@dataclass
class ToyTimes:
    """A decode step of base + a share for each sequence and cached token; prompts by token."""

    base: float = 1.0
    per_sequence: float = 0.0
    per_context: float = 0.0
    per_prompt: float = 0.01
    one_by_one: bool = False
    """Never jump over several decode steps."""
    tokens_per_step: float = 1
    width: int = 1

    def decode(self, sequences: int, context: float, everywhere: int = 0) -> float:
        return self.base + self.per_sequence * sequences + self.per_context * context

    def mixed(
        self, sequences: int, context: float, chunks: list[Chunk], ended: int, everywhere: int = 0
    ) -> float:
        beside = self.decode(sequences, context) if sequences else 0.0
        return beside + self.per_prompt * sum(size for size, _ in chunks)

    def linear_up_to(self, sequences: int, context: float) -> float:
        return context if self.one_by_one else 1e18


REAL = ToyTimes(5e-3, 1e-5, 4e-8, 25e-6)
"""About Llama-3-8B on one H100."""


def engine(
    times: ToyTimes | None = None,
    policy: str = "prefill_first",
    seqs: int = 256,
    budget: int = 8192,
    capacity: float = 1e6,
    block: int = 16,
    **more: Any,
) -> Engine:
    def blocks() -> Blocks:
        return Blocks(capacity, block, block_bytes=block * 131072)

    return Engine(times or ToyTimes(), blocks, POLICIES[policy], seqs, budget, **more)


def lengths(text: str | int) -> Lengths:
    return Lengths.parse(text, "length")
