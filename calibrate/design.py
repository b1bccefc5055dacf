"""Which shapes to measure or to fit on: a space-filling choice among those that can be had."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import qmc

from perfmodel.operators.quantity import Array


def choose(features: Array, count: int, *, seed: int = 0) -> NDArray[np.intp]:
    """Indices (≤ count) of rows of ``features`` (n, d) that fill their box evenly.

    A Latin hypercube over the range of each feature; each target takes the nearest row that
    isn't taken yet. The same rows come out for the same seed.
    """
    x = np.atleast_2d(features)
    if len(x) <= count:
        return np.arange(len(x))
    low, high = x.min(axis=0), x.max(axis=0)
    unit = (x - low) / np.where(high > low, high - low, 1.0)
    targets = qmc.LatinHypercube(d=x.shape[1], rng=np.random.default_rng(seed)).random(count)
    tree = cKDTree(unit)
    taken: list[int] = []
    free = np.ones(len(x), dtype=bool)
    near = min(64, len(x))
    for target in targets:
        candidates = np.atleast_1d(tree.query(target, k=near)[1])
        open_ones = [int(i) for i in candidates if free[i]]
        pick = open_ones[0] if open_ones else int(np.flatnonzero(free)[0])
        free[pick] = False
        taken.append(pick)
    return np.sort(np.asarray(taken))
