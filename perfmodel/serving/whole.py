"""How many whole things of varying sizes fit into a room: prompts in a step, sequences in a cache.

They come in order, and the first that doesn't fit waits and begins the next room: next-fit packing.
"""

from __future__ import annotations

from math import erf

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SMOOTH = 0.6
"""Spread of a sum of as many sizes as fit, over the mean size, from which on whole numbers no
longer show."""
NEAR = 2
"""Whole numbers on each side of ``fit`` whose chances aren't 0 or 1 below ``SMOOTH``."""
REACH = np.linspace(-4.0, 4.0, 513)
NORMAL = np.array([(1 + erf(x / 2**0.5)) / 2 for x in REACH.tolist()])
"""The normal distribution at ``REACH``."""


def whole(fit: Array, spread: float | Array) -> Array:
    """Mean number of whole things in a room of ``fit`` mean sizes; at least one.

    The first n fit with the chance that a sum of n sizes does, Φ((fit − n)/(spread·√n)), so that
    Σₙ of it is how many do on average (a renewal function; ``floor`` without spread), fit +
    (s² − 1)/2 for many. But each room begins with the one that the last had no room for, which is
    larger than most (by s² on average, as an interval that holds a given point), and so as many
    fewer fit: fit − (1 + s²)/2 for many, as a renewal process leaves (1 + s²)/2 over on average.

    Args:
        fit: the room over the mean size; any shape.
        spread: the standard deviation of sizes over their mean, of that shape or a number.
    """
    if np.all(np.asarray(spread) < 1e-6):
        return np.maximum(np.floor(fit + 1e-9), 1.0)
    middle = np.maximum(np.rint(fit), 1.0)
    count = middle + np.arange(-NEAR, NEAR + 1.0).reshape(-1, *(1,) * middle.ndim)
    lies = (fit + 1e-9 - count) / (np.maximum(spread, 1e-9) * np.sqrt(np.maximum(count, 1.0)))
    chances = np.where(count >= 1, np.interp(lies, REACH, NORMAL), 0.0)
    few = np.maximum(middle - NEAR - 1, 0.0) + chances.sum(axis=0)
    many = fit - (1 - spread**2) / 2
    result: Array = np.where(spread * np.sqrt(middle) > SMOOTH, many, few)
    return np.maximum(result - spread**2, 1.0)
