"""Which experts the tokens of a step go to, and how much of it falls on the busiest rank.

Popularity follows a power law of rank (Zipf): the i-th most popular expert is wanted in
proportion to i^-skew. A token takes k distinct experts, the i-th with the probability
π_i = min(1, c·i^-skew), where c makes Σ π_i = k: an expert can't be taken twice by one token, so
what a very popular one would get beyond all tokens goes to the others, as in measured tables.
Tokens choose independently. With skew 0 every π_i is k/E.

Which expert is popular has nothing to do with where it lies: experts are dealt to the ranks at
random, and the rank with the most pairs is taken in expectation over `DEALS` seeded deals. Random
differences between ranks under equal popularity are left out, and so is an engine's rebalancing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from perfmodel.operators.quantity import Array, Quantity, as_quantity, is_array

DEALS = 256
"""Seeded deals of the experts over the ranks, of which the mean is taken."""


def expected_experts(experts: int, top_k: int, tokens: Quantity, skew: float = 0.0) -> Quantity:
    """Distinct experts that ``tokens`` touch: Σ 1 − (1 − π_i)^T; uniform E·(1 − (1 − k/E)^T).

    >>> round(expected_experts(8, 2, 4), 2)  # 8·(1 − 0.75⁴)
    5.47
    """
    if skew == 0:
        return experts * (1 - (1 - top_k / experts) ** tokens)
    chances = taken(experts, top_k, skew)
    return _touched(np.ones(experts), chances, tokens)


@cache
def taken(experts: int, top_k: int, skew: float) -> Array:
    """(experts,) probability that a token takes each expert, the most popular first."""
    wanted = np.arange(1, experts + 1, dtype=np.float64) ** -skew
    # The first n are taken by every token where the rest's share leaves none of them above 1.
    for certain in range(top_k + 1):
        rest = wanted[certain:]
        scaled = (top_k - certain) * rest / rest.sum() if rest.size else rest
        if not rest.size or scaled[0] <= 1:
            break
    return np.concatenate([np.ones(certain), scaled])


def _touched(weights: Array, chances: Array, tokens: Quantity) -> Quantity:
    """Σ w_i·(1 − (1 − π_i)^T), over each different T once."""
    if not is_array(tokens):
        return float(weights @ (1 - (1 - chances) ** tokens))
    counts, where = np.unique(tokens, return_inverse=True)
    total = np.zeros(len(counts))
    for weight, chance in zip(weights, chances, strict=True):
        total += weight * (1 - (1 - chance) ** counts)
    return as_quantity(total[where].reshape(np.shape(tokens)))


@dataclass(frozen=True, slots=True)
class Busiest:
    """The rank that a step waits for."""

    over_mean: float
    """Its (token, expert) pairs over those of the mean rank."""
    here: tuple[float, ...]
    """For each expert, the share of the deals in which it lies on that rank."""
    chances: tuple[float, ...]
    """As `taken`."""

    def active(self, tokens: Quantity) -> Quantity:
        """Experts on it that get at least one of ``tokens`` tokens."""
        return _touched(np.asarray(self.here), np.asarray(self.chances), tokens)

    def tiles(self, tokens: Quantity, rows: int) -> Quantity:
        """Tiles of ``rows`` rows over those experts; the last one of each is half full."""
        total: Quantity = 0.0
        for here, chance in zip(self.here, self.chances, strict=True):
            touched = 1 - (1 - chance) ** tokens
            total = total + here * np.maximum(touched, tokens * chance / rows + 0.5 * touched)
        return total


@cache
def busiest(experts: int, top_k: int, ranks: int, skew: float) -> Busiest:
    """The busiest of ``ranks`` ranks with experts/ranks experts each; see the module."""
    chances = taken(experts, top_k, skew)
    deals = np.random.default_rng(experts).permuted(np.tile(np.arange(experts), (DEALS, 1)), axis=1)
    groups = deals.reshape(DEALS, ranks, experts // ranks)
    loads = chances[groups].sum(axis=2)
    most = loads.argmax(axis=1)
    there = np.bincount(groups[np.arange(DEALS), most].ravel(), minlength=experts) / DEALS
    over = float(loads.max(axis=1).mean()) * ranks / top_k
    return Busiest(over, tuple(there.tolist()), tuple(chances.tolist()))
