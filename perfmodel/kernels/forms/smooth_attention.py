"""Attention without tiles of a known kernel: pairs of queries and keys, and the cache's bytes.

For devices whose kernels aren't known one by one, CPUs above all; decode and prefill alike.
Shapes as of `attention_decode` (``kv_len``) or `attention_prefill` (``prefix_len``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.kernels.forms.attention_parts import column, window_keys
from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.operators.masks import causal_pairs
from perfmodel.operators.quantity import Array
from perfmodel.units import MICROSECOND

LONG = 512
"""Keys that bound the regimes."""

PARAMETERS = (
    Parameter("start", "us", 8, 0.3, 500, 0.8, "fixed time of a call, its launch included"),
    Parameter("unit", "us", 0.5, 0.001, 100, 1.5, "per head, sequence and tile of queries"),
    Parameter("compute", "share", 0.1, 0.001, 1.0, 1.5, "of the peak, multiplying pairs"),
    Parameter("score", "ns", 0.3, 0.001, 50, 1.2, "per pair and head: exponentials, copies"),
    Parameter("memory", "share", 0.5, 0.02, 1.0, 0.5, "of the bandwidth, reading the cache"),
)
HALF = Parameter("half", "-", 16, 0.1, 500, 1.0, "queries' worth of work on each key of a tile")
TILES = ((768, 256), (192, 64), (0, 32))
"""Queries of a tile from so many queries of a sequence on, in torch's kernel for CPUs."""


@dataclass(frozen=True, slots=True)
class SmoothAttention:
    """Form of ``attention_decode`` and, with ``causal``, of ``attention_prefill``."""

    causal: bool = False
    value_bytes: float = 2.0
    """Of queries and outputs."""
    name: str = "attention-smooth"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Five numbers, and a prompt's half-size."""
        return PARAMETERS + ((HALF,) if self.causal else ())

    @property
    def regimes(self) -> tuple[str, ...]:
        """Short and long contexts."""
        return ("short", "long")

    def regime(self, shapes: Shapes) -> Array:
        """1 beyond 512 keys, else 0."""
        return np.where(_sizes(shapes)[1] > LONG, 1.0, 0.0)

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one call, broadcast over the shapes."""
        v = values
        queries, total = _sizes(shapes)
        window = column(shapes, "window")
        each = np.asarray(shapes["batch"]) * shapes["heads"]
        width = np.asarray(shapes["head_dim"])
        tile = tile_of(queries) if self.causal else np.ones(())
        pairs = self._pairs(queries, total, window, tile)
        tiles = np.ceil(queries / tile) if self.causal else 1.0
        if self.causal:
            pairs = pairs * (1 + v["half"] / np.minimum(tile, queries))
        score = 4 * width / (v["compute"] * chip.peak) + v["score"] * 1e-9
        keys = window_keys(total, window, queries)
        cache = 2 * np.asarray(shapes["batch"]) * shapes["kv_heads"] * width * keys
        traffic = cache * column(shapes, "kv_bytes", 2.0)
        traffic = traffic + 2 * each * width * queries * self.value_bytes
        # Added up: where both matter a fit chose no overlap (its power went to 1).
        work = each * pairs * score + traffic / (v["memory"] * chip.bandwidth)
        return np.asarray((v["start"] + v["unit"] * each * tiles) * MICROSECOND + work)

    def _pairs(self, queries: Array, total: Array, window: Array, tile: Array) -> Array:
        """Pairs that are computed: those the mask keeps, and what a tile does beyond."""
        limit = np.where(window > 0, window, total)
        kept: Array = np.asarray(causal_pairs(queries, total - queries, limit))
        if not self.causal:
            return kept
        # The tile's queries all run over the keys of its last one.
        corners = queries * (np.minimum(tile, queries) - 1) / 2
        pairs: Array = np.minimum(kept + corners, queries * total)
        return pairs

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Logs of sequences, queries, keys, heads, their group and width."""
        del chip
        queries, total = _sizes(shapes)
        heads = np.asarray(shapes["heads"])
        parts = [np.log(np.asarray(shapes["batch"])), np.log(total), np.log(heads)]
        parts += [np.log(heads / shapes["kv_heads"]), np.log(np.asarray(shapes["head_dim"]))]
        if self.causal:
            parts.append(np.log(queries))
        return np.stack(np.broadcast_arrays(*parts), axis=-1).reshape(-1, len(parts))


def tile_of(queries: Array) -> Array:
    """Queries of a tile."""
    tile = np.zeros(np.shape(queries))
    for least, rows in TILES:
        tile = np.where((tile == 0) & (queries >= least), rows, tile)
    return tile


def _sizes(shapes: Shapes) -> tuple[Array, Array]:
    """New tokens and all tokens of a sequence."""
    queries = np.asarray(column(shapes, "q_len", 1.0), dtype=np.float64)
    if "kv_len" in shapes:
        return queries, np.asarray(shapes["kv_len"], dtype=np.float64)
    return queries, queries + column(shapes, "prefix_len")
