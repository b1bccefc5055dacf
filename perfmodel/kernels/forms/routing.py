"""How many tokens each expert of the heaviest rank gets: even, uniformly random or a power law.

Measured tables state a routing by name; their power law draws a weight per expert from
p(w) ∝ w^-α on [1, 0.8·tokens] (on [0.01, 2] while there are fewer pairs than experts), scales
the weights to tokens·top-k pairs, rounds, and runs the expert-parallel rank with the most pairs.
Here the draws are seeded and the mean over them is kept on a grid of token counts, so that the
same shape always gets the same load and a million shapes cost no more than a few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from perfmodel.kernels.forms.base import Shapes
from perfmodel.operators.expert_routing import busiest
from perfmodel.operators.quantity import Array

EVEN = 0.0
"""Routing code: every expert gets the same number of tokens, as far as whole numbers allow."""
UNIFORM = -1.0
"""Routing code: each token draws its experts uniformly; any positive code is a power law's α."""
TILE_ROWS = (16, 32, 64, 128)
"""Row tiles of grouped GEMM kernels."""
DRAWS = 24
STEPS_PER_OCTAVE = 4
OCTAVES = 24


@dataclass(frozen=True, slots=True)
class Load:
    """What the heaviest rank computes, in expectation."""

    rows: Array
    """(token, expert) pairs."""
    active: Array
    """Experts with at least one token."""
    tiles: tuple[Array, ...]
    """Row tiles over the active experts, for each of `TILE_ROWS`."""


def load(
    tokens: Array, topk: Array, experts: Array, ranks: Array, routing: Array, *, older: bool = False
) -> Load:
    """Load of the heaviest of ``ranks`` for each shape; arguments broadcast.

    ``older`` says how a power law's rounded counts are made to add up: see `_to_first`.
    ``experts`` counts all ranks' experts, ``tokens`` those that are routed among them.
    """
    columns = np.broadcast_arrays(*map(np.asarray, (tokens, topk, experts, ranks, routing)))
    t, k, e, n, law = (np.asarray(c, dtype=np.float64).ravel() for c in columns)
    out = _spread(t, k, e, n, uniform=law == UNIFORM)
    settings = np.stack([k, e, n, law], axis=1)[law > 0]
    for key in np.unique(settings, axis=0) if len(settings) else ():
        here = (np.stack([k, e, n, law], axis=1) == key).all(axis=1)
        top, total, parts, alpha = int(key[0]), int(key[1]), int(key[2]), float(key[3])
        out[:, here] = _interpolate(t[here], _table(top, total, parts, alpha, older))
    shape = columns[0].shape
    return Load(
        rows=out[0].reshape(shape),
        active=out[1].reshape(shape),
        tiles=tuple(part.reshape(shape) for part in out[2:]),
    )


def with_load(shapes: Shapes, *, older: bool = False) -> Shapes:
    """``shapes`` with rows, active and tiles_* added, unless they are already there."""
    if "rows" in shapes:
        return shapes
    if "skew" in shapes:
        return _with_skew(shapes)
    found = load(
        shapes["tokens"],
        shapes["topk"],
        shapes["experts"],
        shapes["moe_ep"],
        shapes.get("routing", np.asarray(EVEN)),
        older=older,
    )
    tiles = {f"tiles_{bm}": c for bm, c in zip(TILE_ROWS, found.tiles, strict=True)}
    return {**shapes, "rows": found.rows, "active": found.active, **tiles}


def _with_skew(shapes: Shapes) -> Shapes:
    """The load of a model's layer whose experts' popularity follows a power law of rank.

    All shapes are one layer's, with different tokens (`operators.expert_routing`).
    """
    experts, topk, ranks, skew = (
        float(np.ravel(shapes[name])[0]) for name in ("experts", "topk", "moe_ep", "skew")
    )
    there = busiest(int(experts), int(topk), int(ranks), skew)
    tokens = np.asarray(shapes["tokens"])
    rest = {name: value for name, value in shapes.items() if name != "skew"}
    tiles = {f"tiles_{bm}": np.maximum(there.tiles(tokens, bm), 1.0) for bm in TILE_ROWS}
    rows = np.maximum(tokens * topk / ranks * there.over_mean, 1.0)
    active = np.maximum(there.active(tokens), 1.0)
    return {**rest, "rows": rows, "active": np.minimum(active, rows), **tiles}


def _spread(t: Array, k: Array, e: Array, n: Array, *, uniform: Array) -> Array:
    """(2 + tiles, shapes) of even or uniformly random routing, in closed form."""
    rows = np.maximum(t * k / n, 1.0)  # a rank without a token isn't the heaviest
    local = np.maximum(e / n, 1.0)
    even = np.minimum(local, rows)
    active = np.where(uniform, np.clip(_touched(t, k, e) / n, 1.0, even), even)
    per_expert = rows / active
    tiles = []
    for bm in TILE_ROWS:
        whole = active * np.ceil(per_expert / bm - 1e-9)
        # the last tile of a random count is half full on average, once there are several
        random = np.maximum(active, active * (per_expert / bm + 0.5))
        tiles.append(np.where(uniform, random, whole))
    return np.stack([rows, active, *tiles])


