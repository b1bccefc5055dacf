"""Fit an engine preset's few numbers on measured step times, with a preset as prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from calibrate.fit import ROBUST
from calibrate.step_table import StepTable
from perfmodel.operators.quantity import Array
from perfmodel.specs.engine import Engine
from perfmodel.specs.engine_timing import GemmScale


@dataclass(frozen=True, slots=True)
class Number:
    """One fitted number of a preset: where it stands, its bounds, how far the prior lets it go."""

    path: str
    low: float
    high: float
    sigma: float
    """Width of the log-normal prior: 0.5 says that a factor of 1.6 either way is unsurprising."""
    start: float = 0.0
    """Prior where the preset has none (zero); 0: then the number isn't fitted."""


# Bounds: beyond them a host or kernel would be something else (a millisecond per layer, a kernel
# five times slower than the library's). Step and layer time are confounded unless depths differ,
# so the layer's prior is tight; factors of kernels sit within a quarter of the class's.
NUMBERS = (
    Number("host.step_us", 1.0, 50_000.0, 1.0, start=100.0),
    Number("host.layer_us", 0.3, 300.0, 0.6, start=5.0),
    Number("host.sequence_us", 0.1, 1_000.0, 1.0, start=5.0),
    Number("host.floor_us", 50.0, 200_000.0, 0.5),
    Number("host.floor_layer_us", 5.0, 2_000.0, 0.5),
    Number("kernels.gemm.compute", 0.5, 8.0, 0.25),
    Number("kernels.gemm.memory", 0.7, 4.0, 0.15),
    Number("kernels.gemm_8bit.compute", 0.5, 8.0, 0.25),
    Number("kernels.gemm_8bit.memory", 0.7, 4.0, 0.15),
    Number("kernels.gemm_8bit.weights_per_clock", 1.0, 100.0, 0.3),
    Number("kernels.gemm_4bit.compute", 0.5, 8.0, 0.25),
    Number("kernels.gemm_4bit.memory", 0.7, 4.0, 0.15),
    Number("kernels.gemm_4bit.weights_per_clock", 1.0, 100.0, 0.3),
    Number("kernels.gemm.weights_per_clock", 1.0, 100.0, 0.3),
    Number("kernels.attention", 0.6, 8.0, 0.4),
    Number("kernels.decode_flops_per_clock", 2.0, 1_000.0, 0.4),
    Number("kernels.collective", 0.2, 8.0, 0.4),
    Number("kernels.collective_us", 0.3, 500.0, 0.8, start=5.0),
)


@dataclass(frozen=True, slots=True)
class FittedEngine:
    """A preset with fitted numbers, and what the fit left over."""

    engine: Engine
    log_residuals: Array
    """log(measured / predicted) of each row used."""
    at_bound: tuple[str, ...]


def numbers_of(engine: Engine) -> list[Number]:
    """The numbers that can be fitted from this preset as prior."""
    return [n for n in NUMBERS if (_get(engine, n.path) or n.start) > 0]


def _get(engine: Engine, path: str) -> float:
    value: object = engine
    for name in path.split("."):
        if value is None:
            return 0.0
        value = getattr(value, name)
    return float(value) if isinstance(value, int | float) else 0.0


def numbers_in(engine: Engine) -> dict[str, float]:
    """The values of a preset's numbers by path; the prior's start where a value is zero."""
    return {n.path: _get(engine, n.path) or n.start for n in numbers_of(engine)}


def with_numbers(engine: Engine, values: dict[str, float]) -> Engine:
    """``engine`` with some numbers replaced."""
    host = {p.split(".")[1]: v for p, v in values.items() if p.startswith("host.")}
    kernels: dict[str, object] = {}
    gemms: dict[str, dict[str, float]] = {}
    for path, value in values.items():
        parts = path.split(".")
        if parts[0] == "kernels" and len(parts) == 2:
            kernels[parts[1]] = value
        elif parts[0] == "kernels":
            gemms.setdefault(parts[1], {})[parts[2]] = value
    for name, changes in gemms.items():
        before = getattr(engine.kernels, name) or GemmScale()
        kernels[name] = before.model_copy(update=changes)
    return engine.model_copy(
        update={
            "host": engine.host.model_copy(update=host),
            "kernels": engine.kernels.model_copy(update=kernels),
        }
    )


def fit_host(
    rows: StepTable, measured_s: Array, prior: Engine, weights: Array | None = None
) -> FittedEngine:
    """Fit ``prior``'s numbers on ``rows`` with ``measured_s`` seconds each.

    Robust least squares on log time (soft-L1, as for kernels), a log-normal prior around each
    number of ``prior``. ``weights`` count a row more or less than one.

    Raises:
        ValueError: a time that isn't positive and finite.
    """
    measured = np.asarray(measured_s, dtype=np.float64)
    if not (np.isfinite(measured).all() and (measured > 0).all()):
        raise ValueError("measured times must be positive and finite")
    numbers = numbers_of(prior)
    centre = np.log([_get(prior, n.path) or n.start for n in numbers])
    low, high = np.log([n.low for n in numbers]), np.log([n.high for n in numbers])
    sigma = np.asarray([n.sigma for n in numbers])
    target = np.log(measured)
    root = np.sqrt(np.ones(len(measured)) if weights is None else weights)

    def engine_at(x: Array) -> Engine:
        return with_numbers(
            prior, {n.path: float(v) for n, v in zip(numbers, np.exp(x), strict=True)}
        )

    def residuals(x: Array) -> Array:
        off = target - np.log(rows.seconds(engine_at(x)))
        robust = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + (off / ROBUST) ** 2) - 1)) * ROBUST
        return np.concatenate([root * robust, ROBUST * (x - centre) / sigma])

    start = np.clip(centre, low + 1e-6, high - 1e-6)
    found = least_squares(
        residuals,
        start,
        bounds=(low, high),
        x_scale=sigma,
        diff_step=[1e-3] * len(numbers),
        max_nfev=40,
    )
    engine = engine_at(found.x)
    stuck = (found.x - low < 1e-3) | (high - found.x < 1e-3)
    return FittedEngine(
        engine=engine,
        log_residuals=target - np.log(rows.seconds(engine)),
        at_bound=tuple(n.path for n, bad in zip(numbers, stuck, strict=True) if bad),
    )
