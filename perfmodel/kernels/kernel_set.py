"""One calibrated set: a form with its parameters, learned correction, intervals and box.

`calibrate` makes sets and writes them; here they are evaluated. This is the only place where a
calibrated time is computed, in a fit's check as in an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfmodel.kernels.forms.base import Chip, Form, Shapes, Values
from perfmodel.kernels.residual import Residual
from perfmodel.operators.quantity import Array

WIDEN = 0.25
"""Growth of the interval's log half-width for each factor of e that a feature lies outside the
box of the rows it was fitted on: assumed, so that extrapolation never looks surer than a fit."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 90 % interval around a prediction, as offsets of its logarithm."""

    low: float
    """At most zero: the interval begins at prediction · exp(low)."""
    high: float
    rows: int
    """How many residuals it rests on."""


@dataclass(frozen=True, slots=True)
class KernelSet:
    """What predicts the kernels of one family and format on one chip."""

    form: Form
    values: Values
    residual: Residual | None
    intervals: Mapping[str, Interval]
    """By regime of the form."""
    box_low: Array
    """Least of each feature among the rows used."""
    box_high: Array

    def predict(
        self, chip: Chip, shapes: Shapes, form: Form | None = None, *, corrected: bool = True
    ) -> tuple[Array, Array, Array]:
        """Seconds with the low and high end of the interval, each (n,).

        Args:
            chip: the device's constants.
            shapes: sizes by name, broadcast to n shapes.
            form: another variant with the same parameters, such as cold operands.
            corrected: apply the learned correction; without it for formats or devices that it
                wasn't learned on.
        """
        form = form or self.form
        seconds = np.atleast_1d(form.seconds(chip, self.values, shapes)).ravel()
        features = form.features(chip, shapes)
        if self.residual is not None and corrected:
            seconds = seconds * np.exp(self.residual.correction(features))
        low, high = self._offsets(shapes, features)
        return seconds, seconds * np.exp(low), seconds * np.exp(high)

    def own_offsets(self, shapes: Shapes) -> tuple[Array, Array]:
        """Logs of the interval's ends over the prediction (n,), as if inside the box."""
        ends = [self.intervals[name] for name in self.form.regimes]
        regime = np.atleast_1d(self.form.regime(shapes)).ravel().astype(int)
        low = np.asarray([end.low for end in ends])[regime]
        high = np.asarray([end.high for end in ends])[regime]
        return low, high

    def _offsets(self, shapes: Shapes, features: Array) -> tuple[Array, Array]:
        low, high = self.own_offsets(shapes)
        extra = WIDEN * outside(features, self.box_low, self.box_high)
        return low - extra, high + extra


def outside(features: Array, low: Array, high: Array) -> Array:
    """How far rows (n, d) lie outside the box, as the sum over features; 0 within."""
    beyond: Array = np.maximum(low - features, 0.0) + np.maximum(features - high, 0.0)
    distance: Array = beyond.sum(axis=1)
    return distance
