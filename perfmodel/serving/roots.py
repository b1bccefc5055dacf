"""Roots of rising functions, for many settings at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from perfmodel.serving.pricing import Array

HALVINGS = 26
"""Of the interval that a root lies in: to 1e-8 of it."""


def bisected(excess: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """The root of a rising function on (low, high), from below; ``high`` where it has none."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beyond = excess(middle) > 0
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return low