def _touched(t: Array, k: Array, e: Array) -> Array:
    """Distinct experts of all ranks, as `operators.expert_routing.expected_experts`."""
    share = np.minimum(k / e, 1.0)
    touched: Array = e * (1 - (1 - share) ** t)
    return touched


def _interpolate(t: Array, table: Array) -> Array:
    """Rows of ``table`` at ``t`` tokens, linear in log of both."""
    at = np.clip(np.log2(np.maximum(t, 1.0)) * STEPS_PER_OCTAVE, 0, table.shape[1] - 1)
    grid = np.arange(table.shape[1])
    return np.stack([np.exp(np.interp(at, grid, row)) for row in table])


@cache
def _table(topk: int, experts: int, ranks: int, alpha: float, older: bool) -> Array:
    """(2 + tiles, grid) logs of the heaviest rank's load, over the grid of token counts."""
    grid = np.round(2.0 ** (np.arange(OCTAVES * STEPS_PER_OCTAVE + 1) / STEPS_PER_OCTAVE))
    adjust = _to_first if older else _to_least
    columns = []
    for tokens in grid:
        exact = _shares(tokens, topk, experts, alpha).reshape(DRAWS, ranks, -1) * tokens * topk
        counts = adjust(np.minimum(np.round(exact), tokens), tokens * topk)
        columns.append(_heaviest(np.minimum(counts, tokens)))
    return np.log(np.maximum.accumulate(np.stack(columns, axis=1), axis=1))


@cache
def _shares(tokens: float, topk: int, experts: int, alpha: float) -> Array:
    """(draws, experts) share of all pairs that each expert gets, before rounding."""
    few = tokens * topk <= experts
    low, high = (0.01, 2.0) if few else (1.0, max(0.8 * tokens, 1.0 + 1e-9))
    u = np.random.default_rng(experts).random((DRAWS, experts))
    if abs(alpha - 1) < 1e-6:
        weights = low * (high / low) ** u
    else:
        b = 1 - alpha
        weights = ((high**b - low**b) * u + low**b) ** (1 / b)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _to_least(counts: Array, pairs: float) -> Array:
    """Whole counts (draws, ranks, local) that add up to ``pairs``.

    What is missing goes to the ranks in turn, to the least loaded expert of each; what is too
    much is taken from the most loaded.
    """
    ranks = counts.shape[1]
    missing = pairs - counts.sum(axis=(1, 2))
    each = np.abs(missing)[:, None] // ranks + (np.arange(ranks) < np.abs(missing)[:, None] % ranks)
    add = np.where(missing[:, None] > 0, each, 0.0)
    remove = np.where(missing[:, None] < 0, each, 0.0)
    return np.maximum(-_fill(-_fill(counts, add), remove), 0.0)


def _to_first(counts: Array, pairs: float) -> Array:
    """The same by an older rule: what is missing goes to the experts in order of their load.

    Equal loads, most of them zero for few tokens, count in order of their index, so that the
    first rank gets them all.
    """
    flat = counts.reshape(len(counts), -1)
    missing = (pairs - flat.sum(axis=1))[:, None]
    rank = np.argsort(np.argsort(-flat, axis=1, kind="stable"), axis=1, kind="stable")
    whole, rest = np.divmod(np.maximum(missing, 0.0), flat.shape[1])
    flat = flat + whole + (rank < rest)
    taken = -_fill(-flat[:, None, :], np.maximum(-missing, 0.0))
    return np.maximum(taken, 0.0).reshape(counts.shape)


def _fill(counts: Array, amount: Array) -> Array:
    """Raise the lowest of ``counts`` (…, local) one by one until ``amount`` (…) is used up."""
    low = counts.min(axis=-1)
    high = low + amount + 1
    for _ in range(40):  # the highest whole level that the amount reaches
        level = np.floor((low + high) / 2)
        used = np.maximum(level[..., None] - counts, 0.0).sum(axis=-1)
        low, high = np.where(used <= amount, level, low), np.where(used <= amount, high, level)
        if (high - low <= 1).all():
            break
    filled = np.maximum(counts, low[..., None])
    rest = amount - (filled - counts).sum(axis=-1)
    rank = np.argsort(np.argsort(filled, axis=-1, kind="stable"), axis=-1, kind="stable")
    return np.asarray(filled + (rank < rest[..., None]))


def _heaviest(groups: Array) -> Array:
    """Mean over draws of rows, active experts and tiles of the rank with the most rows."""
    pick = groups[np.arange(len(groups)), groups.sum(axis=2).argmax(axis=1)]
    parts = [pick.sum(axis=1), (pick > 0).sum(axis=1)]
    parts += [np.ceil(pick / bm).sum(axis=1) for bm in TILE_ROWS]
    return np.asarray(np.maximum(np.stack([p.mean() for p in parts]), 1.0))
