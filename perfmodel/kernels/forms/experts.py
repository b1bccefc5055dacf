"""The fused expert layer of one rank: two grouped GEMMs over the tokens that its experts got.

A wave of thread blocks computes tiles of bm rows × bn columns; each active expert's weights are
read once; sorting, gathering, activation and the weighted sum run over (token, expert) pairs, those
of other ranks' experts included: the kernels fill their results with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.kernels.forms.routing import TILE_ROWS, UNIFORM, with_load
from perfmodel.operators.quantity import Array, Quantity
from perfmodel.units import MICROSECOND

TILE_COLUMNS = (32, 64, 128)
SOFTNESS = 12.0
"""Exponent of the soft minimum over tiles."""
BLOCK_OVERLAP = 3.0
"""Exponent of the norm of a block's arithmetic and loads: smooth, so that both can be fitted."""
ALIGNMENT = 16
"""Elements: narrower kernels load 16-byte vectors only where inter/tp is a multiple of this."""
LOAD_BYTES = 64.0
"""Bytes per clock and SM from L2, the unit of ``block_rate``."""
RESULT_BYTES = 2.0
TOKENS = 64
"""Tokens that bound the regimes."""

PARAMETERS = (
    Parameter("start", "us", 25, 2, 300, 0.8, "fixed cost of the fused layer's kernels"),
    Parameter("ranks_start", "us", 5, 0.1, 300, 1.0, "more of it with experts on several ranks"),
    Parameter("per_128_experts", "us", 1, 0.02, 100, 1.2, "sorting and offsets per 128 experts"),
    Parameter("compute", "share", 0.7, 0.05, 1.1, 0.4, "peak FLOP/s that a high tile reaches"),
    Parameter("half_rows", "-", 16, 0.5, 400, 1.0, "tile rows at which half of it is reached"),
    Parameter("memory", "share", 0.75, 0.1, 1.3, 0.3, "device bandwidth that weights reach"),
    Parameter("block_rate", "share", 0.5, 0.02, 20, 1.0, "of 64 B/clk, operands of one block"),
    Parameter("prologue", "us", 1, 0.02, 30, 1.0, "start and end of a tile"),
    Parameter("wave", "-", 0.3, 0.01, 50, 1.5, "w/(1+w): hardness of wave quantisation"),
    Parameter("overlap", "-", 2.5, 1.0, 20, 0.5, "exponent of the norm of compute and memory"),
    Parameter("misaligned_memory", "-", 1.5, 1.0, 6, 0.7, "factor on reading, off multiples of 16"),
    Parameter("misaligned_compute", "-", 1.5, 1.0, 6, 0.7, "factor on tiles, off multiples of 16"),
    Parameter("hidden_passes", "-", 3, 0.05, 50, 0.8, "16-bit passes over hidden per own pair"),
    Parameter("inter_passes", "-", 3, 0.05, 50, 0.8, "16-bit passes over inter/tp per own pair"),
    Parameter("away", "-", 0.7, 0.01, 10, 1.0, "the same for a pair of another rank, as a share"),
    Parameter("warm", "-", 0.3, 0.02, 1.5, 0.8, "share of L2 within which weights stay warm"),
    Parameter("warm_rate", "-", 2.0, 1.0, 10, 0.5, "rate of warm weights over device memory's"),
)


