"""Attention of many new tokens: tiles of query rows that walk the causal triangle.

A unit is a tile of 128 query rows (the heads that share a KV head are packed into it) over its
keys, block by block. Units fill the SMs in waves; each block costs a matrix multiplication and
exponentials. The stack writes the new keys and values beside it, in series.

Shapes: ``batch``, ``q_len`` (new tokens per sequence), ``heads``, ``kv_heads``, ``head_dim``,
``window`` (0: none), optional ``prefix_len`` (cached tokens before them) and ``kv_bytes``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.kernels.forms.attention_parts import (
    Flags,
    Kernel,
    MemoryTerm,
    column,
    norm_sum,
    waves,
    window_keys,
)
from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.operators.masks import causal_pairs
from perfmodel.operators.quantity import Array
from perfmodel.units import MICROSECOND

ROWS = 128
"""Query rows of most kernels' tiles."""
BLOCK = 64
"""Keys to which a tile's walk is rounded up."""
SPLIT = 512
"""Cached keys for which another SM is worth its merge, while SMs idle."""

SPLITTING: tuple[Kernel, ...] = ("fa3",)
"""Kernels that split a prompt's own keys too, while SMs idle; others a cached prefix alone."""

PARAMETERS = (
    Parameter("t0", "us", 10.0, 0.5, 600.0, 0.7, "fixed time of a call"),
    Parameter("t1", "us", 0.3, 0.01, 20.0, 1.0, "per doubling of the batch: its bookkeeping"),
    Parameter("ec", "share", 0.8, 0.1, 1.0, 0.1, "of peak, multiplying a full tile"),
    Parameter("ex", "-", 50.0, 2.0, 3000.0, 0.8, "scores exponentiated per clock and SM"),
    Parameter("tp", "us", 1.0, 0.02, 40.0, 0.8, "start and end of a tile at head size 128"),
    Parameter("hp", "-", 0.6, 0.1, 2.5, 0.5, "its exponent in head size"),
    Parameter("w", "-", 0.5, 0.02, 50.0, 1.0, "hardness of waves: 0 smooth"),
    Parameter("cf", "-", 1.5, 1.0, 8.0, 0.4, "a key's cost for heads of more than 256"),
    Parameter("cx", "-", 1.0, 0.1, 4.0, 0.5, "further blocks of 128 keys that a cut tile masks"),
    Parameter("em", "share", 0.8, 0.2, 1.0, 0.2, "of device bandwidth"),
    Parameter("l2", "-", 2.0, 1.0, 8.0, 0.4, "bandwidth of L2 over that of device memory"),
    Parameter("l2c", "share", 0.7, 0.05, 1.5, 0.4, "of L2 up to which a repeated read stays in"),
    Parameter("l2s", "-", 5.0, 2.0, 12.0, 0.4, "sharpness of that edge"),
    Parameter("ckv", "-", 2.0, 0.02, 12.0, 0.8, "serial passes over the new keys and values"),
    Parameter("cq", "-", 0.3, 0.01, 6.0, 1.0, "serial passes over queries and outputs"),
    Parameter("p", "-", 2.0, 1.0, 8.0, 0.5, "overlap of tiles and memory: 1 none"),
)
TRITON = (Parameter("ct", "-", 2.0, 1.0, 10.0, 0.5, "a key's cost for heads of 192, by Triton"),)


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a shape falls into tiles; every field broadcasts over the shapes."""

    rows: Array
    """Query rows of a tile."""
    units: Array
    mean_keys: Array
    """Keys that a query row sees, on average."""
    walked: Array
    """Keys that a tile walks, on average, padding included."""
    longest: Array
    """Keys that the last tile walks."""
    cut: Flags
    """Whether a window cuts."""


@dataclass(frozen=True, slots=True)
class AttentionPrefill:
    """Tiled causal attention; ``cold`` reads operands from device memory, as a model's step."""

    cold: bool = False
    kernel: Kernel = "any"
    small: bool = False
    """FlashAttention-2 on 100 KB of shared memory (compute capability 8.6, 8.9): tiles of 64 rows
    for heads of more than 64."""
    name: str = "attention-prefill"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """16 or 17 numbers; ``cx`` matters only where a window cuts."""
        return PARAMETERS + (TRITON if self._triton else ())

    @property
    def regimes(self) -> tuple[str, ...]:
        """Short calls are launch and bookkeeping, long ones tiles."""
        return ("short", "long", "windowed")

    def regime(self, shapes: Shapes) -> Array:
        """2 where a window cuts, 1 from 20 GFLOP on, else 0."""
        tiles = self._tiles(shapes)
        flops = 4 * shapes["batch"] * shapes["heads"] * shapes["head_dim"]
        flops = flops * shapes["q_len"] * tiles.mean_keys
        regime: Array = np.where(tiles.cut, 2, np.where(flops > 2e10, 1, 0))
        return regime

    @property
    def _triton(self) -> bool:
        return self.kernel in ("trtllm", "flashinfer")

    def _tiles(self, shapes: Shapes) -> Tiles:
        q_len, prefix = shapes["q_len"], column(shapes, "prefix_len")
        window = column(shapes, "window")
        share, rows = self._tile(shapes)
        units = shapes["batch"] * shapes["heads"] / share * np.ceil(share * q_len / rows)
        depth = np.minimum(q_len, np.maximum(1.0, rows / share))
        total = prefix + q_len
        cut = (window > 0) & (window < total)
        limit = np.where(window > 0, window, np.inf)
        seen = np.minimum(limit, total)
        # A cap at the last query's keys is the same as none, and keeps the arithmetic finite.
        mean = np.asarray(causal_pairs(q_len, np.minimum(prefix, seen), seen)) / q_len
        reach = np.minimum(seen + depth, total)
        walked = np.minimum(mean + (depth + 128) / 2, BLOCK * np.ceil(reach / BLOCK))
        longest = BLOCK * np.ceil(reach / BLOCK)
        return Tiles(rows, units, mean, walked, longest, cut)

    def _tile(self, shapes: Shapes) -> tuple[Array, Array]:
        """Heads that share a tile, and the tile's query rows.

        FlashAttention-3 packs the heads of a KV head, in tiles of 192 rows for heads of 64;
        FlashAttention-2 only for a single query without a window; TensorRT-LLM only in its decode
        kernel, else tiles of two times 128.
        FlashInfer packs, in tiles of 16, 64 or 128 rows (`FA2DetermineCtaTileQ`).
        """
        q_len, width = shapes["q_len"], shapes["head_dim"]
        group = shapes["heads"] / shapes["kv_heads"]
        one, single = np.ones_like(group), q_len == 1
        if self.kernel == "fa2":
            rows = np.where((width > 64) & self.small, 64.0, ROWS)
            return np.where(single & (column(shapes, "window") == 0), group, one), rows * one
        if self.kernel == "trtllm":
            return np.where(single, group, one), np.where(single, ROWS, 2 * ROWS) * one
        if self.kernel == "flashinfer":
            packed = q_len * group
            wide = np.where((packed > 64) & (width < 256), 128.0, 64.0)
            return group, np.where(packed <= 16, 16.0, wide)
        if self.kernel == "fa3":
            return group, np.where(width <= 64, 192.0, ROWS) * one
        return group, ROWS * one

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one call, broadcast over the shapes."""
        us, v = MICROSECOND, values
        tiles = self._tiles(shapes)
        batch, width, q_len = shapes["batch"], shapes["head_dim"], shapes["q_len"]
        rate = chip.peak / chip.sm_count
        key = tiles.rows * (4 * width / (v["ec"] * rate) + 1 / (v["ex"] * chip.clock_hz))
        key = key * np.where(width > 256, v["cf"], 1.0)
        if self._triton:
            key = key * np.where(width == 192, v["ct"], 1.0)
        masked = np.where(tiles.cut, v["cx"] * 128, 0.0)
        start = v["tp"] * (width / 128) ** v["hp"] * us
        prefix = column(shapes, "prefix_len")
        splittable = tiles.walked
        if self.kernel not in SPLITTING:  # and never more than a window leaves
            splittable = np.minimum(prefix, tiles.walked)
        splits = np.clip(chip.sm_count / tiles.units, 1.0, np.maximum(1.0, splittable / SPLIT))
        unit = start + (tiles.walked + masked) / splits * key
        load = tiles.units * splits / chip.sm_count
        last = start + (tiles.longest + masked) / splits * key
        work = np.maximum(waves(load, v["w"]) * unit, last)
        memory = MemoryTerm.of(chip, v, self.cold)
        row = 2 * batch * shapes["kv_heads"] * width * column(shapes, "kv_bytes", 2.0)
        keys = window_keys(prefix + q_len, column(shapes, "window"), q_len)
        queries = 4 * batch * shapes["heads"] * q_len * width
        streamed = memory.seconds(row * keys + queries)
        serial = memory.seconds(v["ckv"] * row * q_len + v["cq"] * queries)
        fixed = (v["t0"] + v["t1"] * np.log2(batch)) * us
        out: Array = fixed + serial + norm_sum(work, streamed, v["p"])
        return out

    def _copied(self, shapes: Shapes) -> Flags:
        """Where FlashAttention-2 transposes the packed heads of single queries."""
        several = (shapes["batch"] > 1) & (shapes["kv_heads"] > 1) & (self.kernel == "fa2")
        packed = (shapes["q_len"] == 1) & (shapes["heads"] > shapes["kv_heads"])
        copied: Flags = several & packed & (column(shapes, "window") == 0)
        return copied

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Sizes in log, what they mean for this chip, and flags of the kernels' known switches."""
        tiles = self._tiles(shapes)
        batch, q_len = shapes["batch"], shapes["q_len"]
        group = shapes["heads"] / shapes["kv_heads"]
        width = shapes["head_dim"]
        fill = np.log(tiles.units / chip.sm_count)
        row = 2 * batch * shapes["kv_heads"] * width * column(shapes, "kv_bytes", 2.0)
        held = np.log((row * q_len + 4 * batch * shapes["heads"] * q_len * width) / chip.l2_bytes)
        parts = [
            np.log(batch), np.log(q_len), np.log(tiles.mean_keys / q_len),
            np.log(shapes["kv_heads"]), np.log(group), np.log(width),
            np.maximum(fill, 0.0), np.minimum(fill, 0.0),
            np.maximum(held, 0.0), np.minimum(held, 0.0),
            1.0 * tiles.cut, 1.0 * (group == 1), 1.0 * (q_len == 1),
            1.0 * (width == 192), 1.0 * (width > 256), 1.0 * self._copied(shapes),
        ]  # fmt: skip
        return np.stack(np.broadcast_arrays(*parts), axis=-1).reshape(-1, len(parts))
