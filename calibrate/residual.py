"""Fit the learned correction: a Gaussian process on a form's log residuals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from perfmodel.kernels.residual import Residual, matern
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

    def loss(theta: Array) -> float:
        lengths, variance, noise = unpack(theta)
        covariance = variance * matern(x / lengths, x / lengths) + noise * np.eye(len(y))
        try:
            factor = cho_factor(covariance, lower=True)
        except np.linalg.LinAlgError:
            return 1e10
        fit = 0.5 * y @ cho_solve(factor, y) + np.log(np.diag(factor[0])).sum()
        prior = 0.5 * (((theta - start) / np.r_[np.full(len(theta) - 2, 1.0), 1.0, 0.7]) ** 2).sum()
        return float(fit + prior)

    bounds = [(s - 3, s + 4) for s in start[:-2]] + [(np.log(0.003), np.log(1.0))] * 2
    bounds[-1] = (np.log(0.005), np.log(0.5))
    found = minimize(loss, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60})
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
