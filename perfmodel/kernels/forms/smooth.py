"""Matrix multiplies without tiles: arithmetic and traffic that grow smoothly with the shape.

For devices whose library isn't known tile by tile, CPUs above all: a dozen rows fit them. A
product C[m, n] = A[m, k] · B[k, n] computes at a share of the peak that thin shapes don't reach,
and reads its weights at a share of the bandwidth; the two overlap in part.

The half-sizes say where a side costs twice its arithmetic. The one of m is what the library does
with each weight whatever m is: unpacking, transposing, packing for its inner loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.kernels.forms.attention_parts import norm_sum
from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.operators.quantity import Array
from perfmodel.units import MICROSECOND

SMALL_ROWS = 64
"""Rows that bound the regimes."""

START = Parameter("start", "us", 5, 0.3, 200, 0.8, "time of an empty multiply, its launch included")
COMPUTE = Parameter("compute", "share", 0.85, 0.02, 1.1, 0.3, "of the peak rate, large sides")
HALF_M = Parameter("half_m", "-", 8, 0.1, 200, 1.2, "rows' worth of arithmetic on each weight")
MEMORY = Parameter("memory", "share", 0.6, 0.05, 1.0, 0.4, "of the memory bandwidth")
OVERLAP = Parameter("overlap", "-", 1.5, 1.0, 8.0, 0.4, "of arithmetic and memory: 1 none")
GEMM = (
    START,
    COMPUTE,
    HALF_M,
    Parameter("half_n", "-", 8, 0.1, 500, 1.2, "columns' worth of cost on each column's side"),
    Parameter("half_k", "-", 16, 0.1, 1000, 1.2, "depth's worth of cost on each sum"),
    MEMORY,
    OVERLAP,
    Parameter("vector", "share", 0.5, 0.05, 1.0, 0.5, "of the bandwidth, for a single row"),
)
GROUPED = (
    START,
    Parameter("each", "us", 5, 0.1, 500, 1.0, "per matrix with rows of its own"),
    COMPUTE,
    HALF_M,
    MEMORY,
    OVERLAP,
)


@dataclass(frozen=True, slots=True)
class SmoothGemm:
    """Form of ``gemm`` for any device; ``m``, ``n``, ``k`` in elements."""

    input_bytes: float = 2.0
    weight_bytes: float = 2.0
    """Bytes of an element of B, its scales included."""
    output_bytes: float = 2.0
    name: str = "gemm-smooth"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Eight numbers."""
        return GEMM

    @property
    def regimes(self) -> tuple[str, ...]:
        """Decode-like calls, where weights dominate, and the others."""
        return ("m<=64", "m>64")

    def regime(self, shapes: Shapes) -> Array:
        """0 for at most 64 rows, else 1."""
        return np.where(_sizes(shapes)[0] <= SMALL_ROWS, 0.0, 1.0)

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one call, with the sizes' broadcast shape."""
        m, n, k = _sizes(shapes)
        v = values
        edges = (1 + v["half_n"] / n) * (1 + v["half_k"] / k)
        compute = 2 * n * k * (m + v["half_m"]) * edges / (v["compute"] * chip.peak)
        moved = self._traffic(m, n, k) / chip.bandwidth
        work = norm_sum(compute, moved / v["memory"], v["overlap"])
        # A library takes its matrix-vector kernel for one row where that is the faster.
        vector = norm_sum(2 * m * n * k / (v["compute"] * chip.peak), moved / v["vector"], 4.0)
        work = np.where(m <= 1, np.minimum(work, vector * edges), work)
        return np.asarray(v["start"] * MICROSECOND + work)

    def _traffic(self, m: Array, n: Array, k: Array) -> Array:
        weights: Array = self.weight_bytes * n * k
        return weights + self.input_bytes * m * k + self.output_bytes * m * n

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Logs of the sizes; 1 for a vector."""
        del chip
        m, n, k = (size.ravel() for size in _sizes(shapes))
        return np.stack([np.log(m), np.log(n), np.log(k), np.where(m <= 1, 1.0, 0.0)], axis=1)


@dataclass(frozen=True, slots=True)
class SmoothGrouped:
    """Form of grouped multiplies, and of whole expert layers made of them.

    Shapes: ``rows`` over all matrices, ``active`` matrices that have rows, ``elements`` of one
    matrix and ``widths`` (elements read and written per row), both summed over the ``calls``.
    """

    weight_bytes: float = 2.0
    value_bytes: float = 2.0
    name: str = "grouped-smooth"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Six numbers."""
        return GROUPED

    @property
    def regimes(self) -> tuple[str, ...]:
        """By rows of a matrix, on average."""
        return ("rows<=16", "rows>16")

    def regime(self, shapes: Shapes) -> Array:
        """0 for at most 16 rows for each matrix, else 1."""
        return np.where(np.asarray(shapes["rows"]) <= 16 * np.asarray(shapes["active"]), 0.0, 1.0)

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of all calls together."""
        v = values
        rows, active = np.asarray(shapes["rows"]), np.asarray(shapes["active"])
        elements, calls = np.asarray(shapes["elements"]), np.asarray(shapes["calls"])
        compute = 2 * elements * (rows + v["half_m"] * active) / (v["compute"] * chip.peak)
        traffic = self.weight_bytes * active * elements + self.value_bytes * rows * shapes["widths"]
        work = norm_sum(compute, traffic / (v["memory"] * chip.bandwidth), v["overlap"])
        return np.asarray(calls * (v["start"] + v["each"] * active) * MICROSECOND + work)

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Logs of rows for each matrix, matrices, elements."""
        del chip
        names = ("rows", "active", "elements")
        rows, active, elements = (
            np.ravel(a) for a in np.broadcast_arrays(*(shapes[name] for name in names))
        )
        return np.stack([np.log(rows / active), np.log(active), np.log(elements)], axis=1)


def _sizes(shapes: Shapes) -> tuple[Array, Array, Array]:
    sizes = (np.asarray(shapes[name], dtype=np.float64) for name in ("m", "n", "k"))
    m, n, k = np.broadcast_arrays(*sizes)
    return m, n, k
