"""The KV cache of one engine as counted blocks: what is held, what grows, what is free.

Decoding sequences all grow by the same number of tokens in a step, so what they hold follows from
the count of decode steps: a sequence whose context minus that count is c holds
ceil((c + steps)/block) blocks. A histogram of c modulo the block gives the sum over all of them
for any later step without touching one sequence.
"""

from __future__ import annotations

from perfmodel.serving.sequence import Sequence


class Blocks:
    """Blocks of a paged cache, or whole sequences' lengths in blocks of one token.

    Args:
        capacity: blocks that fit, a number that need not be whole.
        block: tokens in a block.
        fixed: blocks that every sequence takes whatever its length (recurrent states, windows).
    """

    def __init__(self, capacity: float, block: int, fixed: float = 0.0) -> None:
        self.capacity = capacity
        self.block = block
        self.fixed = fixed
        self.held = 0.0
        """Set aside for prompts, reservations, states and cached prefixes."""
        self.growing = 0
        """Sequences whose blocks grow with the steps."""
        self._whole = 0
        self._phase = [0] * block

    def of(self, tokens: int) -> int:
        """Blocks that ``tokens`` of one sequence fill."""
        return -(-tokens // self.block)

    def grown(self, step: int) -> int:
        """Blocks of all growing sequences after ``step`` tokens each."""
        turns, offset = divmod(step, self.block)
        phase = self._phase
        # ceil((phase + offset)/block): 0 for 0, 2 beyond one block, else 1
        beyond = sum(phase[self.block - offset + 1 :]) if offset > 1 else 0
        none = phase[0] if offset == 0 else 0
        return self._whole + self.growing * (turns + 1) + beyond - none

    def used(self, step: int) -> float:
        """All blocks in use after ``step`` tokens each."""
        return self.held + self.grown(step)

    def fits_after(self, step: int, more: float = 0.0) -> bool:
        """Whether everything fits after ``step`` steps beside ``more`` blocks."""
        return self.held + more + self.grown(step) <= self.capacity

    def grow(self, sequence: Sequence, step: int) -> None:
        """Let a sequence grow from now on."""
        sequence.born = born = sequence.context - step
        whole, phase = divmod(born, self.block)
        self._whole += whole
        self._phase[phase] += 1
        self.growing += 1

    def stop(self, sequence: Sequence) -> None:
        """A sequence no longer grows: it ended, or lost its blocks."""
        whole, phase = divmod(sequence.born, self.block)
        self._whole -= whole
        self._phase[phase] -= 1
        self.growing -= 1

    def steps_that_fit(self, step: int, most: int) -> int:
        """How many further steps fit, up to ``most``."""
        # One more block each is the least that so many steps can take beyond whole turns.
        if (
            self.held + self._whole + self.growing * ((step + most) // self.block + 2)
            <= self.capacity
        ):
            return most
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits_after(step + middle):
                low = middle
            else:
                high = middle - 1
        return low
