"""From measured rows to a calibrated set: parameters, learned correction, intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from calibrate.design import Indices, choose
from calibrate.fit import Fitted, fit_form
from calibrate.residual import fit_residual
from calibrate.score import Score, score
from perfmodel.kernels.forms.base import Chip, Form, Shapes
from perfmodel.kernels.kernel_set import Interval, KernelSet
from perfmodel.kernels.residual import Residual
from perfmodel.operators.quantity import Array

COVERAGE = 0.90
FEW = 30
"""Rows below which a regime takes its interval from all rows, and a set has no correction."""


class Pick(Protocol):
    """A design: which of the rows of ``features`` (n, d) to use, as indices."""

    def __call__(self, features: Array, count: int, *, seed: int = 0) -> Indices:
        """At most ``count`` indices."""


@dataclass(frozen=True, slots=True)
class CalibratedSet:
    """What predicts a family's kernels on one chip, and how it was fitted."""

    kernels: KernelSet
    chip: Chip
    fitted: Fitted
    used: Indices
    """Indices of the rows used, into the arrays given."""

    @property
    def form(self) -> Form:
        """The form, as the measured rows ran."""
        return self.kernels.form

    @property
    def residual(self) -> Residual | None:
        """The learned correction."""
        return self.kernels.residual

    @property
    def intervals(self) -> Mapping[str, Interval]:
        """By regime."""
        return self.kernels.intervals

    @property
    def low(self) -> Array:
        """Least of each feature among the rows used."""
        return self.kernels.box_low

    @property
    def high(self) -> Array:
        """Largest of each feature among the rows used."""
        return self.kernels.box_high

    def predict(self, shapes: Shapes, form: Form | None = None) -> tuple[Array, Array, Array]:
        """Seconds with the low and high end of the interval, each (n,)."""
        return self.kernels.predict(self.chip, shapes, form)


def calibrate_set(
    form: Form,
    chip: Chip,
    shapes: Shapes,
    measured_s: Array,
    count: int = 300,
    seed: int = 0,
    *,
    pick: Pick = choose,
    folds: int = 0,
) -> CalibratedSet:
    """Fit ``form`` on at most ``count`` of the rows (n,), picked by their features.

    Intervals rest on rows left out of the correction one at a time, or, with ``folds``, on rows
    left out of the whole fit in that many parts: slower, and honest about the form's freedom.
    """
    every = form.features(chip, shapes)
    used = pick(every, count, seed=seed)
    rows = {name: np.asarray(size, dtype=np.float64)[used] for name, size in shapes.items()}
    features = every[used]
    fitted = fit_form(form, chip, rows, np.asarray(measured_s)[used], seed=seed)
    residual, left = None, fitted.log_residuals
    if len(used) >= FEW:
        learned = fit_residual(features, fitted.log_residuals)
        residual, left = learned.residual, learned.left_out
        if folds:
            left = left_out_of_fit(form, chip, rows, np.asarray(measured_s)[used], folds, seed)
    kernels = KernelSet(
        form=form,
        values=fitted.values,
        residual=residual,
        intervals=intervals(left, form.regime(rows), form.regimes),
        box_low=features.min(axis=0),
        box_high=features.max(axis=0),
    )
    return CalibratedSet(kernels, chip, fitted, used)


def left_out_of_fit(
    form: Form, chip: Chip, shapes: Shapes, measured_s: Array, folds: int, seed: int = 0
) -> Array:
    """log(measured / predicted) (n,) of each row by parameters and correction fitted without it."""
    part = np.random.default_rng(seed).permutation(len(measured_s)) % folds
    left = np.empty(len(measured_s))
    for fold in range(folds):
        kept, out = part != fold, part == fold
        known = {name: size[kept] for name, size in shapes.items()}
        asked = {name: size[out] for name, size in shapes.items()}
        fitted = fit_form(form, chip, known, measured_s[kept], starts=1, seed=seed)
        learned = fit_residual(form.features(chip, known), fitted.log_residuals).residual
        left[out] = np.log(measured_s[out] / form.seconds(chip, fitted.values, asked))
        left[out] -= learned.correction(form.features(chip, asked))
    return left


def intervals(left_out: Array, regime: Array, names: tuple[str, ...]) -> dict[str, Interval]:
    """Interval of each regime from log residuals (n,) of rows that were predicted unseen."""
    out = {}
    for number, name in enumerate(names):
        mine = left_out[regime == number]
        rows = mine if len(mine) >= FEW else left_out
        tail = (1 - COVERAGE) / 2
        # Weibull's positions: the k-th of n residuals is exceeded by 1 − k/(n + 1) of new ones.
        low, high = np.quantile(rows, [tail, 1 - tail], method="weibull")
        out[name] = Interval(min(float(low), 0.0), max(float(high), 0.0), len(rows))
    return out


def held_out(
    fit: CalibratedSet, shapes: Shapes, measured_s: Array, rows: Indices | None = None
) -> dict[str, Score]:
    """Scores on the rows that weren't used: all, each regime, and those above 10 µs."""
    measured = np.asarray(measured_s, dtype=np.float64)
    unseen = np.ones(len(measured), dtype=bool)
    unseen[fit.used] = False
    index = np.flatnonzero(unseen) if rows is None else np.asarray(rows)[unseen[rows]]
    part = {name: np.asarray(size, dtype=np.float64)[index] for name, size in shapes.items()}
    predicted, low, high = fit.predict(part)
    regime = fit.form.regime(part)
    masks = {"all": np.ones(len(index), dtype=bool)}
    masks |= {name: regime == number for number, name in enumerate(fit.form.regimes)}
    masks["over 10 us"] = measured[index] > 10e-6
    return {
        name: score(predicted[mask], measured[index][mask], low[mask], high[mask])
        for name, mask in masks.items()
    }
