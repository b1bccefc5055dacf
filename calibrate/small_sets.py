"""Fits on few rows: a form with strong priors, its error on rows left out, a correction that pays.

All rows are used; what the fit is worth is told by parts of them left out of it in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy.stats import t as student

from calibrate.calibrated import COVERAGE, FEW, CalibratedSet
from calibrate.fit import fit_form
from calibrate.residual import fit_residual
from calibrate.score import Score, score
from perfmodel.kernels.forms.base import Chip, Form, Shapes
from perfmodel.kernels.kernel_set import Interval, KernelSet
from perfmodel.operators.quantity import Array

FOLDS = 10
OWN = 12
"""Rows from which a regime has an interval of its own."""
NORMAL_90 = 1.645
"""Half of a normal distribution's 90 % interval, in deviations."""
GAIN = 0.95
"""A correction is kept where it brings the left-out error below this share of the form's."""
DRIFT = 0.05
"""Deviation between runs on a machine whose caches and memory others share: assumed, for rows of
one run, left out or not, don't show it."""


def calibrate_small(
    form: Form, chip: Chip, shapes: Shapes, measured_s: Array, seed: int = 0
) -> tuple[CalibratedSet, dict[str, Score]]:
    """Fit ``form`` on all rows (n,); scores are those of rows left out of fit and correction."""
    rows = {name: np.asarray(size, dtype=np.float64) for name, size in shapes.items()}
    fitted = fit_form(form, chip, rows, measured_s, seed=seed)
    features = form.features(chip, rows)
    plain, corrected = left_out(form, chip, rows, measured_s, seed)
    residual, left = None, plain
    if corrected is not None and _typical(corrected) < GAIN * _typical(plain):
        residual, left = fit_residual(features, fitted.log_residuals).residual, corrected
    made = regime_intervals(left, form, rows)
    kernels = KernelSet(
        form=form,
        values=fitted.values,
        residual=residual,
        intervals=made,
        box_low=features.min(axis=0),
        box_high=features.max(axis=0),
    )
    used = np.arange(len(measured_s), dtype=np.intp)
    calibrated = CalibratedSet(kernels, chip, replace(fitted, log_residuals=left), used)
    return calibrated, _scores(form, rows, measured_s, left, made)


def left_out(
    form: Form, chip: Chip, shapes: Shapes, measured_s: Array, seed: int = 0
) -> tuple[Array, Array | None]:
    """log(measured / predicted) (n,) of rows left out, by the form alone and with a correction.

    Too few rows for parts give the fit's own residuals; too few for a correction give no second.
    """
    count = len(measured_s)
    if count <= len(form.parameters) // 2:
        fitted = fit_form(form, chip, shapes, measured_s, seed=seed)
        return fitted.log_residuals, None
    folds = min(FOLDS, count)
    part = np.random.default_rng(seed).permutation(count) % folds
    plain, corrected = np.empty(count), np.empty(count)
    for fold in range(folds):
        kept, out = part != fold, part == fold
        known = {name: size[kept] for name, size in shapes.items()}
        asked = {name: size[out] for name, size in shapes.items()}
        fitted = fit_form(form, chip, known, measured_s[kept], starts=1, seed=seed)
        plain[out] = np.log(measured_s[out] / form.seconds(chip, fitted.values, asked))
        if count >= FEW:
            learned = fit_residual(form.features(chip, known), fitted.log_residuals).residual
            corrected[out] = plain[out] - learned.correction(form.features(chip, asked))
    return plain, corrected if count >= FEW else None


def regime_intervals(left: Array, form: Form, shapes: Shapes) -> dict[str, Interval]:
    """The interval of each regime, from its own rows where there are enough."""
    regime = np.broadcast_to(np.ravel(form.regime(shapes)), left.shape)
    parts = {name: left[regime == number] for number, name in enumerate(form.regimes)}
    return {name: interval(own if len(own) >= OWN else left) for name, own in parts.items()}


def interval(left: Array) -> Interval:
    """The interval that covers nine of ten new rows, from log residuals of rows left out."""
    count = len(left)
    tail = (1 - COVERAGE) / 2
    if count >= FEW:
        low, high = np.quantile(left, [tail, 1 - tail], method="weibull")
        return Interval(-_with_drift(min(low, 0.0)), _with_drift(max(high, 0.0)), count)
    # Few rows have no tails: as if they were normal, with Student's allowance for their number.
    reach = float(student.ppf(1 - tail, max(count - 1, 1))) * np.sqrt(1 + 1 / count)
    half = _with_drift(reach * np.sqrt(np.mean(left**2)))
    return Interval(-half, half, count)


def _with_drift(half: float) -> float:
    """A half-width with that of the drift, which is independent of it."""
    return float(np.hypot(half, DRIFT * NORMAL_90))


def _typical(left: Array) -> float:
    return float(np.mean(np.minimum(np.abs(left), 1.0)))


def _scores(
    form: Form, shapes: Shapes, measured: Array, left: Array, made: Mapping[str, Interval]
) -> dict[str, Score]:
    predicted = measured * np.exp(-left)
    regime = np.broadcast_to(np.ravel(form.regime(shapes)), measured.shape).astype(int)
    ends = [made[name] for name in form.regimes]
    low = predicted * np.exp(np.asarray([end.low for end in ends])[regime])
    high = predicted * np.exp(np.asarray([end.high for end in ends])[regime])
    masks = {"all": np.ones(len(measured), dtype=bool)}
    if len(form.regimes) > 1:
        masks |= {name: regime == number for number, name in enumerate(form.regimes)}
    return {
        name: score(predicted[mask], measured[mask], low[mask], high[mask])
        for name, mask in masks.items()
    }
