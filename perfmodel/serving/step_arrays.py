"""Step times for many settings at once: the groups of `pricing` as tables read by arrays.

The mean batch of a steady state is no whole number: between whole numbers of sequences, tokens and
rows the times are interpolated, as a batch that goes up and down passes over the kernels' stairs.
At whole numbers and the grid's contexts they are those of `tables.TabulatedSteps` (tested).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from perfmodel.serving.pricing import Array, Pricer
from perfmodel.serving.tables import decode_nodes

BLOCK = 256
"""Whole numbers that are evaluated at a time."""
ROWS = 16
"""Numbers of decoding sequences whose rows are evaluated at a time."""


class ArraySteps(Protocol):
    """Seconds of steps, for arrays that broadcast."""

    tokens_per_step: float
    """Tokens that a decoding sequence gains in a step."""
    width: int
    """Tokens that a decoding sequence puts into a step."""

    def decode(self, sequences: Array, each: Array) -> Array:
        """A step of ``sequences`` that decode, with ``each`` cached tokens."""

    def attention(self, count: Array, new: Array, cached: Array) -> Array:
        """Attention and recurrences of ``count`` chunks of ``new`` tokens after ``cached``."""

    def mixed(
        self, sequences: Array, each: Array, tokens: Array, attention_s: Array, prompts: Array
    ) -> Array:
        """A step that decodes beside ``tokens`` of ``prompts`` prompts.

        Without tokens: the decode step. ``attention_s``: that of the prompts' chunks.
        """


class RankArrays(ArraySteps, Protocol):
    """Of one rank, beside others that may have more or less to do."""

    def decode(self, sequences: Array, each: Array, everywhere: Array | None = None) -> Array:
        """As of `ArraySteps`; ``everywhere``: sequences on all ranks; None: each has as many."""

    def mixed(
        self, sequences: Array, each: Array, tokens: Array, attention_s: Array, prompts: Array,
        everywhere: Array | None = None,
    ) -> Array:  # fmt: skip
        """As of `ArraySteps`; ``everywhere``: tokens on all ranks; None: each has as many."""


Whole = NDArray[np.int64]


def _touched(*indices: Whole) -> Whole:
    """The different values of small whole numbers, in order; sorting all would cost more."""
    seen = np.zeros(max(int(index.max(initial=0)) for index in indices) + 1, dtype=bool)
    for index in indices:
        seen[index] = True
    return np.flatnonzero(seen)


class Line:
    """A function of a whole number, evaluated in blocks as they are asked for."""

    def __init__(self, price: Callable[[Array], object], at_zero: float | None = None) -> None:
        self._price = price
        self._at_zero = at_zero
        self._values = np.empty(0)
        self._filled = np.empty(0, dtype=bool)

    def __call__(self, at: Array) -> Array:
        """The values at any numbers from 0 on, interpolated between whole ones."""
        low = np.floor(at)
        index = low.astype(np.int64)
        self._fill(_touched(index // BLOCK, (index + 1) // BLOCK))
        first = self._values[index]
        result: Array = first + (at - low) * (self._values[index + 1] - first)
        return result

    def _fill(self, blocks: Whole) -> None:
        count = int(blocks[-1]) + 1
        if count > len(self._filled):
            more = count - len(self._filled)
            self._filled = np.concatenate([self._filled, np.zeros(more, dtype=bool)])
            self._values = np.concatenate([self._values, np.zeros(more * BLOCK)])
        for block in blocks[~self._filled[blocks]].tolist():
            counts = BLOCK * block + np.arange(BLOCK, dtype=np.float64)
            values = np.broadcast_to(np.asarray(self._price(np.maximum(counts, 1.0))), BLOCK)
            place = slice(BLOCK * block, BLOCK * (block + 1))
            self._values[place] = values
            self._filled[block] = True
            if block == 0 and self._at_zero is not None:
                self._values[0] = self._at_zero


class Plane:
    """The time of decoding sequences over their number and context, row by row as asked for."""

    def __init__(self, price: Callable[[Array, Array], object], nodes: Array) -> None:
        self._price = price
        self._nodes = nodes
        self._rows = np.zeros((1, len(nodes)))
        self._filled = np.ones(1, dtype=bool)
        """Of row 0, which costs nothing, and of each block of rows after it."""

    def __call__(self, sequences: Array, each: Array) -> Array:
        """The values, interpolated in both; beyond the last context along the last piece."""
        low = np.floor(sequences)
        row = low.astype(np.int64)
        # Row n lies in block (n − 1)//ROWS + 1; row 0 in block 0.
        self._fill(_touched((row - 1) // ROWS + 1, row // ROWS + 1))
        nodes = self._nodes
        j = np.minimum(np.searchsorted(nodes, each, side="right"), len(nodes) - 1)
        share = (each - nodes[j - 1]) / (nodes[j] - nodes[j - 1])
        at = self._along(row, j, share)
        result: Array = at + (sequences - low) * (self._along(row + 1, j, share) - at)
        return result

    def _along(self, row: Whole, j: Whole, share: Array) -> Array:
        first = self._rows[row, j - 1]
        result: Array = first + share * (self._rows[row, j] - first)
        return result

    def _fill(self, blocks: Whole) -> None:
        count = int(blocks[-1]) + 1
        if count > len(self._filled):
            more = count - len(self._filled)
            self._filled = np.concatenate([self._filled, np.zeros(more, dtype=bool)])
            self._rows = np.concatenate([self._rows, np.zeros((more * ROWS, len(self._nodes)))])
        for block in blocks[~self._filled[blocks]].tolist():
            first = 1 + ROWS * (block - 1)
            counts = np.arange(first, first + ROWS, dtype=np.float64)[:, None]
            self._rows[first : first + ROWS] = np.asarray(self._price(counts, self._nodes))
            self._filled[block] = True


class PricedArrays:
    """`RankArrays` of a deployment.

    Args:
        pricer: what prices the groups of operators.
        longest: the longest context that is usual.
        beyond: the longest that may come up.
    """

    def __init__(self, pricer: Pricer, longest: int, beyond: int = 0) -> None:
        self._pricer = pricer
        self.tokens_per_step = pricer.tokens_per_step
        self.width = pricer.width
        self._stated = 1 + (pricer.stated_draft or 0.0)
        self._decoding = Plane(pricer.decoding, decode_nodes(pricer, longest, beyond))
        self._fixed = Line(pricer.fixed)
        self._shared = Line(lambda tokens: pricer.exposed(*pricer.shared(tokens)))
        self._own = Line(lambda tokens: pricer.own(tokens)[0])
        self._exchanges = Line(lambda tokens: pricer.own(tokens)[1])
        self._experts = Line(pricer.experts, at_zero=0.0)
        self._decode_own = Line(lambda n: pricer.own(n * self.width, n)[0])
        self._decode_exchanges = Line(lambda n: pricer.own(n * self.width, n)[1])
        self._decode_experts = Line(self._price_experts, at_zero=0.0)
        self._apart = Line(pricer.apart)
        self._head = Line(pricer.head, at_zero=0.0)
        self._serial = Line(pricer.serial_s)
        self._floor_s = pricer.floor_s
        self._issued_from, *self._issue_s = pricer.issued_ahead()

    def _price_experts(self, everywhere: Array) -> object:
        """Of so many decoding sequences on all ranks."""
        own = np.ceil(everywhere / self._pricer.ranks)
        return self._pricer.experts(everywhere * self.width, own)

    def _fixed_s(self, sequences: Array, everywhere: Array | None) -> Array:
        if everywhere is None:
            return self._fixed(sequences)
        whole = self._decode_own(sequences) + self._decode_experts(everywhere)
        shared = self._pricer.exposed(whole, self._decode_exchanges(sequences))
        return np.asarray(shared + self._apart(sequences))

    def _shared_s(self, tokens: Array, everywhere: Array | None) -> Array:
        if everywhere is None:
            return self._shared(tokens)
        whole = self._own(tokens) + self._experts(everywhere)
        return np.asarray(self._pricer.exposed(whole, self._exchanges(tokens)))

    def decode(self, sequences: Array, each: Array, everywhere: Array | None = None) -> Array:
        """A step that decodes; ``everywhere`` as of `RankArrays`."""
        seconds = self._fixed_s(sequences, everywhere) + self._decoding(sequences, each)
        result: Array = self._stated * np.maximum(seconds, self._floor_s)
        return result

    def attention(self, count: Array, new: Array, cached: Array) -> Array:
        """Of prompts' chunks."""
        shape = np.broadcast_shapes(count.shape, new.shape, cached.shape)
        return np.broadcast_to(np.asarray(self._pricer.prompts(count, new, cached)), shape)

    def _beside(self, sequences: Array, tokens: Array, everywhere: Array | None) -> Array | None:
        """Sequences on all ranks, where a rank has ``sequences``, and ``tokens`` of prompts."""
        if everywhere is None:
            return None
        return np.where(tokens > 0, self._pricer.ranks * sequences, everywhere / self.width)

    def mixed(
        self, sequences: Array, each: Array, tokens: Array, attention_s: Array, prompts: Array,
        everywhere: Array | None = None,
    ) -> Array:  # fmt: skip
        """A step that decodes beside prompts; as of `RankArrays`."""
        rows = sequences * self.width
        alone = self.decode(sequences, each, self._beside(sequences, tokens, everywhere))
        shared = self._shared_s(rows + tokens, everywhere)
        seconds = shared + self._head(rows + prompts) + attention_s
        seconds = seconds + self._decoding(sequences, each) + self._serial(sequences + prompts)
        seconds = np.maximum(seconds, self._floor_s)
        eager = rows + tokens > self._issued_from
        issue_s = np.where(sequences > 0, self._issue_s[1], self._issue_s[0])
        seconds = np.where(eager, np.maximum(seconds, issue_s), seconds)
        drafts = np.minimum(sequences, 1.0) * (self._stated - 1) / self._stated * alone
        result: Array = np.where(tokens > 0, seconds + drafts, alone)
        return result


