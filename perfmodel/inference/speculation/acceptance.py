"""Tokens that a round gives: accepted ones up to the first miss, and the target's own after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.operators.quantity import Quantity, as_quantity
from perfmodel.specs.speculation import Speculation

BISECTIONS = 60
"""Halvings of [0, 1]: to the last bit of a double."""


def sibling_rate(rate: float, children: int) -> float:
    """Chance that one of ``children`` alternatives is accepted, each at ``rate``.

    They are tried in turn, and each has the same chance after the misses before it, as in
    multi-step speculative sampling of independent draws (SpecInfer, arXiv 2305.09781):
    1 − (1 − a)^b. That is assumed: a draft's second choice is accepted less often than its first,
    so wide trees look better than they are.
    """
    return 1 - (1 - rate) ** children


def expected_tokens(rates: Sequence[float], branching: Sequence[int]) -> float:
    """Mean tokens of a round: 1 + Σ_d Π_{j ≤ d} A_j, with A_j = 1 − (1 − a_j)^{b_j}.

    Each depth is reached where every depth before it had a token accepted; the target's own
    token follows the last one. A chain has b = 1, so that A = a; with one rate its sum is
    (1 − a^{γ+1})/(1 − a) (Leviathan et al., arXiv 2211.17192, eq. 1).

    >>> round(expected_tokens([0.7] * 3, [1] * 3), 3)  # 1 + 0.7 + 0.49 + 0.343
    2.533
    >>> round(expected_tokens([0.7, 0.7], [2, 1]), 3)  # 1 + 0.91 + 0.91·0.7
    2.547
    """
    total, reached = 1.0, 1.0
    for rate, children in zip(rates, branching, strict=True):
        reached *= sibling_rate(rate, children)
        total += reached
    return total


def implied_rate(length: float, branching: Sequence[int]) -> float:
    """The rate, one for all depths, that gives ``length`` tokens per round; 0 without depth."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if expected_tokens([middle] * len(branching), branching) < length:
            low = middle
        else:
            high = middle
    return high if branching else 0.0


def common_rate(speculation: Speculation) -> float | None:
    """The one rate of all depths: stated, or implied by a measured length; None: by depth."""
    stated = speculation.acceptance
    if isinstance(stated, tuple):
        return None
    if stated is not None:
        return stated
    return implied_rate(speculation.accepted_length or 1.0, speculation.branching)


def depth_rates(speculation: Speculation, depth: int) -> tuple[float, ...]:
    """The rate at each of ``depth`` depths. Rates by depth end at the last one stated."""
    rate = common_rate(speculation)
    if rate is not None:
        return (rate,) * depth
    stated = speculation.acceptance
    return stated[:depth] if isinstance(stated, tuple) else ()


def round_tokens(speculation: Speculation) -> float:
    """Mean tokens of a round under ``speculation``: the measured length as it is, where stated."""
    if speculation.accepted_length is not None:
        return speculation.accepted_length
    return expected_tokens(depth_rates(speculation, speculation.depth), speculation.branching)


def chain_tokens(rates: Sequence[float]) -> Quantity:
    """Mean tokens of a round for each chain of 0 … len(rates) tokens, (len(rates) + 1,)."""
    return as_quantity(1 + np.concatenate([[0.0], np.cumsum(np.cumprod(rates))]))
