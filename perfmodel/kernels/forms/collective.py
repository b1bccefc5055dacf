"""Collectives of one group of GPUs: latency and volume over a link, three protocols.

A small message goes by a protocol that stores data and flag together: low latency, low rate; a
middle one stores a flag per line: a little later, quicker. A large one goes in chunks along the
ring, whose fill costs the geometric mean of latency and volume, as where chunks have their best
size: (√latency + √(volume/rate))². The quickest is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.operators.quantity import Array
from perfmodel.units import KIB, MIB, MICROSECOND

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
SHARPNESS = 6.0
"""Exponent of the soft minimum of the protocols."""
SMALL, MIDDLE = 64 * KIB, 4 * MIB
"""Bytes that bound the regimes."""

PARAMETERS = (
    Parameter("low_start", "us", 6, 1, 60, 0.6, "latency of the low-latency protocol, 2 ranks"),
    Parameter("low_rank", "us", 1, 0.02, 20, 1.0, "more of it for each further rank"),
    Parameter("low_rate", "share", 0.3, 1e-3, 2.0, 1.0, "of the link that it reaches, 2 ranks"),
    Parameter("low_crowd", "-", 0.8, 0.05, 8, 1.0, "its time per byte grows as (ranks/2)^this"),
    Parameter(
        "mid_latency", "-", 1.2, 1.0, 6, 0.4, "latency of the middle protocol over the low one's"
    ),
    Parameter("mid_rate", "share", 0.5, 2e-3, 2.0, 0.8, "of the link that it reaches, 2 ranks"),
    Parameter("start", "us", 12, 1, 200, 0.7, "latency of the chunked protocol, 2 ranks"),
    Parameter("rank", "us", 1, 0.02, 60, 1.0, "more of it for each further rank"),
    Parameter("fill", "-", 0.5, 0.01, 4, 1.0, "pipeline fill: share of √(latency · volume/rate)"),
    Parameter("rate_2", "share", 0.75, 0.005, 1.5, 0.5, "of the link, chunked protocol, 2 ranks"),
    Parameter("rate_4", "share", 0.75, 0.005, 1.5, 0.5, "the same for 4 ranks"),
    Parameter("rate_8", "share", 0.75, 0.005, 1.5, 0.5, "the same for 8 and more"),
    Parameter(
        "narrow", "-", 1.1, 0.5, 3, 0.4, "time per byte of reducing 1-byte elements, 8 ranks"
    ),
)


def soft_least(*times: Array) -> Array:
    """Soft minimum of positive times: at most the least, and half an octave below where equal."""
    least = np.minimum.reduce(np.broadcast_arrays(*times))
    sums = sum((least / t) ** SHARPNESS for t in times)
    return np.asarray(least * sums ** (-1 / SHARPNESS))


@dataclass(frozen=True, slots=True)
class CollectiveForm:
    """Form of one operation: its shapes are message_bytes, ranks and optionally element_bytes.

    ``message_bytes`` is the whole result on one rank (all-reduce, all-gather), the whole input
    of one rank (reduce-scatter, all-to-all): elements × width, as NCCL's tests count.
    """

    operation: Operation

    @property
    def name(self) -> str:
        """``collective-`` and the operation."""
        return f"collective-{self.operation}"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The same for every operation."""
        return PARAMETERS

    @property
    def regimes(self) -> tuple[str, ...]:
        """By size of message."""
        return ("<=64KiB", "<=4MiB", ">4MiB")

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one collective."""
        size, ranks = (np.asarray(shapes[n], dtype=np.float64) for n in ("message_bytes", "ranks"))
        v, more = values, np.maximum(ranks - 2, 0.0)
        each = self.wire_bytes(size, ranks) / chip.link
        latency = (v["low_start"] + v["low_rank"] * more) * MICROSECOND
        crowded = each * (np.maximum(ranks, 2) / 2) ** v["low_crowd"]
        low = latency + crowded / v["low_rate"]
        middle = latency * v["mid_latency"] + crowded / v["mid_rate"]
        start = (v["start"] + v["rank"] * more) * MICROSECOND
        volume = each / self.rate(values, ranks, shapes)
        chunked = start + volume + v["fill"] * np.sqrt(start * volume)
        return soft_least(low, middle, chunked)

    def wire_bytes(self, size: Array, ranks: Array) -> Array:
        """What one rank sends, by a ring or pairwise: (n − 1)/n of the message, twice to reduce."""
        passes = 2 if self.operation == "all_reduce" else 1
        sent: Array = passes * (ranks - 1) / ranks * size
        return sent

    def rate(self, values: Values, ranks: Array, shapes: Shapes) -> Array:
        """Share of the link at large messages: log-linear between 2, 4 and 8 ranks."""
        known = np.log([values[f"rate_{n}"] for n in (2, 4, 8)])
        share = np.exp(np.interp(np.log2(np.maximum(ranks, 2)), [1, 2, 3], known))
        if self.operation in ("all_reduce", "reduce_scatter"):
            # switches reduce 2-byte elements themselves, in groups of 8; others the GPUs reduce
            one_byte = np.asarray(shapes.get("element_bytes", np.asarray(2.0))) < 2
            share = np.where(one_byte & (ranks >= 8), share / values["narrow"], share)
        return np.asarray(share)

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Logs of message and ranks."""
        del chip
        size, ranks = np.broadcast_arrays(shapes["message_bytes"], shapes["ranks"])
        return np.stack([np.log(size), 3 * np.log(ranks)], axis=-1)

    def regime(self, shapes: Shapes) -> Array:
        """0 up to 64 KiB, 1 up to 4 MiB, 2 above."""
        size = np.asarray(shapes["message_bytes"])
        return np.where(size > MIDDLE, 2.0, np.where(size > SMALL, 1.0, 0.0))
