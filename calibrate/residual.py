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
OUTLIER = 2.5
"""Robust deviations of all rows' errors beyond which a row's noise is widened: disturbed rows (a
twentieth of the FP8 rows of the B200 are 1.5 to 3 times too slow) must not bend their
neighbourhood."""
PASSES = 3
"""Fits; each takes its rows' noise from the one before."""
LENGTH = 1.5
"""Centre of the prior on a length, in standard deviations of its feature."""
LENGTH_SIGMA = 1.0
NOISE = 0.04
NOISE_SIGMA = 0.7


@dataclass(frozen=True, slots=True)
class FittedResidual:
    """The correction, and the log residuals that it leaves on rows taken out one at a time."""

    residual: Residual
    noise: float
    left_out: Array
    """log(measured / predicted) of each row when predicted from all others."""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Minus the log posterior of the hyperparameters: logs of lengths, deviation and noise."""

    x: Array
    y: Array
    noise_scale: Array
    """Of each row: above 1 for rows that look like outliers."""
    centre: Array
    sigma: Array

    def covariance(self, theta: Array) -> tuple[Array, Array]:
        """Covariance (n, n) of the rows, and its part without noise."""
        signal = float(np.exp(2 * theta[-2])) * matern(*[self.x / np.exp(theta[:-2])] * 2)
        return signal + np.diag(np.exp(2 * theta[-1]) * self.noise_scale), signal

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Value and gradient."""
        whole, signal = self.covariance(theta)
        try:
            factor = cho_factor(whole, lower=True)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = cho_solve(factor, np.eye(len(self.y)))
        weights = inverse @ self.y
        loss = 0.5 * self.y @ weights + np.log(np.diag(factor[0])).sum()
        pull = 0.5 * (inverse - np.outer(weights, weights))
        off = (theta - self.centre) / self.sigma
        slope = np.append(self._length_slopes(theta, pull), [2 * (pull * signal).sum(), 0.0])
        slope[-1] = 2 * np.exp(2 * theta[-1]) * (np.diag(pull) * self.noise_scale).sum()
        return float(loss + 0.5 * (off**2).sum()), slope + off / self.sigma

    def _length_slopes(self, theta: Array, pull: Array) -> Array:
        """Derivatives by log lengths: dk/dlog l = 5/3 (1 + a) exp(-a) (Δ/l)², a = √5 distance.

        The sum over pairs of c·(xᵢ − xⱼ)² is 2·Σ cᵢ xᵢ² − 2·xᵀc x: no (n, n, d) array is held.
        """
        scaled = self.x / np.exp(theta[:-2])
        a = distances(scaled, scaled)
        common = pull * np.exp(2 * theta[-2]) * (5 / 3) * (1 + a) * np.exp(-a)
        alone = (scaled**2 * common.sum(axis=1)[:, None]).sum(axis=0)
        slopes: Array = 2 * (alone - (scaled * (common @ scaled)).sum(axis=0))
        return slopes


def fit_residual(features: Array, log_residuals: Array) -> FittedResidual:
    """Fit a process to ``log_residuals`` (n,) at ``features`` (n, d), by marginal likelihood.

    Hyperparameters carry weak priors that keep the lengths near the features' spread and the
    noise above half a per cent, so that thirty rows don't overfit. Rows that the others don't
    explain get a wider noise of their own, as under a heavy-tailed likelihood.
    """
    x = np.atleast_2d(features)
    y = np.clip(log_residuals, -CLIP, CLIP)
    spread = np.maximum(x.std(axis=0), 1e-3)
    centre = np.append(np.log(spread * LENGTH), np.log([max(y.std(), 0.02), NOISE]))
    sigma = np.append(np.full(len(spread) + 1, LENGTH_SIGMA), NOISE_SIGMA)
    bounds = [(c - 3, c + 4) for c in centre[:-2]]
    bounds += [(np.log(0.003), np.log(1.0)), (np.log(0.005), np.log(0.5))]
    theta, scale = centre, np.ones(len(y))
    for _ in range(PASSES):
        evidence = _Evidence(x, y, scale, centre, sigma)
        found = minimize(
            evidence, theta, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 100}
        )
        theta = found.x
        inverse = np.linalg.inv(evidence.covariance(theta)[0])
        weights = inverse @ y
        left = weights / np.diag(inverse)
        # The median is what outliers leave alone; the process's own deviation grows with them.
        typical = max(float(np.median(np.abs(left))) * 1.4826, 1e-6)
        scale = np.maximum(1.0, (left / (OUTLIER * typical)) ** 2)
    lengths = np.exp(theta[:-2])
    return FittedResidual(
        Residual(
            points=x / lengths,
            weights=weights,
            lengths=lengths,
            variance=float(np.exp(2 * theta[-2])),
        ),
        noise=float(np.exp(theta[-1])),
        left_out=left + (log_residuals - y),
    )