class LockstepArrays:
    """As `lockstep.LockstepSteps`: of ``replicas`` ranks that wait for each other.

    Args:
        one: steps of one rank.
        replicas: ranks.
        budget: tokens of one rank's step; what is more on the fullest one takes further steps,
            charged without what the decoding sequences alone take.
    """

    def __init__(self, one: RankArrays, replicas: int, budget: float = inf) -> None:
        self._one = one
        self._replicas = replicas
        self._budget = budget
        self.tokens_per_step = one.tokens_per_step
        self.width = one.width

    def _share(self, count: Array) -> Array:
        low = np.floor(count)
        first = np.ceil(low / self._replicas)
        result: Array = first + (count - low) * (np.ceil((low + 1) / self._replicas) - first)
        return result

    def decode(self, sequences: Array, each: Array) -> Array:
        """A step that decodes."""
        return self._one.decode(self._share(sequences), each, sequences)

    def attention(self, count: Array, new: Array, cached: Array) -> Array:
        """Of the fullest rank's chunks."""
        return self._one.attention(np.maximum(self._share(count), 1.0), new, cached)

    def mixed(
        self, sequences: Array, each: Array, tokens: Array, attention_s: Array, prompts: Array
    ) -> Array:
        """A step that decodes beside prompts, or the steps that the fullest rank's budget makes.

        Tokens of no prompt that ends are a chunk of one, on one rank.
        """
        beside, ends = self._share(sequences), self._share(prompts)
        own = tokens * np.where(prompts > 0, ends / np.maximum(prompts, 1e-9), 1.0)
        steps = np.maximum(own / np.maximum(self._budget - beside * self.width, 1.0), 1.0)
        everywhere = sequences * self.width + tokens / steps
        one = self._one.mixed(
            beside, each, own / steps, attention_s / steps, ends / steps, everywhere
        )
        if np.all(steps == 1):
            return one
        alone = np.where(sequences > 0, self.decode(sequences, each), 0.0)
        return np.asarray(one + (steps - 1) * (one - alone))
