"""Prefix caching in one engine: the radix tree of its prompts, beside its blocks, and tiers below.

A sequence's whole prompt is put into the tree when the step that computes its last tokens is
planned, so that those admitted later into the same step share it; in vLLM a block is shared from
the same moment. (A sequence is admitted only when those before it have their last tokens in the
step, so nobody can miss an unfinished prompt.) Generated tokens aren't shared.
"""

from __future__ import annotations

from math import ceil

from perfmodel.errors import InputError
from perfmodel.serving.blocks import Blocks
from perfmodel.serving.radix import Match, RadixTree
from perfmodel.serving.sequence import Sequence
from perfmodel.serving.tier import Tier
from perfmodel.serving.tokens import Runs, prompt_runs


class PrefixCache:
    """Prompts that are cached in an engine's blocks.

    Args:
        blocks: the cache; what sequences hold of the tree counts as held in it.
        tiers: where evicted blocks go, the fastest first: the host's memory, then a disk.

    Raises:
        InputError: blocks that can't be shared.
    """

    def __init__(self, blocks: Blocks, tiers: tuple[Tier, ...] = ()) -> None:
        if not blocks.grows:
            raise InputError(
                "prefix caching needs a paged cache: a sequence's reserved length isn't shared"
            )
        self.blocks = blocks
        self.tiers = tiers
        self.tree = RadixTree(blocks.block, tuple(int(tier.capacity_blocks) for tier in tiers))
        self._held = 0

    def match(self, sequence: Sequence) -> Match:
        """What is cached of a prompt, so that at least one token is left to compute."""
        fed = sequence.prompt + sequence.generated
        blocks = min(sequence.prompt, fed - 1) // self.blocks.block
        return self.tree.match(_runs(sequence), blocks)

    def loading_s(self, match: Match) -> float:
        """Time to bring a match to the device."""
        moved = zip(self.tiers, match.below, strict=True)
        return sum(tier.seconds(blocks * self.blocks.block_bytes) for tier, blocks in moved)

    def take(self, sequence: Sequence, match: Match) -> None:
        """Hold a match for a sequence, which sets the rest of its blocks aside itself."""
        sequence.node = self.tree.hold(match)
        sequence.shared = match.blocks
        sequence.to_prefill -= match.blocks * self.blocks.block
        self._count()

    def computed(self, sequence: Sequence) -> None:
        """A step computes the last tokens of a prompt: its blocks become the tree's."""
        if sequence.node is None:
            return
        blocks = sequence.prompt // self.blocks.block
        sequence.node = self.tree.extend(_runs(sequence), blocks, sequence.node, sequence.shared)
        own = blocks - sequence.shared
        sequence.shared = blocks
        sequence.held -= own
        self.blocks.held -= own
        self._count()

    def release(self, sequences: list[Sequence]) -> None:
        """Sequences need their prompts no longer; those stay cached."""
        for sequence in sequences:
            if sequence.node is not None:
                self.tree.give_back(sequence.node)
                sequence.node = None
                sequence.shared = 0
        self._count()

    def make_room(self, tokens: int) -> None:
        """Evict what doesn't fit beside the blocks in use after ``tokens`` of each sequence."""
        over = self.blocks.used(tokens) + self.tree.unheld - self.blocks.capacity
        if over > 0:
            self.tree.evict(ceil(over))

    def _count(self) -> None:
        """Count what sequences hold of the tree among the blocks held."""
        self.blocks.held += self.tree.held - self._held
        self._held = self.tree.held


def _runs(sequence: Sequence) -> Runs:
    return prompt_runs(sequence.prefix, sequence.prompt, sequence.number)
