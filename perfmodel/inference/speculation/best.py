"""The best chain or tree of a case, and the batch from which none of it pays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul

import numpy as np
from numpy.typing import NDArray

from perfmodel.inference.speculation.acceptance import (
    chain_tokens,
    common_rate,
    depth_rates,
    expected_tokens,
    round_tokens,
)
from perfmodel.inference.speculation.rounds import Rounds
from perfmodel.operators.quantity import Array, Quantity, as_quantity, is_array
from perfmodel.specs.speculation import Speculation

Flags = NDArray[np.bool_]
LONGEST = 16
"""Chains of one rate are tried up to so many tokens, or twice those stated."""
LARGEST_BATCH = 4096
"""Sequences of a replica up to which the break-even is looked for."""
COARSE, FINE = 48, 33
"""Batches evaluated at once: over the whole range, then within each gap."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best setting found; arrays where the case holds arrays."""

    tokens: Quantity
    """Drafted tokens per round; 0: plain decoding is best."""
    speedup: Quantity
    tree: tuple[int, ...] | list[tuple[int, ...]] | None
    """Children by depth, for each element of an array; None for chains."""


def _expand(value: Quantity) -> Quantity:
    return value[..., None] if isinstance(value, np.ndarray) else value


def best_setting(rounds: Rounds, sequences: Quantity, cached: Quantity, plain_s: Quantity) -> Best:
    """The chain, or the part of the stated tree, with most tokens per second at one context.

    Acceptance is the stated one; a measured length is taken as the rate that implies it.
    """
    if rounds.draft.speculation.tree is None:
        return _best_chain(rounds, sequences, cached, plain_s)
    return _best_tree(rounds, sequences, cached, plain_s)


def _best_chain(rounds: Rounds, sequences: Quantity, cached: Quantity, plain_s: Quantity) -> Best:
    s = rounds.draft.speculation
    known = common_rate(s) is None
    longest = s.depth if known else max(LONGEST, 2 * s.depth)
    lengths = np.arange(longest + 1, dtype=np.float64)
    cost = rounds.cost(_expand(sequences), _expand(cached), None, lengths).total.time_s
    gained = chain_tokens(depth_rates(s, longest)) * _expand(plain_s) / cost
    speedups = np.asarray(gained)
    best = as_quantity(speedups.argmax(axis=-1))
    return Best(int(best) if not is_array(best) else best, as_quantity(speedups.max(axis=-1)), None)


def parts_of(tree: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The tree cut at each depth and capped at each width, none of them twice; () first."""
    yield ()
    seen = set()
    for depth in range(1, len(tree) + 1):
        for width in sorted(set(tree[:depth]) | set(range(1, min(max(tree[:depth]), 8) + 1))):
            part = tuple(min(children, width) for children in tree[:depth])
            if part not in seen:
                seen.add(part)
                yield part


def with_tree(s: Speculation, tree: tuple[int, ...]) -> Speculation:
    """``s`` with another tree and the acceptance that it states."""
    rates = depth_rates(s, len(tree))
    accepted = {"acceptance": rates if tree else 0.0, "accepted_length": None}
    size = {"tree": tree, "tokens": None} if tree else {"tree": None, "tokens": 0}
    return s.model_copy(update=accepted | size)


def _best_tree(rounds: Rounds, sequences: Quantity, cached: Quantity, plain_s: Quantity) -> Best:
    found: list[tuple[tuple[int, ...], Array]] = []
    for tree in parts_of(rounds.draft.speculation.branching):
        s = with_tree(rounds.draft.speculation, tree)
        cost = replace(rounds, draft=replace(rounds.draft, speculation=s)).cost(sequences, cached)
        tokens = expected_tokens(depth_rates(s, s.depth), s.branching)
        found.append((tree, np.asarray(tokens * plain_s / cost.total.time_s)))
    speedups = np.stack(np.broadcast_arrays(*(gain for _, gain in found)))
    chosen = speedups.argmax(axis=0)
    trees = [found[index][0] for index in np.ravel(chosen)]
    nodes = np.asarray([sum(accumulate(tree, mul)) for tree in trees], dtype=np.float64)
    highest = as_quantity(speedups.max(axis=0))
    if not chosen.ndim:
        return Best(int(nodes[0]), highest, trees[0])
    return Best(as_quantity(nodes.reshape(chosen.shape)), highest, trees)


def first_unpaid(rounds: Rounds, cached: Quantity, most: Quantity) -> Quantity:
    """The smallest batch of a replica at which rounds gain nothing; NaN where there is none.

    Batches from 1 to ``most`` (at most `LARGEST_BATCH`) are tried at a growing distance, then
    those between the last that pays and the first that doesn't. Speed-ups fall with the batch
    but for steps of single kernels, which the coarse pass may jump over; with experts they have
    a dip while each new token touches new ones, and the first batch inside it is found.
    """
    tokens = round_tokens(rounds.draft.speculation)

    def pays(batches: Array) -> Flags:
        sequences = np.maximum(batches, 1.0)
        plain = rounds.plain(sequences, _expand(cached)).total.time_s
        cost = rounds.cost(sequences, _expand(cached)).total.time_s
        return np.asarray(tokens * plain > cost, dtype=bool)

    shape = np.broadcast_shapes(np.shape(most), np.shape(cached))
    top = np.broadcast_to(np.minimum(np.floor(most), LARGEST_BATCH), shape)[..., None]
    points = np.round(np.maximum(top, 1.0) ** (np.arange(COARSE) / (COARSE - 1)))
    low, high = _bracket(points, pays(points))
    while np.any(high - low > 1):
        steps = np.arange(FINE) / (FINE - 1)
        gap = np.nan_to_num(high - low, nan=0.0)
        points = low[..., None] + np.ceil(gap[..., None] * steps)
        narrowed = _bracket(points, np.logical_or(points <= low[..., None], pays(points)))
        low, high = narrowed[0], np.where(np.isnan(high), np.nan, narrowed[1])
    return as_quantity(np.where(top[..., 0] >= 1, high, np.nan))


def _bracket(points: Array, paid: Flags) -> tuple[Array, Array]:
    """The last point before the first that doesn't pay (0 where that is the first), and it."""
    unpaid = ~paid
    first = unpaid.argmax(axis=-1)
    broadcast = np.broadcast_to(points, unpaid.shape)
    high = np.take_along_axis(broadcast, first[..., None], -1)[..., 0]
    before = np.maximum(first - 1, 0)
    low = np.take_along_axis(broadcast, before[..., None], -1)[..., 0]
    none = ~unpaid.any(axis=-1)
    return np.where(first == 0, high - 1, low), np.where(none, np.nan, high)
