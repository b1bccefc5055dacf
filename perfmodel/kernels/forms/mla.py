"""Multi-head latent attention: one latent of 512 + 64 per key serves all heads.

Decode is absorbed: queries are taken into the latent space, and every head reads the same keys.
A prefill expands keys and values to heads of 192 and 128, or, for few new tokens, runs absorbed.
The measured calls were launched one by one: a floor of host time hides shorter kernels.

Shapes: ``batch``, ``heads`` (per GPU), ``kv_len`` or ``q_len`` with optional ``prefix_len``, and
``kv_bytes``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.kernels.forms.attention_parts import Flags, column, norm_sum, waves
from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.operators.masks import causal_pairs
from perfmodel.operators.quantity import Array
from perfmodel.units import MICROSECOND

LATENT, ROPE = 512, 64
ABSORBED = 2 * (LATENT + ROPE) + 2 * LATENT
"""FLOPs of a head's (query, key) pair in the latent space."""
EXPANDED = 2 * (192 + 128)
"""FLOPs of a head's pair of expanded heads."""
ROWS = 64
BLOCK = 64
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
HIDE = 8.0
"""How sharply the floor hands over to the device's time: nearly a maximum."""

FLOOR = Parameter("t0", "us", 150.0, 1.0, 800.0, 0.7, "floor of a call, which hides short kernels")
DECODE = (
    FLOOR,
    Parameter("td", "us", 20.0, 0.5, 400.0, 0.8, "device time beside the walk over the keys"),
    Parameter("ec", "share", 0.6, 0.02, 1.0, 0.5, "of peak, multiplying a full tile"),
    Parameter("em", "share", 0.8, 0.1, 1.0, 0.3, "of device bandwidth"),
    Parameter("tp", "us", 5.0, 0.05, 100.0, 0.8, "start and end of a tile"),
    Parameter("w", "-", 0.5, 0.02, 50.0, 1.0, "hardness of waves: 0 smooth"),
    Parameter("p", "-", 3.0, 1.0, 8.0, 0.5, "overlap of tiles and memory: 1 none"),
    Parameter("ts", "us", 3.0, 0.05, 50.0, 0.8, "merging the splits"),
)
PREFILL = (
    FLOOR,
    Parameter("td", "us", 20.0, 0.5, 400.0, 0.8, "device time beside the tiles"),
    Parameter("ec", "share", 0.6, 0.05, 1.0, 0.4, "of peak, multiplying expanded heads"),
    Parameter("ea", "share", 0.5, 0.02, 1.0, 0.5, "of peak, multiplying absorbed heads"),
    Parameter("tp", "us", 3.0, 0.05, 100.0, 0.8, "start and end of a tile"),
    Parameter("cx", "-", 2.0, 0.05, 40.0, 0.8, "passes over expanded keys and values"),
    Parameter("w", "-", 0.5, 0.02, 50.0, 1.0, "hardness of waves: 0 smooth"),
)


def _absorbed_seconds(chip: Chip, v: Values, heads: Array, q_len: Array, tail: Absorbed) -> Array:
    """Best split of an absorbed call, without fixed times."""
    rows = heads * q_len
    tiles = tail.batch * np.ceil(rows / ROWS)
    rate = v["ec"] * chip.peak / chip.sm_count
    key = ROWS * ABSORBED / rate
    best = None
    for split in SPLITS:
        walked = BLOCK * np.ceil(tail.keys / (BLOCK * split))
        unit = v["tp"] * MICROSECOND + walked * key
        time = norm_sum(waves(tiles * split / chip.sm_count, v["w"]) * unit, tail.memory_s, v["p"])
        if split > 1:
            time = np.where(split * BLOCK <= tail.keys, time + v["ts"] * MICROSECOND, np.inf)
        best = time if best is None else np.minimum(best, time)
    return np.asarray(best)


@dataclass(frozen=True, slots=True)
class Absorbed:
    """Keys that each tile walks, and the time to bring them in."""

    batch: Array
    keys: Array
    memory_s: Array


