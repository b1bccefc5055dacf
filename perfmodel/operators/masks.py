"""How many (query, key) pairs a causal mask keeps, and how many distinct keys are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from perfmodel.operators.quantity import Quantity, clip, is_array, minimum

Branches: TypeAlias = tuple[tuple[int, int], ...]
"""New tokens of a tree: (number of them, their position less the count of cached tokens)."""


def causal_pairs(new: Quantity, cached: Quantity, window: Quantity | None = None) -> Quantity:
    """Pairs of ``new`` queries after ``cached`` tokens; each sees itself and what came before.

    Without a window: new·cached + new·(new + 1)/2. With one, query i (1-based) sees
    min(cached + i, window) keys, itself included: the first ``window − cached`` queries see all.

    >>> causal_pairs(4, 0)  # 1 + 2 + 3 + 4
    10.0
    >>> causal_pairs(4, 2, window=4)  # 3 + 4 + 4 + 4
    15.0
    """
    if window is None:
        return new * cached + new * (new + 1) / 2
    growing = clip(window - cached, 0, new)
    return growing * cached + growing * (growing + 1) / 2 + (new - growing) * window


def _floor_div(value: Quantity, by: int) -> Quantity:
    return np.floor(value / by) if is_array(value) else value // by


def _chunked_total(tokens: Quantity, chunk: int) -> Quantity:
    """Pairs of the first ``tokens`` positions when none looks past the start of its chunk."""
    whole = _floor_div(tokens, chunk)
    rest = tokens - whole * chunk
    return whole * (chunk * (chunk + 1) / 2) + rest * (rest + 1) / 2


def chunked_pairs(new: Quantity, cached: Quantity, chunk: int) -> Quantity:
    """Pairs under chunked attention (Llama-4): a query sees its own chunk up to itself.

    >>> chunked_pairs(4, 0, 2)  # 1 + 2 + 1 + 2
    6.0
    """
    return _chunked_total(cached + new, chunk) - _chunked_total(cached, chunk)


def branched(
    branches: Branches, new: Quantity, cached: Quantity, pairs: Callable[..., Quantity]
) -> Quantity:
    """Pairs of a step by its mask ``pairs(new, cached)``; in a tree, a token at a time.

    A token of a tree sees its ancestors and itself: as many keys as in a row at its position,
    whatever branches lie beside it.

    >>> branched(((1, 0), (4, 1), (8, 2)), 13, 100, causal_pairs)  # 101 + 4·102 + 8·103
    1333.0
    >>> branched((), 3, 100, causal_pairs)
    306.0
    """
    if not branches:
        return pairs(new, cached)
    total: Quantity = 0.0
    for tokens, ahead in branches:
        total = total + tokens * pairs(1, cached + ahead)
    return total


def windowed_keys(new: Quantity, cached: Quantity, window: int | None) -> Quantity:
    """Distinct keys that ``new`` queries read: all, or a window that slides over the new ones."""
    everything = cached + new
    return everything if window is None else minimum(everything, window + new - 1)


def chunked_keys(new: Quantity, cached: Quantity, chunk: int) -> Quantity:
    """Distinct keys read under chunked attention: from the first query's chunk on."""
    return cached + new - _floor_div(cached, chunk) * chunk
