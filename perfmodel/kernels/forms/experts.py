"""The fused expert layer of one rank: two grouped GEMMs over the tokens that its experts got.

A wave of thread blocks computes tiles of bm rows × bn columns; each active expert's weights are
read once; sorting, gathering, activation and the weighted sum run over (token, expert) pairs, those
that other ranks compute included, whose results the kernels fill with zeros.
"""

from __future__ import annotations

import numpy as np

from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.kernels.forms.routing import TILE_ROWS, with_load
from perfmodel.operators.quantity import Array

TILE_COLUMNS = (32, 64, 128)
SOFTNESS = 12.0
"""Exponent of the soft minimum over tiles."""
ALIGNMENT = 16
US = 1e-6

PARAMETERS = (
    Parameter("start", "us", 25, 2, 300, 0.8, "fixed cost of the fused layer's kernels"),
    Parameter("ranks_start", "us", 5, 0.1, 300, 1.0, "more of it with experts on several ranks"),
    Parameter("per_128_experts", "us", 1, 0.02, 100, 1.2, "sorting and offsets per 128 experts"),
    Parameter("compute", "share", 0.7, 0.05, 1.1, 0.4, "peak FLOP/s that a full tile reaches"),
    Parameter("half_rows", "-", 16, 0.5, 400, 1.0, "tile rows at which half of it is reached"),
    Parameter("memory", "share", 0.75, 0.1, 1.3, 0.3, "device bandwidth that weights reach"),
    Parameter("block_rate", "share", 0.5, 0.02, 20, 1.0, "of an SM's 64 B/clk when a block loads"),
    Parameter("prologue", "us", 1, 0.02, 30, 1.0, "start and end of a tile"),
    Parameter("wave", "-", 0.3, 0.01, 50, 1.5, "w/(1+w): hardness of wave quantisation"),
    Parameter("overlap", "-", 2.5, 1.0, 20, 0.5, "exponent of the norm of compute and memory"),
    Parameter("misaligned_memory", "-", 1.5, 1.0, 6.0, 0.7, "slowdown off multiples of 16"),
    Parameter("misaligned_compute", "-", 1.5, 1.0, 6.0, 0.7, "slowdown off multiples of 16"),
    Parameter("hidden_passes", "-", 3, 0.05, 50, 0.8, "passes over hidden per pair of this rank"),
    Parameter("inter_passes", "-", 3, 0.05, 50, 0.8, "passes over inter/tp per pair"),
    Parameter("away", "-", 0.7, 0.01, 10, 1.0, "the same for pairs of other ranks, as a share"),
    Parameter("warm", "-", 0.3, 0.02, 1.5, 0.8, "share of L2 within which weights stay warm"),
    Parameter(
        "warm_rate", "-", 2.0, 1.0, 10, 0.5, "bandwidth of warm weights over device memory's"
    ),
)


