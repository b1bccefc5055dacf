"""Step times as tables that fill as they are asked for.

Attention kernels switch with the number of sequences and the length of a chunk, in stairs that
interpolation would smear: for each number of decoding sequences, and each pair of (prompts, chunk
length), one row over the cached tokens is evaluated when it first comes up, and is interpolated
in the cached tokens alone, on a grid that is halved where it must be (`refine`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import ceil

import numpy as np

from perfmodel.operators.quantity import Quantity
from perfmodel.serving.nodes import grid, with_switches
from perfmodel.serving.pricing import Array, Pricer
from perfmodel.serving.refine import refined
from perfmodel.serving.step_times import Chunk

NODES_PER_OCTAVE, PROMPT_NODES_PER_OCTAVE = 8, 4
"""Grid points for each doubling of the cached tokens, of decoding sequences and of prompts."""
BLOCK = 512
"""Token counts, or rows of the head, that are evaluated at a time."""
ROWS, PROMPT_ROWS = 16, 32
"""Numbers of sequences, or lengths of a chunk, whose rows are evaluated at a time."""
SHORT_STRIDE, PROMPT_STRIDE = 4, 8
"""How far apart points for short contexts are: a chunk's own tokens are context too, so that theirs
may be further."""

MISSED = 0.003
"""Share of a step's time by which the middle between two points may be missed."""
Row = tuple[list[float], list[float]]
"""Cached tokens, and the seconds there."""


