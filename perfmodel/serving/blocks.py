"""The blocks of one engine's KV cache as counts: what is held, what grows, what is free.

Decoding sequences all grow by the same number of tokens in a step, so what they hold follows from
the tokens of all steps so far: a sequence whose context minus that number is c holds
ceil((c + tokens)/block) blocks. A histogram of c modulo the block gives the sum over all of them
for any later step without touching one sequence.
"""

from __future__ import annotations

from math import inf

from perfmodel.serving.sequence import Sequence


class Blocks:
    """Blocks of a paged cache; or, where nothing grows, what each sequence takes as a whole.

    Args:
        capacity: blocks that fit, a number that need not be whole.
        block: tokens in a block.
        fixed: blocks that a sequence takes beside those of its tokens (windows, recurrent states,
            a reserved length). Entry i is for one of i blocks of tokens in all, the last one for
            all that are longer.
        grows: whether tokens take blocks at all.
        block_bytes: bytes of one block, for the time that moving it takes.
        max_model_len: the longest sequence that the engine takes.
    """

    def __init__(
        self,
        capacity: float,
        block: int,
        fixed: tuple[float, ...] = (),
        *,
        grows: bool = True,
        block_bytes: float = 0.0,
        max_model_len: float = inf,
    ) -> None:
        self.capacity = capacity
        self.block = block
        self.fixed = fixed
        self.grows = grows
        self.block_bytes = block_bytes
        self.max_model_len = max_model_len
        self.held = 0.0
        """Set aside for prompts, reservations, states and cached prefixes in use."""
        self.growing = 0
        """Sequences whose blocks grow with the steps."""
        self._whole = 0
        self._phase = [0] * block

    def of(self, tokens: int) -> int:
        """Blocks that ``tokens`` of one sequence fill."""
        return -(-tokens // self.block) if self.grows else 0

    def fixed_of(self, tokens: int) -> float:
        """Blocks beside them that a sequence of ``tokens`` in all takes."""
        if not self.fixed:
            return 0.0
        return self.fixed[min(-(-tokens // self.block), len(self.fixed) - 1)]

    def longest(self) -> int:
        """Tokens, prompt and output, of the longest sequence that fits alone; 0 where none does."""
        low, high = 0, 2**31
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.of(middle) + self.fixed_of(middle) <= self.capacity
            if fits and middle <= self.max_model_len:
                low = middle
            else:
                high = middle - 1
        return low

    def grown(self, tokens: int) -> int:
        """Blocks of all growing sequences after ``tokens`` each since the start."""
        turns, offset = divmod(tokens, self.block)
        phase = self._phase
        # ceil((phase + offset)/block): 0 for 0, 2 beyond one block, else 1
        beyond = sum(phase[self.block - offset + 1 :]) if offset > 1 else 0
        none = phase[0] if offset == 0 else 0
        return self._whole + self.growing * (turns + 1) + beyond - none

    def used(self, tokens: int) -> float:
        """All blocks in use after ``tokens`` each."""
        return self.held + self.grown(tokens)

    def fits_after(self, tokens: int) -> bool:
        """Whether everything fits after ``tokens`` each."""
        # A block beyond whole turns, and one for the phase, is the most that each can take.
        most = self.held + self._whole + self.growing * (tokens // self.block + 2)
        return most <= self.capacity or self.used(tokens) <= self.capacity

    def grow(self, sequences: list[Sequence]) -> None:
        """Let sequences grow from now on; what was held for their context is given back."""
        block, phase = self.block, self._phase
        whole = held = 0
        for sequence in sequences:
            born = sequence.born
            whole += born // block
            phase[born % block] += 1
            own = -(-(sequence.prompt + sequence.generated - 1) // block)
            sequence.held -= own
            held += own
        self._whole += whole
        self.growing += len(sequences)
        self.held -= held

    def stop(self, sequences: list[Sequence]) -> None:
        """Sequences no longer grow: they ended, or lost their blocks."""
        block, phase = self.block, self._phase
        whole = 0
        for sequence in sequences:
            born = sequence.born
            whole += born // block
            phase[born % block] -= 1
        self._whole -= whole
        self.growing -= len(sequences)

    def tokens_that_fit(self, tokens: int, most: int) -> int:
        """How many further tokens of each fit after ``tokens``, up to ``most``."""
        if self.fits_after(tokens + most):
            return most
        low, high = 0, most - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits_after(tokens + middle):
                low = middle
            else:
                high = middle - 1
        return low
