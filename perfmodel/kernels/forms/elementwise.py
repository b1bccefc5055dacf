"""Norms, rotary embedding, activations, copies: starts, then bytes over each one's bandwidth.

Shapes: bytes that each operation reads and writes, counted as one fused kernel would: ``norm``,
``silu``, ``rotary``, ``copy``. An operation that a library does in several passes has a low share
of the bandwidth. A shape may hold several operations, such as a residual sum and the norm of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.kernels.forms.attention_parts import column
from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.operators.quantity import Array
from perfmodel.units import KIB, MIB, MICROSECOND

SMALL = 256 * KIB
"""Bytes that bound the regimes."""
PASSES = {"norm": 6, "silu": 2, "rotary": 5, "copy": 1}
"""Kernels' worth of starts of each operation in eager torch: what a CPU's small rows show (rotary
embedding launches seven, of which the smallest hardly count)."""
RESULT = {"norm": 1 / 2, "silu": 1 / 3, "rotary": 1 / 2}
"""The result's part of the bytes."""

SHARES = tuple(
    Parameter(name, "share", 0.3 if name != "copy" else 0.8, 0.003, 1.5, 0.8,
              f"of the device bandwidth, {meaning}")
    for name, meaning in (
        ("norm", "RMSNorm"), ("silu", "SiLU-multiply"), ("rotary", "rotary embedding"),
        ("copy", "copies and sums"),
    )
)  # fmt: skip
START = Parameter("start", "us", 2, 0.05, 200, 0.6, "of each kernel, its launch included")
SPILL = (
    Parameter("spill", "-", 1, 0.01, 50, 1.2, "further cost of bytes that outgrow the cache"),
    Parameter("spill_mib", "MiB", 8, 0.05, 500, 1.2, "bytes at which half of that is paid"),
)
PAGE = Parameter("page", "us", 1, 0.05, 50, 0.8, "per 4 KiB of results that are mapped anew")
PAGE_BYTES = 4 * KIB
MAPPED = 32 * MIB
"""From here on a C library maps a buffer anew for each result (glibc's largest threshold)."""


@dataclass(frozen=True, slots=True)
class ElementwiseForm:
    """Form of the family ``elementwise``."""

    fused: bool = False
    """Whether each operation is one kernel; else the `PASSES` of eager torch."""
    paged: bool = False
    """Whether results come from the C library's allocator, as a CPU's do."""
    value_bytes: float = 2.0
    name: str = "elementwise-passes"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """A start, a share for each operation, and what large sizes pay beside."""
        return (START, *SHARES, *SPILL, *((PAGE,) if self.paged else ()))

    @property
    def regimes(self) -> tuple[str, ...]:
        """By bytes."""
        return ("<=256KiB", ">256KiB")

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of all operations of a shape."""
        time: Array = np.zeros(())
        most = max(PASSES.values())
        for name, passes in PASSES.items():
            size = np.asarray(column(shapes, name), dtype=np.float64)
            over = 1 / (1 + (values["spill_mib"] * MIB / np.maximum(size, 1.0)) ** 2)
            # What is written between passes falls out of the cache; a fused kernel writes nothing.
            spill = 0.0 if self.fused else values["spill"] * (passes - 1) / (most - 1)
            moved = size / (values[name] * chip.bandwidth) * (1 + spill * over)
            starts = np.where(size > 0, 1.0 if self.fused else passes, 0.0)
            time = time + starts * values["start"] * MICROSECOND + moved
            if self.paged and name != "copy":
                # A norm's passes between are of 32 bits.
                wide = 4 / self.value_bytes if name == "norm" else 1.0
                result = size * RESULT[name] * wide
                pages = np.where(result > MAPPED, passes * result / PAGE_BYTES, 0.0)
                time = time + pages * values["page"] * MICROSECOND
        return np.asarray(time)

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Log of all bytes, and which operation has the most of them."""
        del chip
        sizes = np.stack(np.broadcast_arrays(*(np.ravel(column(shapes, n)) for n in PASSES)))
        most = np.argmax(sizes, axis=0)
        flags = [np.where(most == number, 1.0, 0.0) for number in range(len(PASSES))]
        return np.stack([np.log(np.maximum(sizes.sum(axis=0), 1.0)), *flags], axis=1)

    def regime(self, shapes: Shapes) -> Array:
        """0 up to 256 KiB, 1 above."""
        total = sum((np.asarray(column(shapes, name)) for name in PASSES), np.zeros(()))
        return np.where(total > SMALL, 1.0, 0.0)
