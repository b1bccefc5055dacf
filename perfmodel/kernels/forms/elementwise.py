"""Norms, rotary embedding, activations, copies: a start, then bytes over a saturating bandwidth."""

from __future__ import annotations

import numpy as np

from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.operators.quantity import Array
from perfmodel.units import KIB, MICROSECOND

SMALL = 256 * KIB
"""Bytes that bound the regimes."""

PARAMETERS = (
    Parameter("start", "us", 3, 0.05, 200, 0.8, "from start to end of a kernel without work"),
    Parameter("memory", "share", 0.8, 0.05, 1.5, 0.3, "device bandwidth that large sizes reach"),
    Parameter(
        "half_kib",
        "KiB",
        500,
        1,
        100_000,
        1.2,
        "bytes' worth of time that ramping up costs at most",
    ),
)


class ElementwiseForm:
    """Form of the family ``elementwise``; its shape is bytes, read and written together.

    The time is start + (S + r(S))/(share · BW) with the ramp r(S) = S·half/(S + half): twice the
    bytes' own time while S is far below ``half_kib``, and a constant half/(share · BW) more than
    it far above.
    """

    name = "elementwise-saturating"
    parameters = PARAMETERS
    regimes = ("<=256KiB", ">256KiB")

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one kernel."""
        size = np.asarray(shapes["bytes"], dtype=np.float64)
        # what ramps up is paid at most once: a kernel without bytes only starts
        ramp = size / (1 + size / (values["half_kib"] * KIB))
        moved = (size + ramp) / (values["memory"] * chip.bandwidth)
        return np.asarray(values["start"] * MICROSECOND + moved)

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Log of the bytes."""
        del chip
        return np.log(np.maximum(np.ravel(shapes["bytes"]), 1.0))[:, None]

    def regime(self, shapes: Shapes) -> Array:
        """0 up to 256 KiB, 1 above."""
        return np.where(np.asarray(shapes["bytes"]) > SMALL, 1, 0)
