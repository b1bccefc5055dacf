"""Fit the learned correction: a Gaussian process on a form's log residuals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from perfmodel.kernels.residual import Residual, distances, matern
from perfmodel.operators.quantity import Array

CLIP = 0.7
"""Log residuals beyond a factor of two are switched kernels or outliers: they are clipped."""


@dataclass(frozen=True, slots=True)
class FittedResidual:
    """The correction, and the log residuals that it leaves on rows taken out one at a time."""

    residual: Residual
    noise: float
    left_out: Array
    """log(measured / predicted) of each row when predicted from all others."""


def fit_residual(features: Array, log_residuals: Array) -> FittedResidual:
    """Fit a process to ``log_residuals`` (n,) at ``features`` (n, d), by marginal likelihood.

    Hyperparameters carry weak priors that keep the lengths near the features' spread and the
    noise above half a per cent, so that thirty rows don't overfit.
    """
    x = np.atleast_2d(features)
    y = np.clip(log_residuals, -CLIP, CLIP)
    spread = np.maximum(x.std(axis=0), 1e-3)
    start = np.concatenate([np.log(spread * 1.5), np.log([max(y.std(), 0.02), 0.04])])

    def unpack(theta: Array) -> tuple[Array, float, float]:
        return np.exp(theta[:-2]), float(np.exp(2 * theta[-2])), float(np.exp(2 * theta[-1]))

    widths = np.r_[np.full(x.shape[1], 1.0), 1.0, 0.7]

    def loss(theta: Array) -> tuple[float, Array]:
        lengths, variance, noise = unpack(theta)
        value, slope = _evidence(x / lengths, y, variance, noise)
        off = (theta - start) / widths
        return value + 0.5 * float(off @ off), slope + off / widths

    bounds = [(s - 3, s + 4) for s in start[:-2]] + [(np.log(0.003), np.log(1.0))] * 2
    bounds[-1] = (np.log(0.005), np.log(0.5))
    found = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 100}
    )
    lengths, variance, noise = unpack(found.x)
    covariance = variance * matern(x / lengths, x / lengths) + noise * np.eye(len(y))
    inverse = np.linalg.inv(covariance)
    weights = inverse @ y
    left_out = weights / np.diag(inverse)
    return FittedResidual(
        Residual(points=x / lengths, weights=weights, lengths=lengths, variance=variance),
        noise=float(np.sqrt(noise)),
        left_out=left_out + (log_residuals - y),
    )


def _evidence(x: Array, y: Array, variance: float, noise: float) -> tuple[float, Array]:
    """Negative log marginal likelihood of ``y`` at ``x`` (n, d) of unit length, and its slope in
    (log lengths, log of the signal's and of the noise's standard deviation).
    """
    correlation = matern(x, x)
    try:
        factor = cho_factor(variance * correlation + noise * np.eye(len(y)), lower=True)
    except np.linalg.LinAlgError:
        return 1e10, np.zeros(x.shape[1] + 2)
    inverse = cho_solve(factor, np.eye(len(y)))
    weights = inverse @ y
    value = 0.5 * y @ weights + np.log(np.diag(factor[0])).sum()
    pull = inverse - np.outer(weights, weights)
    # Of Matérn-5/2: dk/dlog l_j = 5/3 (1 + d) exp(-d) (difference in j)², summed over all pairs
    # without holding an (n, n) array for each j.
    distance = distances(x, x)
    pairs = pull * variance * (5 / 3) * (1 + distance) * np.exp(-distance)
    lengths = (x**2 * pairs.sum(axis=1)[:, None]).sum(axis=0) - (x * (pairs @ x)).sum(axis=0)
    signal = float((pull * correlation).sum()) * variance
    return float(value), np.r_[lengths, signal, float(np.trace(pull)) * noise]
