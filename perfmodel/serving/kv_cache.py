"""What sequences take of an engine's KV cache: as they come, end, or must give way.

Times of transfers gather in `moving_s`: the next step waits for them, none is overlapped.
"""

from __future__ import annotations

from math import ceil
from typing import NoReturn

from perfmodel.errors import InputError
from perfmodel.serving.batch import Batch
from perfmodel.serving.blocks import Blocks
from perfmodel.serving.policy import Policy
from perfmodel.serving.prefix_cache import PrefixCache
from perfmodel.serving.radix import Match
from perfmodel.serving.sequence import Sequence, Work
from perfmodel.serving.tier import Tier


class KvCache:
    """The cache of one engine under its policy.

    Args:
        blocks: what fits.
        policy: what is held for outputs.
        step_tokens: tokens that a decoding sequence gains in a step at most.
        prefixes: cached prompts, which share the blocks; None where each computes its own.
        swap: the host's memory for sequences that give way; None where they are computed again.
    """

    def __init__(
        self,
        blocks: Blocks,
        policy: Policy,
        step_tokens: int,
        prefixes: PrefixCache | None,
        swap: Tier | None,
    ) -> None:
        self.blocks = blocks
        self.policy = policy
        self.prefixes = prefixes
        self.swap = swap
        self.in_host = 0.0
        """Blocks of sequences that gave way."""
        self.moving_s = 0.0
        """Transfers that the next step waits for."""
        self.longest = blocks.longest()
        """Tokens of the longest sequence that fits alone."""
        self._padded: dict[int, Sequence] = {}
        """The batch, where all its slots grow up to the longest output."""
        self._longest_output = 0
        self._padding_held = 0.0
        self._plain = not (blocks.fixed or policy.padded or prefixes or swap)
        self._reserve = policy.reserve
        self._simple = self._plain and policy.reserve == 0 and blocks.grows
        self._step_tokens = step_tokens

    def refuse(self, sequence: Sequence, spare: int) -> NoReturn:
        """Say that a sequence can never fit, with ``spare`` tokens beyond its last.

        Raises:
            InputError: naming its number.
        """
        drafts = f" (and {spare} of drafts)" if spare else ""
        raise InputError(
            f"request {sequence.number}: {sequence.prompt} prompt and {sequence.output} output "
            f"tokens{drafts} never fit: the cache holds {self.longest} of one sequence at most"
        )

    def free(self, batch: Batch, admitted: Work) -> float:
        """Blocks that new sequences may ask for, beside the next step of all that decode.

        Where a share of outputs must be free, so must it be for those in the engine (as SGLang
        counts), the ``admitted`` ones that don't decode yet among them.
        """
        blocks, reserve = self.blocks, self.policy.reserve
        free = blocks.capacity - blocks.used(batch.tokens_after(1))
        if 0 < reserve < 1 and blocks.grows:
            to_come = batch.to_come + sum(sequence.remaining for sequence, _ in admitted)
            free -= reserve * to_come / blocks.block
        return free

    def take(self, sequence: Sequence, free: float, match: Match | None = None) -> float:
        """Set the cache of a sequence aside if it fits.

        Args:
            sequence: one that waits.
            free: blocks that it may ask for.
            match: what the prefix cache has of its prompt.

        Returns:
            The blocks that are no longer free; -1 where it doesn't fit.
        """
        if self._simple and sequence.to_prefill:
            held = asked = float(-(-(sequence.prompt + sequence.generated) // self.blocks.block))
        else:
            held, asked = self._needs(sequence)
        if match is not None:
            asked += match.unheld - match.blocks
        if asked > free:
            return -1.0
        if not self._plain:
            held += self._settle(sequence, match)
        sequence.held = held
        self.blocks.held += held
        return asked

    def _needs(self, sequence: Sequence) -> tuple[float, float]:
        """Blocks that are held for a sequence alone, and that must be free for it."""
        blocks, reserve = self.blocks, self._reserve
        tokens = sequence.prompt + sequence.generated
        if reserve == 1:
            held: float = blocks.of(sequence.prompt + sequence.output)
            asked = held
        elif sequence.to_prefill:
            held = asked = blocks.of(tokens)
        else:  # its cache was computed before: it decodes at once, and needs room for it
            held, asked = blocks.of(tokens - 1), blocks.of(tokens - 1 + self._step_tokens)
        if self._plain and reserve in (0, 1):
            return held, asked
        if reserve < 1:
            asked = max(asked, blocks.of(tokens + ceil(reserve * sequence.remaining)))
        fixed = blocks.fixed_of(sequence.prompt + sequence.output)
        padding = self._padding(sequence)[1] if self.policy.padded else 0
        return held + fixed, asked + fixed + padding

    def _settle(self, sequence: Sequence, match: Match | None) -> float:
        """Let an admitted sequence in where batch, prefixes or host know of it.

        Returns the blocks by which what it holds alone is more.
        """
        if self.policy.padded:
            self._longest_output, padding = self._padding(sequence)
            self._padded[sequence.number] = sequence
            self._padding_held += padding
            self.blocks.held += padding
        if self.swap is not None and sequence.in_host:
            self.moving_s += self.swap.seconds(sequence.in_host * self.blocks.block_bytes)
            self.in_host -= sequence.in_host
            sequence.in_host = 0.0
        if self.prefixes is None or match is None:
            return 0
        self.moving_s += self.prefixes.loading_s(match)
        self.prefixes.take(sequence, match)
        return -match.blocks

    def release(self, sequences: list[Sequence]) -> None:
        """Give back what sequences hold."""
        for sequence in sequences:
            self.blocks.held -= sequence.held
            sequence.held = 0.0
        if self.prefixes is not None:
            self.prefixes.release(sequences)
        if self.policy.padded:
            self._unpad(sequences)

    def _unpad(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            del self._padded[sequence.number]
        if not self._padded:
            self.blocks.held -= self._padding_held
            self._padding_held, self._longest_output = 0.0, 0

    def give_way(self, sequence: Sequence) -> None:
        """Release a sequence that decoded: it keeps its cache in the host, or loses it."""
        moved: float = self.blocks.of(sequence.context)
        moved += self.blocks.fixed_of(sequence.prompt + sequence.output)
        self.release([sequence])
        if self.swap is None or self.in_host + moved > self.swap.capacity_blocks:
            sequence.to_prefill = sequence.prompt + sequence.generated
            return
        sequence.in_host = moved
        self.in_host += moved
        self.moving_s += self.swap.seconds(moved * self.blocks.block_bytes)

    def _padding(self, sequence: Sequence) -> tuple[int, int]:
        """The longest output of a padded batch with a sequence, and the blocks this adds."""
        of, longest = self.blocks.of, max(self._longest_output, sequence.output)
        more = of(sequence.prompt + longest) - of(sequence.prompt + sequence.output)
        if longest > self._longest_output:
            more += sum(
                of(s.prompt + longest) - of(s.prompt + self._longest_output)
                for s in self._padded.values()
            )
        return longest, more
