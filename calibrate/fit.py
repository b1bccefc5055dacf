"""Fit a form's parameters on measured times: robust least squares on log time, with priors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from perfmodel.kernels.forms.base import Chip, Form, Shapes
from perfmodel.operators.quantity import Array

ROBUST = 0.10
"""Log residual from which a row counts less (soft-L1): kernels switch by 15 to 40 %, and such a
row should not bend the whole curve."""
SIGNIFICANT = 6
"""Digits of a parameter in a file."""
AT_BOUND = 1e-3
"""Distance to a bound, in log, at which a parameter counts as stuck."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Parameters with standard errors, and what the fit left over."""

    values: dict[str, float]
    relative_errors: dict[str, float]
    """Standard error of each parameter's logarithm, from the curvature at the solution."""
    at_bound: tuple[str, ...]
    """Parameters that sit at a bound: the form fails there, and a file says so."""
    log_residuals: Array
    """log(measured / predicted) of each row used."""


def fit_form(
    form: Form,
    chip: Chip,
    shapes: Shapes,
    measured_s: Array,
    *,
    starts: int = 3,
    seed: int = 0,
) -> Fitted:
    """Fit ``form`` on rows of ``shapes`` with ``measured_s`` seconds.

    Each start draws the parameters from their priors (the first takes the prior's centre); the
    best is kept.

    Raises:
        ValueError: a time that isn't positive and finite.
    """
    measured = np.asarray(measured_s, dtype=np.float64)
    if not (np.isfinite(measured).all() and (measured > 0).all()):
        raise ValueError("measured times must be positive and finite")
    parameters = form.parameters
    low = np.log([p.low for p in parameters])
    high = np.log([p.high for p in parameters])
    centre = np.log([p.start for p in parameters])
    sigma = np.asarray([p.sigma for p in parameters])
    target = np.log(measured)

    def residuals(x: Array) -> Array:
        values = {p.name: float(v) for p, v in zip(parameters, np.exp(x), strict=True)}
        off = target - np.log(form.seconds(chip, values, shapes))
        robust = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + (off / ROBUST) ** 2) - 1)) * ROBUST
        return np.concatenate([robust, ROBUST * (x - centre) / sigma])

    rng = np.random.default_rng(seed)
    best = None
    for attempt in range(starts):
        drawn = centre + (rng.normal(size=len(centre)) * sigma * 0.5 if attempt else 0.0)
        start = np.clip(drawn, low + 1e-6, high - 1e-6)
        found = least_squares(residuals, start, bounds=(low, high + 1e-9), x_scale=sigma)
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None  # noqa: S101  (starts is at least 1)
    values = _as_written(np.exp(best.x), lambda v: float(np.sum(residuals(np.log(v)) ** 2)))
    return _fitted(form, chip, shapes, target, best, values, low, high)


def rounded(value: float) -> float:
    """A float with six significant digits, as a file shows it."""
    return float(f"{value:.{SIGNIFICANT}g}")


def _as_written(exact: Array, cost: Callable[[Array], float]) -> Array:
    """The values that a file can hold: what is scored is what is used.

    A fit likes to stop at the edge of a wave, where the last digit makes a step in time: of the
    two neighbours of each value that a file can hold, the one that fits better is kept.
    """
    values = np.asarray([rounded(v) for v in exact])
    least = cost(values)
    for index, value in enumerate(exact):
        digit = 10.0 ** (np.floor(np.log10(value)) - SIGNIFICANT + 1)
        for neighbour in (rounded(value - digit), rounded(value + digit)):
            tried = values.copy()
            tried[index] = neighbour
            found = cost(tried)
            if found < least:
                values, least = tried, found
    return values


def _fitted(
    form: Form,
    chip: Chip,
    shapes: Shapes,
    target: Array,
    best: object,
    found: Array,
    low: Array,
    high: Array,
) -> Fitted:
    x, jacobian = best.x, best.jac  # type: ignore[attr-defined]
    values = {p.name: float(v) for p, v in zip(form.parameters, found, strict=True)}
    left = target - np.log(form.seconds(chip, values, shapes))
    spread = float(np.median(np.abs(left))) * 1.4826 or 1e-6
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * spread**2
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    names = [p.name for p in form.parameters]
    stuck = (x - low < AT_BOUND) | (high - x < AT_BOUND)
    return Fitted(
        values=values,
        relative_errors=dict(zip(names, map(float, errors), strict=True)),
        at_bound=tuple(name for name, bad in zip(names, stuck, strict=True) if bad),
        log_residuals=left,
    )