@dataclass(frozen=True, slots=True)
class MlaDecode:
    """Absorbed decode; ``hosted`` keeps the measured floor of calls launched one by one."""

    hosted: bool = True
    name: str = "mla-decode"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """8 numbers."""
        return DECODE

    @property
    def regimes(self) -> tuple[str, ...]:
        """Short calls are at the floor."""
        return ("short", "long")

    def regime(self, shapes: Shapes) -> Array:
        """1 beyond 100 MB of latents or 100 GFLOP, else 0."""
        pairs = shapes["batch"] * shapes["kv_len"]
        long = (pairs * 1152 > 1e8) | (pairs * shapes["heads"] * ABSORBED > 1e11)
        regime: Array = np.where(long, 1, 0)
        return regime

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one call, broadcast over the shapes."""
        batch, keys, heads = shapes["batch"], shapes["kv_len"], shapes["heads"]
        q_len = column(shapes, "q_len", 1.0)
        latents = batch * keys * (LATENT + ROPE) * column(shapes, "kv_bytes", 2.0)
        rows = 2 * batch * heads * q_len * (2 * LATENT + ROPE)
        memory = (latents + rows) / (values["em"] * chip.bandwidth)
        device = _absorbed_seconds(chip, values, heads, q_len, Absorbed(batch, keys, memory))
        device = device + values["td"] * MICROSECOND
        return _floored(device, values, self.hosted)

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Sizes in log, and the load of the chip."""
        batch, keys, heads = shapes["batch"], shapes["kv_len"], shapes["heads"]
        rows = heads * column(shapes, "q_len", 1.0)
        fill = np.log(batch * np.ceil(rows / ROWS) / chip.sm_count)
        work = np.log(batch * keys * rows * ABSORBED / chip.peak / 1e-4)
        bytes_read = batch * keys * (LATENT + ROPE) * column(shapes, "kv_bytes", 2.0)
        read = np.log(bytes_read / chip.bandwidth / 1e-4)
        parts = [
            np.log(batch), np.log(keys), np.log(rows), np.maximum(fill, 0.0),
            np.maximum(work, -2.0), np.maximum(read, -2.0),
        ]  # fmt: skip
        return np.stack(np.broadcast_arrays(*parts), axis=-1).reshape(-1, len(parts))


@dataclass(frozen=True, slots=True)
class MlaPrefill:
    """Prefill with expanded heads; up to ``absorbed_until`` new tokens per sequence absorbed."""

    absorbed_until: int = 0
    hosted: bool = True
    name: str = "mla-prefill"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """7 numbers."""
        return PREFILL

    @property
    def regimes(self) -> tuple[str, ...]:
        """Short calls are at the floor."""
        return ("short", "long")

    def regime(self, shapes: Shapes) -> Array:
        """1 from 100 GFLOP of expanded heads on, else 0."""
        pairs = self._pairs(shapes)
        regime: Array = np.where(pairs * shapes["heads"] * EXPANDED > 1e11, 1, 0)
        return regime

    def _pairs(self, shapes: Shapes) -> Array:
        pairs = causal_pairs(shapes["q_len"], column(shapes, "prefix_len"))
        return np.asarray(shapes["batch"] * pairs)

    def _absorbed(self, shapes: Shapes) -> Flags:
        absorbed: Flags = shapes["q_len"] <= max(self.absorbed_until, 1)
        return absorbed

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one call, broadcast over the shapes."""
        v, us = values, MICROSECOND
        batch, q_len, heads = shapes["batch"], shapes["q_len"], shapes["heads"]
        absorbed = self._absorbed(shapes)
        mean_keys = self._pairs(shapes) / (batch * q_len)
        units = np.where(absorbed, np.ceil(heads * q_len / 64), heads * np.ceil(q_len / 128))
        per_row = np.where(absorbed, 64 * ABSORBED / v["ea"], 128 * EXPANDED / v["ec"])
        # The triangle is walked in blocks: half a tile of keys more than the pairs.
        walked = mean_keys + np.where(absorbed, np.minimum(q_len, 64), np.minimum(q_len, 128)) / 2
        key = per_row * chip.sm_count / chip.peak
        unit = v["tp"] * us + walked * key
        work = waves(batch * units / chip.sm_count, v["w"]) * unit
        total = column(shapes, "prefix_len") + q_len
        latents = batch * total * (LATENT + ROPE) * column(shapes, "kv_bytes", 2.0)
        expanded = np.where(absorbed, 0.0, 2 * batch * total * heads * (192 + 128))
        queries = 2 * batch * q_len * heads * (192 + 128)
        memory = (latents + v["cx"] * expanded + queries) / chip.bandwidth
        return _floored(work + memory + v["td"] * us, values, self.hosted)

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Sizes in log, the load of the chip, and whether the call is absorbed."""
        batch, q_len, heads = shapes["batch"], shapes["q_len"], shapes["heads"]
        pairs = self._pairs(shapes)
        work = np.log(pairs * heads * EXPANDED / chip.peak / 1e-4)
        fill = np.log(batch * np.ceil(heads * q_len / 128) / chip.sm_count)
        parts = [
            np.log(batch), np.log(q_len), np.log(pairs / (batch * q_len * q_len)), np.log(heads),
            np.maximum(work, -2.0), np.maximum(fill, 0.0), 1.0 * self._absorbed(shapes),
        ]  # fmt: skip
        return np.stack(np.broadcast_arrays(*parts), axis=-1).reshape(-1, len(parts))


def _floored(device: Array, values: Values, hosted: bool) -> Array:
    if not hosted:
        return np.asarray(device)
    return norm_sum(device, np.asarray(values["t0"] * MICROSECOND), HIDE)
