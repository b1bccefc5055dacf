"""A learned correction on top of a form: the mean of a Gaussian process on its log residual.

The process has mean zero, so the correction fades to nothing outside the measured range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.operators.quantity import Array

BLOCK = 64
"""Rows priced at a time, the last filled up: all take the same path to the last bit, in cache and
on one thread (larger products wake threads that spin for more CPU time than they save)."""


@dataclass(frozen=True, slots=True)
class Residual:
    """Support points (n, d) with their weights (n,), under a Matérn-5/2 kernel."""

    points: Array
    """Features of the support, divided by ``lengths``."""
    weights: Array
    lengths: Array
    """Distance in each feature over which the correction changes."""
    variance: float

    def correction(self, features: Array) -> Array:
        """Log correction (m,) at ``features`` (m, d): measured ≈ form · exp(correction)."""
        scaled = np.atleast_2d(features) / self.lengths
        count = len(scaled)
        scaled = np.vstack([scaled, np.zeros((-count % BLOCK, scaled.shape[1]))])
        out = np.empty(len(scaled))
        for start in range(0, len(scaled), BLOCK):
            part = scaled[start : start + BLOCK]
            out[start : start + BLOCK] = self.variance * (matern(part, self.points) @ self.weights)
        return out[:count]


def distances(a: Array, b: Array) -> Array:
    """√5 times the distance (m, n) between rows of ``a`` (m, d) and ``b`` (n, d)."""
    square = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * (a @ b.T)
    distance: Array = np.sqrt(5 * np.maximum(square, 0.0))
    return distance


def matern(a: Array, b: Array) -> Array:
    """Matérn-5/2 correlations (m, n) of rows of ``a`` (m, d) and ``b`` (n, d) at unit length."""
    distance = distances(a, b)
    correlation: Array = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return correlation
