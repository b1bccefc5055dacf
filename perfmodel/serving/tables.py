"""Step times as tables that fill as they are asked for.

Attention kernels switch with the number of sequences and the length of a chunk, in stairs that
interpolation would smear: for each number of decoding sequences, and each pair of (prompts, chunk
length), one row over the cached tokens is evaluated when it first comes up, and is interpolated
in the cached tokens alone.
"""

from __future__ import annotations

from bisect import bisect_right
from math import ceil

import numpy as np

from perfmodel.serving.step_times import Chunk
from perfmodel.serving.pricing import Array, Pricer

NODES_PER_OCTAVE = 8
"""Grid points for each doubling of the cached tokens."""
BLOCK = 512
"""Token counts that are evaluated at a time."""
SHORT, SHORT_STRIDE = 256, 4
"""Cached tokens up to which the grid is even, because kernels for short contexts differ."""


def grid(longest: float) -> Array:
    """Cached tokens of the rows: evenly up to `SHORT`, then so many for each doubling."""
    even = np.arange(0.0, SHORT, SHORT_STRIDE)
    count = 2 + int(NODES_PER_OCTAVE * np.log2(max(longest / SHORT, 1.0)))
    return np.concatenate([even, np.round(np.geomspace(SHORT, max(longest, 2 * SHORT), count))])


def rounded(length: float) -> int:
    """A chunk's length, rounded up to 8 significant bits: up, as kernels fill whole tiles.

    >>> rounded(199.6), rounded(1000), rounded(1001)
    (200, 1000, 1004)
    """
    whole = max(1, ceil(length))
    step = 2 ** max(0, whole.bit_length() - 8)
    return step * -(-whole // step)


class TabulatedSteps:
    """`StepTimes` of a deployment.

    Args:
        pricer: what prices the groups of operators.
        longest: the longest context that is asked for.
    """

    tokens_per_step = 1.0
    width = 1

    def __init__(self, pricer: Pricer, longest: int) -> None:
        self._pricer = pricer
        self._cached = grid(longest)
        self._nodes: list[float] = self._cached.tolist()
        self._shared: dict[int, list[float]] = {}
        self._rows: dict[int, float] = {}
        self._fixed: dict[int, float] = {}
        self._decoding: dict[int, list[float]] = {}
        self._prompts: dict[tuple[int, int], list[float]] = {}
        self.floor_s = pricer.host_s(1)[1]

    def _shared_s(self, tokens: int) -> float:
        """What runs once over all tokens of the step."""
        block, place = divmod(tokens, BLOCK)
        values = self._shared.get(block)
        if values is None:
            counts = np.maximum(BLOCK * block + np.arange(BLOCK, dtype=np.float64), 1)
            values = self._shared[block] = np.asarray(self._pricer.shared(counts)).tolist()
        return values[place]

    def _head_s(self, rows: int) -> float:
        """Head and sampling."""
        if not rows:
            return 0.0
        value = self._rows.get(rows)
        if value is None:
            value = self._rows[rows] = float(self._pricer.head(rows))
        return value

    def _along(self, row: list[float], cached: float) -> float:
        """A row's value at ``cached`` tokens; beyond its end along its last piece."""
        nodes = self._nodes
        j = min(bisect_right(nodes, cached), len(nodes) - 1)
        low = nodes[j - 1]
        return row[j - 1] + (cached - low) / (nodes[j] - low) * (row[j] - row[j - 1])

    def _decode_row(self, sequences: int) -> list[float]:
        row = self._decoding.get(sequences)
        if row is None:
            values = self._pricer.decoding(float(sequences), self._cached)
            row = self._decoding[sequences] = np.broadcast_to(values, self._cached.shape).tolist()
        return row

    def _prompts_s(self, chunks: list[Chunk]) -> float:
        """Attention of the prompts' chunks, as equal ones of the same tokens and pairs."""
        count = len(chunks)
        size: float
        size, before = chunks[0]
        if count > 1:
            tokens = pairs = 0.0
            for new, cached in chunks:
                tokens += new
                pairs += new * (cached + new / 2)
            size = tokens / count
            before = max(pairs / tokens - size / 2, 0.0)
        key = (count, rounded(size))
        row = self._prompts.get(key)
        if row is None:
            values = self._pricer.prompts(float(count), float(key[1]), self._cached)
            row = self._prompts[key] = np.broadcast_to(values, self._cached.shape).tolist()
        return self._along(row, before)

    def _fixed_s(self, sequences: int) -> float:
        """A decode step's part that its context doesn't change."""
        value = self._shared_s(sequences) + self._head_s(sequences)
        value += float(self._pricer.host_s(sequences)[0])
        self._fixed[sequences] = value
        return value

    def decode(self, sequences: int, context: float) -> float:
        """Seconds of a step that only decodes."""
        fixed = self._fixed.get(sequences) or self._fixed_s(sequences)
        seconds = fixed + self._along(self._decode_row(sequences), context / sequences)
        return seconds if seconds > self.floor_s else self.floor_s

    def mixed(self, sequences: int, context: float, chunks: list[Chunk], ended: int) -> float:
        """Seconds of a step that decodes beside chunks of prompts."""
        tokens = sequences
        for new, _ in chunks:
            tokens += new
        seconds = self._shared_s(tokens) + self._head_s(sequences + ended)
        seconds += float(self._pricer.host_s(sequences + len(chunks))[0]) + self._prompts_s(chunks)
        if sequences:
            seconds += self._along(self._decode_row(sequences), context / sequences)
        return max(seconds, self.floor_s)

    def linear_up_to(self, sequences: int, context: float) -> float:
        """The total context at the next node of the table."""
        nodes = self._nodes
        j = bisect_right(nodes, context / sequences)
        return sequences * nodes[j] if j < len(nodes) else float("inf")
