"""How long a matrix multiply takes: the best of a few tiles and splits, with whole waves.

C[m, n] = A[m, k] · B[k, n] is cut into tiles of bm × bn, each worked on by one SM; k may be split
over several SMs, whose partial sums are then added. A library picks what suits the shape, so the
time is the least over the candidates (``shared/kernel-models.md`` compares the alternatives: one
tile doubles the error, no split adds half of it).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.operators.quantity import Array

US = 1e-6
NS = 1e-9
TILES = (
    (16, 64), (32, 64), (64, 64), (64, 128), (128, 64), (128, 128), (64, 256), (128, 256),
    (256, 128),
)  # fmt: skip
"""Rows × columns of C that one SM computes at a time, as CUTLASS and cuBLAS offer them."""
SPLITS = (1, 2, 3, 4, 6, 8, 16, 32)
"""Over how many SMs the sum over k is split."""
L2_BYTES_PER_CLOCK = 64.0
"""What an SM can take from L2 in a clock on every generation since Volta."""
WRITE_COST = 1.2
"""Device-memory time of a written byte relative to a read one (free in the fit: 1.1–1.3)."""
SUM_SPEED = 4.0
"""L2 bandwidth over device bandwidth for the partial sums of a split, as fitted."""
FALL = 4.0
"""How sharply the warm share of L2 falls once the operands outgrow it."""
BLOCK = 16384
"""Shapes evaluated at a time, so that the work arrays stay in cache."""


@dataclass(frozen=True, slots=True)
class GemmForm:
    """Tiles × splits under compute, L2 and memory limits; ``m``, ``n``, ``k`` in elements."""

    input_bytes: float = 2.0
    """Bytes of an element of A as the multiply reads it."""
    weight_bytes: float = 2.0
    """Bytes of an element of B, its scales included."""
    output_bytes: float = 2.0
    quantises_input: bool = False
    """Whether the time contains the pass that quantises A from 16 bits (vLLM's measured rows do).
    A model's step prices that pass as an operator of its own: leave it out there."""
    warm: bool = True
    """Whether operands that fit L2 are found there, as in a benchmark's loop; inside a model's
    step the weights are cold."""

    @property
    def name(self) -> str:
        """What a calibration file calls the form."""
        return "gemm-tiles"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The multiply's numbers, then those of the quantisation where it is part of the time."""
        return MULTIPLY + QUANTISE if self.quantises_input else MULTIPLY

    @property
    def regimes(self) -> tuple[str, ...]:
        """Decode-like calls, where weights dominate, and the others."""
        return ("m<=64", "m>64")

    def regime(self, shapes: Shapes) -> Array:
        """0 for at most 64 rows, else 1."""
        m, _, _ = _sizes(shapes)
        return np.where(m <= 64, 0.0, 1.0)

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one call, with the sizes' broadcast shape."""
        m, n, k = _sizes(shapes)
        flat = [np.ascontiguousarray(size).ravel() for size in (m, n, k)]
        out = np.empty(flat[0].size)
        for start in range(0, out.size, BLOCK):
            part = slice(start, start + BLOCK)
            out[part] = self._block(chip, values, *(size[part] for size in flat))
        return out.reshape(m.shape)

    def _block(self, chip: Chip, values: Values, m: Array, n: Array, k: Array) -> Array:
        power = values["overlap"]
        memory = self._memory(chip, values, m, n, k) ** power
        best = np.full(m.shape, np.inf)
        for split, compute in self._compute(chip, values, m, n, k):
            time = (compute**power + memory) ** (1 / power)
            if split > 1:
                time += values["split"] * US + 8 * m * n * split / (SUM_SPEED * chip.bandwidth)
            np.minimum(best, time, out=best)
        best += values["start"] * US
        if self.quantises_input:
            best += quantise_seconds(chip, values, m, k)
        return best

    def _compute(
        self, chip: Chip, values: Values, m: Array, n: Array, k: Array
    ) -> list[tuple[int, Array]]:
        """Compute time of each split with the tile that is best for it.

        Memory time doesn't depend on the tile, so the least compute time gives the least total.
        """
        hard = values["wave"] if chip.sm_count > 1 else 0.0
        rows = {bm: np.ceil(m / bm) for bm in sorted({bm for bm, _ in TILES})}
        columns = {bn: np.ceil(n / bn) for bn in sorted({bn for _, bn in TILES})}
        best = {split: np.full(m.shape, np.inf) for split in SPLITS}
        for bm, bn in TILES:
            per_k, per_tile = self._tile(chip, values, bm, bn)
            load = rows[bm] * columns[bn] / chip.sm_count
            for split in SPLITS:
                x = load * split
                waves = x if not hard else np.maximum(1.0, hard * np.ceil(x) + (1 - hard) * x)
                time = waves * (k * (per_k / split) + per_tile)
                np.minimum(best[split], time, out=best[split])
        return list(best.items())

    def _tile(self, chip: Chip, values: Values, bm: int, bn: int) -> tuple[float, float]:
        """Seconds of a tile per element of k, and besides; a device without SMs has rate alone."""
        rate = 2 * bm * bn * chip.sm_count / (values["compute"] * chip.peak)
        if chip.sm_count <= 1:
            return rate, 0.0
        port = values["l2"] * L2_BYTES_PER_CLOCK * chip.clock_hz
        feed = (bm * self.input_bytes + bn * self.weight_bytes) / port
        per_k = _norm(5.0, rate, feed, values["step"] * NS * self.input_bytes / 2)
        return per_k, values["tile"] * US * float(np.sqrt(bm * bn / 128**2))

    def _memory(self, chip: Chip, values: Values, m: Array, n: Array, k: Array) -> Array:
        """Seconds to read the operands and write the result."""
        read = self.input_bytes * m * k + self.weight_bytes * k * n
        write = self.output_bytes * WRITE_COST * m * n
        cold = (read + write) / values["memory"]
        if not self.warm or chip.l2_bytes <= 0:
            return cold / chip.bandwidth
        kept = 1 / (1 + (read / (values["l2_share"] * chip.l2_bytes)) ** FALL)
        saved = kept * read * (1 / values["memory"] - 1 / values["l2_speed"])
        return (cold - saved) / chip.bandwidth

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Logs of the sizes and of what decides between kernels."""
        m, n, k = (size.ravel() for size in _sizes(shapes))
        return np.stack([np.log(m), np.log(n), np.log(k)], axis=1)


def quantise_seconds(chip: Chip, values: Values, m: Array, k: Array) -> Array:
    """Time to quantise A[m, k] from 16 to 8 bits: a start, a cost per row and the traffic."""
    rows = values["quantise_row"] * NS * m * (132 / chip.sm_count if chip.sm_count > 1 else 1.0)
    traffic = values["quantise_traffic"] * 3 * m * k / chip.bandwidth
    return values["quantise_start"] * US + rows + traffic


def _sizes(shapes: Shapes) -> tuple[Array, Array, Array]:
    sizes = (np.asarray(shapes[name], dtype=np.float64) for name in ("m", "n", "k"))
    m, n, k = np.broadcast_arrays(*sizes)
    return m, n, k


def _norm(power: float, *terms: float) -> float:
    """A maximum with rounded corners."""
    top = max(terms)
    return top * float(sum((term / top) ** power for term in terms)) ** (1 / power)


MULTIPLY = (
    Parameter("start", "us", 2.5, 0.3, 60, 0.5, "time of an empty multiply"),
    Parameter("compute", "share", 0.75, 0.1, 1.0, 0.3, "of the peak rate, in a full tile"),
    Parameter("memory", "share", 0.85, 0.2, 1.0, 0.15, "of the device-memory bandwidth"),
    Parameter("l2", "share", 0.8, 0.1, 3.0, 0.4, "of an SM's L2 port"),
    Parameter("step", "ns", 0.6, 0.03, 10, 0.8, "least time of a tile per 16-bit element of k"),
    Parameter("tile", "us", 0.8, 0.02, 20, 0.8, "prologue and epilogue of a 128×128 tile"),
    Parameter("wave", "share", 0.3, 0.02, 1.0, 0.8, "how much a last, partial wave costs"),
    Parameter("overlap", "-", 2.0, 1.0, 10, 0.5, "power of the norm that joins compute and memory"),
    Parameter("split", "us", 1.0, 0.05, 20, 0.8, "launch of the sum over splits"),
    Parameter("l2_share", "share", 0.4, 0.02, 2.0, 0.6, "of L2 that stays warm between calls"),
    Parameter("l2_speed", "-", 2.5, 1.0, 8.0, 0.4, "bandwidth of warm reads over the device's"),
)
QUANTISE = (
    Parameter("quantise_start", "us", 2.0, 0.1, 60, 0.7, "time of an empty quantisation"),
    Parameter("quantise_row", "ns", 3.0, 0.02, 300, 1.0, "per row, on 132 SMs"),
    Parameter("quantise_traffic", "-", 1.5, 0.2, 60, 0.8, "traffic of the pass over ideal"),
)