@dataclass(frozen=True, slots=True)
class ExpertsForm:
    """Form of the family ``experts``: see `layer_shapes` for its shapes."""

    cold: bool = False
    """Weights come from device memory even if they would fit in L2, as in a model's step."""

    @property
    def name(self) -> str:
        """What a calibration file calls the form."""
        return "experts-tiles"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The fitted numbers."""
        return PARAMETERS

    @property
    def regimes(self) -> tuple[str, ...]:
        """By tokens."""
        return (f"tokens<={TOKENS}", f"tokens>{TOKENS}")

    @property
    def layer_features(self) -> tuple[int, ...]:
        """Places in `features` of what a layer is, whatever its load."""
        return (1, 2, 3, 4, 5, 10)

    def in_step(self) -> ExpertsForm:
        """The same with cold weights."""
        return replace(self, cold=True)

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one layer: gathering, both GEMMs, activation, weighted sum."""
        s, v = with_load(shapes), values
        width = s["inter"] / s["moe_tp"]
        up = self._gemm(chip, v, s, (_matrices(s) - 1) * width, s["hidden"])
        down = self._gemm(chip, v, s, s["hidden"], width)
        away = np.maximum(s["tokens"] * s["topk"] - s["rows"], 0.0)
        pairs = s["rows"] + v["away"] * away
        passes = v["hidden_passes"] * s["hidden"] + v["inter_passes"] * width
        fixed = v["start"] + v["per_128_experts"] * s["experts"] / s["moe_ep"] / 128
        fixed = fixed + np.where(s["moe_ep"] > 1, v["ranks_start"], 0.0)
        moved = RESULT_BYTES * pairs * passes / chip.bandwidth
        return np.asarray(fixed * MICROSECOND + up + down + moved)

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Logs of tokens, sizes, load per expert, blocks per SM and weights over L2."""
        s = with_load(shapes)
        width = s["inter"] / s["moe_tp"]
        blocks = s["tiles_64"] * np.ceil(width / 64)
        size = s["active"] * _matrices(s) * s["hidden"] * width * s["weight_bytes"]
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
            np.log(size / (chip.l2_bytes or 1.0)),
            np.where(width % ALIGNMENT == 0, 0.0, 1.0),
        )
        return np.stack([np.ravel(c) for c in columns], axis=-1)

    def regime(self, shapes: Shapes) -> Array:
        """0 up to 64 tokens, 1 above."""
        return np.where(np.asarray(shapes["tokens"]) > TOKENS, 1, 0)

    def _gemm(self, chip: Chip, v: Values, s: Shapes, columns: Array, depth: Array) -> Array:
        """Grouped GEMM of ``columns`` by ``depth`` per expert: tiles against reading weights."""
        aligned = (s["inter"] / s["moe_tp"]) % ALIGNMENT == 0
        size = s["active"] * columns * depth * s["weight_bytes"]
        warm: Array | float = 0.0
        if chip.l2_bytes > 0 and not self.cold:
            warm = 1 / (1 + (size / (v["warm"] * chip.l2_bytes)) ** 4)
        memory = size * (1 - warm + warm / v["warm_rate"]) / (v["memory"] * chip.bandwidth)
        memory = memory * np.where(aligned, 1.0, v["misaligned_memory"])
        tiles = _tiles(chip, v, s, columns, depth) * np.where(aligned, 1.0, v["misaligned_compute"])
        p, compute = v["overlap"], _soft_minimum(tiles)
        most = np.maximum(compute, memory)
        return np.asarray(most * ((compute / most) ** p + (memory / most) ** p) ** (1 / p))


def layer_shapes(  # noqa: PLR0913  (an expert layer has as many sizes)
    tokens: Quantity,
    *,
    hidden: Quantity,
    inter: Quantity,
    topk: Quantity,
    experts: Quantity,
    weight_bytes: float,
    moe_tp: int = 1,
    moe_ep: int = 1,
    gated: bool = True,
    routing: float = UNIFORM,
) -> Shapes:
    """Shapes of the form for a model's layer.

    Its time stands for the operators experts.quantise, gate_up_proj (or up_proj), activation,
    down_proj and sum together; router, exchanges and shared expert are apart.

    Args:
        tokens: all that are routed over the ranks, those of other replicas included.
        hidden: width of the model.
        inter: width of a whole expert, before ``moe_tp`` splits it.
        topk: experts per token.
        experts: routed experts over all ranks.
        weight_bytes: per element, scales included.
        moe_tp: ranks that split each expert.
        moe_ep: ranks that share the experts.
        gated: whether an expert has a gate: three matrices, else two.
        routing: a code of `routing`.
    """
    given = {
        "tokens": tokens,
        "hidden": hidden,
        "inter": inter,
        "topk": topk,
        "experts": experts,
        "weight_bytes": weight_bytes,
        "moe_tp": moe_tp,
        "moe_ep": moe_ep,
        "gated": float(gated),
        "routing": routing,
    }
    return with_load({name: np.asarray(size, dtype=np.float64) for name, size in given.items()})


def _matrices(s: Shapes) -> Array:
    """Matrices of an expert: gate, up, down; without the gate two."""
    return 2.0 + np.asarray(s.get("gated", np.asarray(1.0)))


def _tiles(chip: Chip, v: Values, s: Shapes, columns: Array, depth: Array) -> Array:
    """(tiles, …) time of the tiles' arithmetic over the SMs, for each tile size."""
    counts = [s[f"tiles_{rows}"] for rows in TILE_ROWS] * len(TILE_COLUMNS)
    shape = np.broadcast_shapes(*map(np.shape, (columns, depth, s["weight_bytes"], *counts)))
    bm, bn = (
        np.reshape(side, (-1,) + (1,) * len(shape))
        for side in np.meshgrid(np.asarray(TILE_ROWS), np.asarray(TILE_COLUMNS))
    )
    sm = max(chip.sm_count, 1)
    per_k = 2 * bm * bn * (1 + v["half_rows"] / bm) * sm / (v["compute"] * chip.peak)
    if chip.sm_count > 1 and chip.clock_hz > 0:
        # a block moves its operands only as fast as it can have loads in flight
        wide = s["weight_bytes"]
        moved = bn * wide + bm * np.minimum(wide, RESULT_BYTES)
        load = moved / (v["block_rate"] * LOAD_BYTES * chip.clock_hz)
        per_k = (per_k**BLOCK_OVERLAP + load**BLOCK_OVERLAP) ** (1 / BLOCK_OVERLAP)
    hard = v["wave"] / (1 + v["wave"])
    x = np.stack([np.broadcast_to(c, shape) for c in counts]) * np.ceil(columns / bn) / sm
    waves = np.maximum(1.0, hard * np.ceil(x) + (1 - hard) * x)
    return np.asarray(waves * (v["prologue"] * MICROSECOND + depth * per_k))


def _soft_minimum(times: Array) -> Array:
    """Soft minimum over the first axis: at most the least."""
    least = times.min(axis=0)
    return np.asarray(least * ((times / least) ** -SOFTNESS).sum(axis=0) ** (-1 / SOFTNESS))