def rounded(length: float) -> int:
    """A chunk's length, rounded up to 8 significant bits: up, as kernels fill whole tiles.

    >>> rounded(199.6), rounded(1000), rounded(1001)
    (200, 1000, 1004)
    """
    whole = max(1, ceil(length))
    step: int = 2 ** max(0, whole.bit_length() - 8)
    return step * -(-whole // step)


def _block(block: int) -> Array:
    """The counts of a block; 1 for 0, which no step asks for."""
    return np.maximum(BLOCK * block + np.arange(BLOCK, dtype=np.float64), 1)


def _listed(values: Quantity, counts: Array) -> list[float]:
    listed: list[float] = np.broadcast_to(np.asarray(values), counts.shape).tolist()
    return listed


def _exact(kept: dict[int, list[float]], at: int, price: Callable[[Array], Quantity]) -> float:
    """Of a count ``at``, at least one, as ``kept`` or else as ``price`` says."""
    block, place = divmod(at, BLOCK)
    values = kept.get(block)
    if values is None:
        counts = _block(block)
        values = kept[block] = _listed(price(counts), counts)
    return values[place]


def _coarse(kept: dict[int, list[float]], tokens: int, price: Callable[[Array], Quantity]) -> float:
    """Of ``tokens``, at least one, as ``kept`` or else as ``price`` says.

    Beyond `BLOCK` tokens are rounded up to 9 significant bits, by 0.4 % at most.
    """
    step = 1 << max(0, (tokens - 1).bit_length() - 9)
    values = kept.get(step)
    if values is None:
        counts = step * np.maximum(np.arange(BLOCK + 1, dtype=np.float64), 1)
        if step > 1:  # the first half has finer steps
            counts[: BLOCK // 2] = counts[BLOCK // 2]
        values = kept[step] = _listed(price(counts), counts)
    return values[-(-tokens // step)]


def _rows(price: Callable[[Array], Quantity], nodes: Array, beside: Array) -> Iterator[Row]:
    """Rows of what ``price`` gives at ``nodes`` (lines, n), in steps of ``beside`` (lines, 1)."""

    def priced(at: Array) -> Array:
        return np.broadcast_to(np.asarray(price(at)), at.shape)

    at, values = refined(priced, nodes, beside, MISSED)
    alike = bool((at == at[0]).all())  # lines that share their nodes share one list of them
    places = [at[0].tolist()] * len(at) if alike else at.tolist()
    return zip(places, values.tolist(), strict=True)


def _along(row: Row, cached: float) -> float:
    """A row's value at ``cached`` tokens; beyond its end along its last piece."""
    nodes, values = row
    j = bisect_right(nodes, cached, 1, len(nodes) - 1)
    low, value = nodes[j - 1], values[j - 1]
    return value + (cached - low) / (nodes[j] - low) * (values[j] - value)


def decode_nodes(pricer: Pricer, longest: int, beyond: int = 0) -> Array:
    """Cached tokens at which decode steps are evaluated."""
    nodes = grid(longest, NODES_PER_OCTAVE, SHORT_STRIDE, beyond)
    return np.unique(with_switches(nodes, pricer.model, np.array([float(pricer.width)])))


class TabulatedSteps:
    """`RankTimes` of a deployment.

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
        self._cached = decode_nodes(pricer, longest, beyond)
        self._before = grid(longest, PROMPT_NODES_PER_OCTAVE, PROMPT_STRIDE, beyond)
        self._shared: dict[int, list[float]] = {}
        self._own: dict[int, list[float]] = {}
        self._exchanges: dict[int, list[float]] = {}
        self._experts: dict[int, list[float]] = {}
        self._head: dict[int, list[float]] = {}
        self._fixed: dict[int, list[float]] = {}
        self._decode: dict[str, dict[int, list[float]]] = {
            part: {} for part in ("own", "sent", "experts", "apart")
        }
        self._serial: dict[int, float] = {}
        self._decoding: dict[int, Row] = {}
        self._prompts: dict[tuple[int, int], Row] = {}
        self.floor_s = pricer.floor_s
        self._issued_from, *self._issue_s = pricer.issued_ahead()
        # Found once: a method would be bound anew in every step.
        self._price_fixed, self._price_head = pricer.fixed, pricer.head
        self._price_shared = self._exposed

    def _exposed(self, counts: Array) -> Quantity:
        return self._pricer.exposed(*self._pricer.shared(counts))

    def _uneven_s(self, tokens: int, everywhere: int) -> float:
        """Shared work of a rank with ``tokens`` of the ``everywhere`` that meet at the experts."""
        pricer = self._pricer
        whole = _coarse(self._own, tokens, lambda counts: pricer.own(counts)[0])
        exchanges = _coarse(self._exchanges, tokens, lambda counts: pricer.own(counts)[1])
        experts = _coarse(self._experts, everywhere, pricer.experts)
        return float(pricer.exposed(whole + experts, exchanges))

    def _uneven_fixed_s(self, sequences: int, everywhere: int) -> float:
        """`Pricer.fixed` of a rank with ``sequences`` of the ``everywhere`` that decode."""
        pricer, kept = self._pricer, self._decode
        whole = _exact(kept["own"], sequences, lambda n: pricer.own(n * self.width, n)[0])
        exchanges = _exact(kept["sent"], sequences, lambda n: pricer.own(n * self.width, n)[1])
        experts = _exact(kept["experts"], everywhere, self._price_experts)
        apart = _exact(kept["apart"], sequences, pricer.apart)
        return float(pricer.exposed(whole + experts, exchanges)) + apart

    def _price_experts(self, everywhere: Array) -> Quantity:
        own = np.ceil(everywhere / self._pricer.ranks)
        return self._pricer.experts(everywhere * self.width, own)

    def _serial_s(self, sequences: int) -> float:
        """The host's time."""
        value = self._serial.get(sequences)
        if value is None:
            value = self._serial[sequences] = float(self._pricer.serial_s(sequences))
        return value

    def _decode_row(self, sequences: int) -> Row:
        row = self._decoding.get(sequences)
        if row is None:
            first = sequences - (sequences - 1) % ROWS
            counts = np.arange(first, first + ROWS, dtype=np.float64)[:, None]
            fixed = np.array(
                [
                    [_exact(self._fixed, count, self._price_fixed)]
                    for count in range(first, first + ROWS)
                ]
            )
            nodes = np.tile(self._cached, (ROWS, 1))
            rows = _rows(lambda at: self._pricer.decoding(counts, at), nodes, fixed)
            self._decoding.update(enumerate(rows, first))
            row = self._decoding[sequences]
        return row

    def _decoding_s(self, sequences: int, context: float) -> float:
        """Attention of the decoding sequences."""
        return _along(self._decode_row(sequences), context / sequences)

    def _prompts_row(self, count: int, size: int) -> Row:
        """Cached tokens, and the seconds of ``count`` chunks of ``size`` after them."""
        row = self._prompts.get((count, size))
        if row is None:
            step = 2 ** max(0, size.bit_length() - 8)
            first = max(step, size - size % (PROMPT_ROWS * step))
            sizes = [rounded(first + n * step) for n in range(PROMPT_ROWS)]
            lengths = np.asarray(sizes, dtype=np.float64)
            nodes = with_switches(self._before, self._pricer.model, lengths)
            shared = np.array(
                [[_coarse(self._shared, count * length, self._price_shared)] for length in sizes]
            )
            rows = _rows(
                lambda at: self._pricer.prompts(float(count), lengths[:, None], at), nodes, shared
            )
            self._prompts.update(zip([(count, length) for length in sizes], rows, strict=True))
            row = self._prompts[count, size]
        return row

    def _prompts_s(self, chunks: list[Chunk]) -> float:
        """Attention of the prompts' chunks, as equal ones of the same tokens and pairs."""
        count = len(chunks)
        size: float
        before: float
        size, before = chunks[0]
        if count > 1:
            tokens = pairs = 0.0
            for new, cached in chunks:
                tokens += new
                pairs += new * (cached + new / 2)
            size = tokens / count
            before = max(pairs / tokens - size / 2, 0.0)
        return _along(self._prompts_row(count, rounded(size)), before)

    def decode(self, sequences: int, context: float, everywhere: int = 0) -> float:
        """Seconds of a step that only decodes; ``everywhere`` as of `RankTimes`."""
        if everywhere:
            fixed = self._uneven_fixed_s(sequences, everywhere)
        else:
            fixed = _exact(self._fixed, sequences, self._price_fixed)
        seconds = fixed + self._decoding_s(sequences, context)
        return self._stated * (seconds if seconds > self.floor_s else self.floor_s)

    def mixed(
        self, sequences: int, context: float, chunks: list[Chunk], ended: int, everywhere: int = 0
    ) -> float:
        """Seconds of a step that decodes beside chunks of prompts; as of `RankTimes`."""
        rows = tokens = sequences * self.width
        for new, _ in chunks:
            tokens += new
        if everywhere:
            seconds = self._uneven_s(tokens, everywhere)
        else:
            seconds = _coarse(self._shared, tokens, self._price_shared)
        if rows or ended:
            seconds += _exact(self._head, rows + ended, self._price_head)
        if chunks:
            seconds += self._prompts_s(chunks)
        if sequences:
            seconds += self._decoding_s(sequences, context)
        seconds += self._serial_s(sequences + len(chunks))
        seconds = max(seconds, self.floor_s)
        if tokens > self._issued_from:
            seconds = max(seconds, self._issue_s[sequences > 0])
        if sequences and self._stated > 1:
            seconds += (self._stated - 1) * self.decode(sequences, context) / self._stated
        return seconds

    def linear_up_to(self, sequences: int, context: float) -> float:
        """The total context at the next node of the table."""
        nodes, _ = self._decode_row(sequences)
        j = bisect_right(nodes, context / sequences)
        return sequences * nodes[j] if j < len(nodes) else float("inf")
