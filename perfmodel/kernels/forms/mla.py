"""Multi-head latent attention: one latent of 512 + 64 per key serves all heads.

Decode is absorbed: queries are taken into the latent space, and every head reads the same keys.
A prefill expands keys and values to heads of 192 and 128, or, for few new tokens, runs absorbed.
The measured calls were launched one by one: a floor of host time hides shorter kernels.

Shapes: ``batch``, ``heads`` (per GPU), ``kv_len`` or ``q_len`` with optional ``prefix_len``, and
``kv_bytes``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
BLOCK = 64
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
CAPTURED = 512
"""Sequences of a captured graph, for which FlashAttention-3 reserves splits and merges them."""
HIDE = 8.0
"""How sharply the floor hands over to the device's time: nearly a maximum."""

Kernel = Literal["flash_attn", "flashmla", "triton"]
ROWS: dict[Kernel, int] = {"flash_attn": 64, "flashmla": 64, "triton": 16}
"""Heads times new tokens of a tile."""
FIXED_SPLITS: dict[Kernel, int] = {"triton": 4}
"""vLLM's Triton kernel splits every context into four."""
ABSORBED_UNTIL: dict[Kernel, int] = {"flash_attn": 512, "flashmla": 128, "triton": 1}
"""New tokens per sequence up to which vLLM runs a prefill as absorbed decode."""

UNSEEN = 15.0
"""Microseconds assumed for a prefill call's start inside a step, which no measured row shows."""
DECODE_UNSEEN = MERGE_UNSEEN = 5.0
"""Microseconds at most for a decode call's start, and for merging its splits, inside a step.

Rows at the host's floor bound neither: fits end at 40 to 60 and up to 50. Published device times
of FlashMLA (InferSim, bench_data/mla/decode: 54 rows of H800 and H20) have calls from 21 us on;
with 5 and 5 the form meets their short ones within 15 %, with the fitted numbers it is 40 to 155 %
above them.
"""
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
    Parameter("tm", "us", 0.1, 0.001, 3.0, 1.0, "per sequence of 128 heads: reserved splits"),
)
PREFILL = (
    FLOOR,
    Parameter("td", "us", 20.0, 0.5, 400.0, 0.8, "device time beside the tiles"),
    Parameter("ec", "share", 0.6, 0.05, 1.0, 0.4, "of peak, multiplying expanded heads"),
    Parameter("ea", "share", 0.5, 0.02, 1.0, 0.5, "of peak, multiplying absorbed heads"),
    Parameter("tp", "us", 3.0, 0.05, 100.0, 0.8, "start and end of a tile of expanded heads"),
    Parameter("ta", "us", 10.0, 0.05, 100.0, 0.8, "start and end of an absorbed tile"),
    Parameter("cx", "-", 2.0, 0.05, 40.0, 0.8, "passes over expanded keys and values"),
    Parameter("w", "-", 0.5, 0.02, 50.0, 1.0, "hardness of waves: 0 smooth"),
)


@dataclass(frozen=True, slots=True)
class MlaDecode:
    """Absorbed decode; ``hosted`` keeps the measured floor of calls launched one by one."""

    kernel: Kernel = "flash_attn"
    hosted: bool = True
    name: str = "mla-decode"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """9 numbers; the last only where splits are reserved, the one before where they vary."""
        kept = len(DECODE) - {"flash_attn": 0, "flashmla": 1, "triton": 2}[self.kernel]
        return DECODE[:kept]

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
        v, us = values, MICROSECOND
        batch, keys, heads = shapes["batch"], shapes["kv_len"], shapes["heads"]
        rows = heads * column(shapes, "q_len", 1.0)
        latents = batch * keys * (LATENT + ROPE) * column(shapes, "kv_bytes", 2.0)
        queries = 2 * batch * rows * (2 * LATENT + ROPE)
        memory = (latents + queries) / (v["em"] * chip.bandwidth)
        tiles = batch * np.ceil(rows / ROWS[self.kernel])
        key = ROWS[self.kernel] * ABSORBED / (v["ec"] * chip.peak / chip.sm_count)
        fixed = FIXED_SPLITS.get(self.kernel)
        merging = v.get("ts", 0.0) if self.hosted else min(v.get("ts", 0.0), MERGE_UNSEEN)
        best = None
        for split in SPLITS if fixed is None else (fixed,):
            walked = BLOCK * np.ceil(keys / (BLOCK * split))
            load = tiles * split / chip.sm_count
            time = norm_sum(waves(load, v["w"]) * (v["tp"] * us + walked * key), memory, v["p"])
            if split > 1 and fixed is None:
                time = np.where(split * BLOCK <= keys, time + merging * us, np.inf)
            best = time if best is None else np.minimum(best, time)
        device = np.asarray(best) + _beside(v, self.hosted, DECODE_UNSEEN)
        if self.kernel == "flash_attn":
            reserved = np.where(batch <= CAPTURED, batch * heads / 128, 0.0)
            device = device + v["tm"] * us * reserved
        return _floored(device, values, self.hosted)

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Sizes in log, and the load of the chip."""
        batch, keys, heads = shapes["batch"], shapes["kv_len"], shapes["heads"]
        rows = heads * column(shapes, "q_len", 1.0)
        fill = np.log(batch * np.ceil(rows / ROWS[self.kernel]) / chip.sm_count)
        work = np.log(batch * keys * rows * ABSORBED / chip.peak / 1e-4)
        bytes_read = batch * keys * (LATENT + ROPE) * column(shapes, "kv_bytes", 2.0)
        read = np.log(bytes_read / chip.bandwidth / 1e-4)
        parts = [
            np.log(batch), np.log(keys), np.log(rows), np.maximum(fill, 0.0),
            np.maximum(work, -2.0), np.maximum(read, -2.0), 1.0 * (batch > CAPTURED),
        ]  # fmt: skip
        return np.stack(np.broadcast_arrays(*parts), axis=-1).reshape(-1, len(parts))


@dataclass(frozen=True, slots=True)
class MlaPrefill:
    """Prefill with expanded heads, or, for few new tokens per sequence, absorbed."""

    kernel: Kernel = "flash_attn"
    hosted: bool = True
    name: str = "mla-prefill"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """8 numbers."""
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
        absorbed: Flags = shapes["q_len"] <= ABSORBED_UNTIL[self.kernel]
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
        unit = np.where(absorbed, v["ta"], v["tp"]) * us + walked * key
        work = waves(batch * units / chip.sm_count, v["w"]) * unit
        total = column(shapes, "prefix_len") + q_len
        latents = batch * total * (LATENT + ROPE) * column(shapes, "kv_bytes", 2.0)
        expanded = np.where(absorbed, 0.0, 2 * batch * total * heads * (192 + 128))
        queries = 2 * batch * q_len * heads * (192 + 128)
        memory = (latents + v["cx"] * expanded + queries) / chip.bandwidth
        return _floored(work + memory + _beside(v, self.hosted, UNSEEN), values, self.hosted)

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


def _beside(values: Values, hosted: bool, unseen: float) -> float:
    """Seconds of the device beside its work.

    Calls above the host's floor show more than short ones have: under the floor nothing was seen,
    and a step takes at most ``unseen`` microseconds.
    """
    return (values["td"] if hosted else min(values["td"], unseen)) * MICROSECOND


def _floored(device: Array, values: Values, hosted: bool) -> Array:
    if not hosted:
        return np.asarray(device)
    return norm_sum(device, np.asarray(values["t0"] * MICROSECOND), HIDE)
