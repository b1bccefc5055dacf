"""Whole prompts that wait for the batch beside them to shrink, and all others behind them.

Where prompts aren't split but share steps with decoding sequences, one of P tokens enters beside at
most B − P of them (B: tokens of a step). Until then none is admitted, so that of b sequences
b − (B − P) must end first: the prompt's *fall*. Prompts longer than a whole step wait for nothing:
they get one of their own size. Of several ranks all this is one's.
"""

from __future__ import annotations

import numpy as np

from perfmodel.serving.asked import Asked, Bounds
from perfmodel.serving.pricing import Array
from perfmodel.serving.roots import bisected

EVEN = 1e-6
"""Tokens over which a single length is spread, so that a density can stand for it."""


def falls(asked: Asked, bounds: Bounds, batch: Array) -> tuple[Array, Array]:
    """E[fall] and E[fall²] of the next prompt beside ``batch`` sequences, by setting.

    Lengths are taken to be even about each of their quantiles.
    """
    shares = asked.few_prompts
    edges = (shares[1:] + shares[:-1]) / 2
    low = np.append(2 * shares[0] - edges[0], edges) if len(edges) else shares
    high = np.append(edges, 2 * shares[-1] - edges[-1]) if len(edges) else shares
    above = high[:, None] * asked.prompt
    below = np.minimum(low[:, None] * asked.prompt, above - EVEN)
    wide = (above - below) / bounds.width
    least = np.clip(batch - (bounds.budget - below) / bounds.width, 0.0, batch)
    most = np.clip(batch - (bounds.budget - above) / bounds.width, 0.0, batch)
    mean = np.mean((most**2 - least**2) / (2 * wide), axis=0)
    return mean, np.mean((most**3 - least**3) / (3 * wide), axis=0)


def highest(asked: Asked, bounds: Bounds, most: Array) -> Array:
    """Sequences up to which a batch grows: there one that comes makes one end before it.

    For equal prompts B − P + 1; ``most`` where it doesn't come to that.
    """
    binds = falls(asked, bounds, most)[0] > 1
    if not np.any(binds):
        return most
    low = bisected(lambda at: falls(asked, bounds, at)[0] - 1, np.ones_like(most), most)
    return np.where(binds, np.maximum(low, 1.0), most)


def waiting(asked: Asked, bounds: Bounds, batch: Array) -> Array:
    """Sequences on average that wait outside a batch of at most ``batch`` while it falls.

    Of λ prompts in a step each falls by f, which takes f/λ steps in which f/2 wait on average;
    a fall of one costs none, as the one that comes is the one that the batch lacked.
    """
    mean, square = falls(asked, bounds, batch)
    return np.clip((square - mean) / 2, 0.0, batch - 1)