class Experts:
    """Form of the family ``experts``.

    Shapes: tokens (all that are routed over the ranks), hidden, inter (whole expert), topk,
    experts (over all ranks), moe_tp, moe_ep, weight_bytes (per element, scales included); and
    optionally routing (see `routing`), gated (1 by default), or rows, active and tiles_* in
    place of a routing.
    """

    name = "experts-tiles"
    parameters = PARAMETERS
    regimes = ("tokens<=64", "tokens>64")

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one layer: gathering, both GEMMs, activation, weighted sum."""
        s = with_load(shapes)
        v = values
        width = s["inter"] / s["moe_tp"]
        up = _gemm(chip, v, s, width, (_matrices(s) - 1) * width, s["hidden"])
        down = _gemm(chip, v, s, width, s["hidden"], width)
        away = np.maximum(s["tokens"] * s["topk"] - s["rows"], 0.0)
        pairs = s["rows"] + v["away"] * away
        moved = 2 * pairs * (v["hidden_passes"] * s["hidden"] + v["inter_passes"] * width)
        fixed = v["start"] + v["per_128_experts"] * s["experts"] / s["moe_ep"] / 128
        fixed = fixed + np.where(s["moe_ep"] > 1, v["ranks_start"], 0.0)
        time: Array = fixed * US + up + down + moved / chip.bandwidth
        return time

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Logs of tokens, sizes, load per expert, blocks per SM and bytes over L2."""
        s = with_load(shapes)
        width = s["inter"] / s["moe_tp"]
        weights = s["active"] * _matrices(s) * s["hidden"] * width * s["weight_bytes"]
        blocks = s["tiles_64"] * np.ceil(width / 64)
        columns = np.broadcast_arrays(
            np.log(s["tokens"]),
            np.log(s["hidden"]),
            np.log(width),
            np.log(s["topk"]),
            np.log(s["experts"] / s["moe_ep"]),
            np.log(s["moe_ep"]),
            np.log(s["rows"] / s["active"]),
            np.log(s["rows"]),
            np.maximum(np.log(blocks / max(chip.sm_count, 1)), -3.0),
            np.log(weights / chip.l2_bytes),
            np.where(width % ALIGNMENT == 0, 0.0, 1.0),
        )
        return np.stack(columns, axis=-1)

    def regime(self, shapes: Shapes) -> Array:
        """0 up to 64 tokens, 1 above."""
        return np.asarray(shapes["tokens"] > 64).astype(np.intp)


def _matrices(s: Shapes) -> Array:
    """Matrices of an expert: gate, up, down; without the gate two."""
    return 2.0 + np.asarray(s.get("gated", np.asarray(1.0)))


def _gemm(chip: Chip, v: Values, s: Shapes, width: Array, columns: Array, depth: Array) -> Array:
    """Grouped GEMM of ``columns`` by ``depth``: soft minimum over tiles."""
    aligned = width % ALIGNMENT == 0
    size = s["active"] * columns * depth * s["weight_bytes"]
    warm = 1 / (1 + (size / (v["warm"] * chip.l2_bytes)) ** 4)
    memory = size * (1 - warm + warm / v["warm_rate"]) / (v["memory"] * chip.bandwidth)
    memory = memory * np.where(aligned, 1.0, v["misaligned_memory"])
    slow = np.where(aligned, 1.0, v["misaligned_compute"])
    compute = _soft_minimum(_tiles(chip, v, s, columns, depth) * slow)
    p = v["overlap"]
    time: Array = (compute**p + memory**p) ** (1 / p)
    return time


def _tiles(chip: Chip, v: Values, s: Shapes, columns: Array, depth: Array) -> Array:
    """(tiles, …) time of the tiles' arithmetic over the SMs, for each tile size."""
    rank = max(np.ndim(columns), np.ndim(depth), *(np.ndim(s[f"tiles_{r}"]) for r in TILE_ROWS))
    sm = max(chip.sm_count, 1)
    bm, bn = (np.reshape(c, (-1,) + (1,) * rank) for c in np.meshgrid(TILE_ROWS, TILE_COLUMNS))
    count = np.stack([s[f"tiles_{r}"] for r in TILE_ROWS] * len(TILE_COLUMNS))
    rate = v["compute"] / (1 + v["half_rows"] / bm) * chip.peak / sm
    # a block alone on its SM moves operands only as fast as it can have loads in flight
    wide = s["weight_bytes"]
    load = (bn * wide + bm * np.minimum(wide, 2.0)) / (v["block_rate"] * 64 * chip.clock_hz)
    per_k = np.maximum(2 * bm * bn / rate, load)
    hard = v["wave"] / (1 + v["wave"])
    x = count * np.ceil(columns / bn) / sm
    waves = np.maximum(1.0, hard * np.ceil(x) + (1 - hard) * x)
    time: Array = waves * (v["prologue"] * US + depth * per_k)
    return time


def _soft_minimum(times: Array) -> Array:
    """Soft minimum over the first axis: never above the least."""
    least = times.min(axis=0)
    soft: Array = least * ((times / least) ** -SOFTNESS).sum(axis=0) ** (-1 / SOFTNESS)
    return soft
