"""How long a matrix multiply takes: the best of a few tiles and splits, with whole waves.

C[m, n] = A[m, k] · B[k, n] is cut into tiles of bm × bn, each worked on by one SM; k may be split
over several SMs, whose partial sums are then added. A library picks what suits the shape, so the
time is the least over the candidates (``shared/kernel-models.md`` compares the alternatives: one
tile doubles the error, no split adds half of it).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.kernels.forms.gemm_tiles import LIBRARIES, Tile
from perfmodel.operators.quantity import Array

US = 1e-6
NS = 1e-9
L2_BYTES_PER_CLOCK = 64.0
"""What an SM can take from L2 in a clock on every generation since Volta."""
SUM_SPEED = 4.0
"""L2 bandwidth over device bandwidth for the partial sums of a split, as fitted."""
FALL = 4.0
"""How sharply the warm share falls once operands and result outgrow L2."""
QUANTISE_CHUNK = 2048
"""Elements of a row that a block of vLLM's quantisation kernel takes at a time."""
HOST_POWER = 8.0
"""How sharply the host's time gives way to the device's."""
BLOCK = 4096
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
    waits_for_host: bool = False
    """Whether a call lasts at least as long as the host takes to launch it, as in the measured
    block-wise FP8 rows (55 to 350 µs); a CUDA graph leaves that away."""
    library: str = "cublas"
    """Whose tiles: a name of `LIBRARIES`."""
    warm: bool = True
    """Whether operands that fit L2 are found there, as in a benchmark's loop; inside a model's
    step the weights are cold."""

    def in_step(self) -> GemmForm:
        """The same multiply inside a model's step: cold, launched by a graph, its input ready."""
        return replace(self, warm=False, quantises_input=False, waits_for_host=False)

    @property
    def name(self) -> str:
        """What a calibration file calls the form."""
        return "gemm-tiles"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The multiply's numbers, then those of the parts that the time contains."""
        split = SPLIT if len(LIBRARIES[self.library].splits) > 1 else ()
        quantise = QUANTISE if self.quantises_input else ()
        host = HOST if self.waits_for_host else ()
        return MULTIPLY + split + WARM * self.warm + quantise + host

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
        if self.waits_for_host:
            odd = np.where(m % 4 > 0, values["host_odd"], 0.0)
            host = (values["host"] + odd) * US
            np.power(best**HOST_POWER + host**HOST_POWER, 1 / HOST_POWER, out=best)
        return best

    def _compute(
        self, chip: Chip, values: Values, m: Array, n: Array, k: Array
    ) -> list[tuple[int, Array]]:
        """Compute time of each split with the tile that is best for it.

        Memory time doesn't depend on the tile, so the least compute time gives the least total.
        """
        library = LIBRARIES[self.library]
        splits = np.asarray(library.splits, dtype=np.float64)[:, None]
        best = np.full((len(splits), m.size), np.inf)
        for tile in library.tiles:
            per_k, per_tile = self._tile(chip, values, tile)
            load = _tiles(tile, m, n) / chip.sm_count
            time = _waves(chip, values, load * splits) * (k * (per_k / splits) + per_tile)
            if tile.always:
                np.minimum(best, time, out=best)
            else:
                np.copyto(best, time, where=_taken(tile, m, n))
        return list(zip(library.splits, best, strict=True))

    def _tile(self, chip: Chip, values: Values, tile: Tile) -> tuple[float, float]:
        """Seconds of a tile per element of k, and besides; a device without SMs has rate alone."""
        area = tile.rows * tile.columns
        rate = 2 * area * chip.sm_count / (values["compute"] * tile.speed * chip.peak)
        if chip.sm_count <= 1:
            return rate, 0.0
        port = values["l2"] * L2_BYTES_PER_CLOCK * chip.clock_hz
        feed = (tile.rows * self.input_bytes + tile.columns * self.weight_bytes) / port
        per_k = _norm(5.0, rate, feed, values["step"] * NS * self.input_bytes / 2)
        return per_k, values["tile"] * US * math.sqrt(area / 128**2)

    def _memory(self, chip: Chip, values: Values, m: Array, n: Array, k: Array) -> Array:
        """Seconds to read the operands and write the result."""
        read = self.input_bytes * m * k + self.weight_bytes * k * n
        write = self.output_bytes * m * n
        time = (read / values["memory"] + write / values["write"]) / chip.bandwidth
        if not self.warm or chip.l2_bytes <= 0:
            return np.asarray(time)
        kept = 1 / (1 + ((read + write) / (values["l2_share"] * chip.l2_bytes)) ** FALL)
        gain = values["l2_gain"]
        return time * (1 - kept * gain / (1 + gain))

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Logs of sizes, tiles per SM, tile rows and bytes; the fill of rows; 1 for a vector."""
        m, n, k = (size.ravel() for size in _sizes(shapes))
        rows = self._tile_rows(m, n)
        load = np.ceil(m / 128) * np.ceil(n / 128) / chip.sm_count
        fill = np.log(np.ceil(m / rows) * rows / m)
        traffic = self.input_bytes * m * k + self.weight_bytes * k * n + self.output_bytes * m * n
        logs = [np.log(size) for size in (m, n, k, load, rows, traffic)]
        return np.stack([*logs, fill, self._vector(m)], axis=1)

    def _vector(self, m: Array) -> Array:
        """1 where a library that picks freely may run a matrix-vector kernel, else 0."""
        picks = LIBRARIES[self.library].picks
        return np.where(m <= 1, 1.0, 0.0) if picks else np.zeros(m.shape)

    def _tile_rows(self, m: Array, n: Array) -> Array:
        """Rows of the tile (with its cluster) that a shape takes, or what 16 to 128 fit it."""
        rows = np.clip(2.0 ** np.ceil(np.log2(m)), 16, 128)
        for tile in LIBRARIES[self.library].tiles:
            if not tile.always:
                rows = np.where(_taken(tile, m, n), tile.rows * tile.grid_rows, rows)
        return rows


def quantise_seconds(chip: Chip, values: Values, m: Array, k: Array) -> Array:
    """Time to quantise A[m, k] from 16 to 8 bits: a start, a cost per row and the traffic."""
    per_row = values["quantise_row"] + values["quantise_chunk"] * np.ceil(k / QUANTISE_CHUNK)
    rows = per_row * NS * m * (132 / chip.sm_count if chip.sm_count > 1 else 1.0)
    traffic = 3 * m * k / (values["memory"] * chip.bandwidth)
    return values["quantise_start"] * US + np.maximum(rows, traffic)


def _tiles(tile: Tile, m: Array, n: Array) -> Array:
    """How many tiles cover C, whole clusters of them."""
    rows = np.ceil(m / (tile.rows * tile.grid_rows)) * tile.grid_rows
    columns = np.ceil(n / (tile.columns * tile.grid_columns)) * tile.grid_columns
    return np.asarray(rows * columns)


def _taken(tile: Tile, m: Array, n: Array) -> NDArray[np.bool_]:
    """Where the library takes ``tile``."""
    return (m > tile.m_over) & (m <= tile.m_to) & (n > tile.n_over) & (n <= tile.n_to)


def _waves(chip: Chip, values: Values, load: Array) -> Array:
    """Rounds of tiles, with ``load`` tiles for each SM: between ``load`` and its ceiling."""
    if chip.sm_count <= 1:
        return load
    hard = values["wave"] / (1 + values["wave"])
    return np.maximum(1.0, hard * np.ceil(load) + (1 - hard) * load)


def _sizes(shapes: Shapes) -> tuple[Array, Array, Array]:
    sizes = (np.asarray(shapes[name], dtype=np.float64) for name in ("m", "n", "k"))
    m, n, k = np.broadcast_arrays(*sizes)
    return m, n, k


def _norm(power: float, *terms: float) -> float:
    """A maximum with rounded corners."""
    top = max(terms)
    total = math.fsum((term / top) ** power for term in terms)
    return top * math.pow(total, 1 / power)


MULTIPLY = (
    Parameter("start", "us", 2.5, 0.3, 60, 0.5, "time of an empty multiply"),
    Parameter("compute", "share", 0.75, 0.1, 1.0, 0.3, "of the peak rate, in a full tile"),
    Parameter("memory", "share", 0.85, 0.2, 1.0, 0.15, "of the device-memory bandwidth"),
    Parameter("write", "share", 0.75, 0.2, 1.0, 0.2, "of the bandwidth, for the result"),
    Parameter("l2", "share", 0.8, 0.1, 3.0, 0.4, "of an SM's L2 port"),
    Parameter("step", "ns", 0.6, 0.03, 10, 0.8, "least time of a tile per 16-bit element of k"),
    Parameter("tile", "us", 0.8, 0.02, 20, 0.8, "prologue and epilogue of a 128×128 tile"),
    Parameter("wave", "-", 0.4, 0.02, 30, 0.8, "hardness w: a share w/(1+w) of a last wave counts"),
    Parameter("overlap", "-", 2.0, 1.0, 10, 0.5, "power of the norm that joins compute and memory"),
)
SPLIT = (Parameter("split", "us", 1.0, 0.05, 20, 0.8, "launch of the sum over splits"),)
WARM = (
    Parameter("l2_share", "share", 0.4, 0.02, 2.0, 0.6, "of L2 that stays warm between calls"),
    Parameter(
        "l2_gain", "-", 0.5, 0.005, 8.0, 1.0, "how much faster warm bytes come than cold ones"
    ),
)
HOST = (
    Parameter("host", "us", 100, 5, 1000, 0.7, "least time of a call"),
    Parameter("host_odd", "us", 10, 0.1, 500, 1.0, "more of it where m isn't a multiple of 4"),
)
QUANTISE = (
    Parameter("quantise_start", "us", 2.0, 0.1, 60, 0.7, "time of an empty quantisation"),
    Parameter("quantise_row", "ns", 3.0, 0.02, 300, 1.0, "per row, on 132 SMs"),
    Parameter("quantise_chunk", "ns", 2.0, 0.02, 300, 1.0, "per 2,048 elements, on 132 SMs"),
)
