"""How well an engine's numbers carry over: whole sources left out, and ten rows of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.host import fit_host, with_numbers
from calibrate.published.cases import Case
from calibrate.step_table import StepTable
from perfmodel.operators.quantity import Array
from perfmodel.specs.engine import Engine, load_engine

FAMILY_PRESET = {
    "compiled": "compiled",
    "gguf": "llamacpp-cuda",
    "python": "vllm-2024",
    "eager": "eager-2023",
}
"""Which numbers a class of engines has: serial time alone, or a floor as well."""
NEUTRAL = {
    "host.step_us": 200.0,
    "host.layer_us": 5.0,
    "host.sequence_us": 10.0,
    "kernels.gemm.compute": 1.0,
    "kernels.gemm.memory": 1.0,
    "kernels.attention": 1.0,
    "kernels.collective": 1.0,
    "kernels.collective_us": 5.0,
}
"""Where every fit starts: the calibration's kernels as they are, and a round host."""
NEUTRAL_IF_SET = {
    "host.floor_us": 1_000.0,
    "host.floor_layer_us": 100.0,
    "kernels.gemm_8bit.compute": 1.0,
    "kernels.gemm_8bit.memory": 1.0,
    "kernels.gemm_8bit.weights_per_clock": 16.0,
    "kernels.gemm_4bit.compute": 1.0,
    "kernels.gemm_4bit.memory": 1.0,
    "kernels.gemm_4bit.weights_per_clock": 14.0,
    "kernels.gemm.weights_per_clock": 5.0,
    "kernels.decode_flops_per_clock": 38.0,
}
"""The same for numbers that only some engines have. Weights unpacked and FLOPs of a CUDA core per
clock and SM: round figures of such kernels over several engines."""
EAGER_FLOOR_US = 20_000.0
DRAWS = 4
ROWS = 10


@dataclass(frozen=True, slots=True)
class Predictions:
    """Seconds of each case, NaN where a column has no answer."""

    measured: Array
    roof: Array
    preset: Array
    unseen: Array
    """From numbers fitted on other sources of its class."""
    ten_rows: Array
    """(draws, cases): after ten rows of the source; NaN for the rows used."""


def neutral(engine: Engine) -> Engine:
    """``engine``'s facts with round numbers in place of its fitted ones."""
    values = dict(NEUTRAL)
    for path, value in NEUTRAL_IF_SET.items():
        if _is_set(engine, path):
            values[path] = value
    if engine.host.floor_us >= EAGER_FLOOR_US / 2:
        values["host.floor_us"] = EAGER_FLOOR_US
    return with_numbers(engine, values)


def _is_set(engine: Engine, path: str) -> bool:
    value: object = engine
    for name in path.split("."):
        value = getattr(value, name) if value is not None else None
    return bool(value)


def balanced(cases: Sequence[Case], chosen: Array) -> Array:
    """Weights that let each source count alike, and a row at most once."""
    names = [cases[i].source for i in chosen]
    size = {name: names.count(name) for name in set(names)}
    smallest = float(np.median(list(size.values())))
    return np.asarray([min(1.0, smallest / size[name]) for name in names])


def fit_on(table: StepTable, cases: Sequence[Case], chosen: Array, prior: Engine) -> Engine:
    """Numbers of ``prior`` fitted on some cases, sources weighed alike."""
    measured = np.asarray([cases[i].measured_s for i in chosen])
    return fit_host(table.take(chosen), measured, prior, balanced(cases, chosen)).engine


def _training(cases: Sequence[Case], family: str, origin: str) -> Array:
    """Cases of the class from other sources; the compiled class where it has none to speak of."""
    own = [i for i, c in enumerate(cases) if c.family == family and c.origin != origin]
    if len(own) < ROWS:
        own = [i for i, c in enumerate(cases) if c.family == "compiled" and c.origin != origin]
    return np.asarray(own)


def predict(table: StepTable, cases: Sequence[Case], seed: int = 0) -> Predictions:
    """All columns for all cases."""
    measured = np.asarray([c.measured_s for c in cases])
    unseen = np.full(len(cases), np.nan)
    ten = np.full((DRAWS, len(cases)), np.nan)
    rng = np.random.default_rng(seed)
    for source in sorted({c.source for c in cases}):
        index = np.asarray([i for i, c in enumerate(cases) if c.source == source])
        first = cases[index[0]]
        facts = load_engine(_class_of(first))
        train = _training(cases, first.family, first.origin)
        prior = fit_on(table, cases, train, neutral(facts))
        own = table.take(index)
        unseen[index] = own.seconds(prior)
        for draw in range(DRAWS if len(index) >= 2 * ROWS else 0):
            used = rng.choice(len(index), ROWS, replace=False)
            fitted = fit_host(own.take(used), measured[index[used]], prior).engine
            seconds = own.seconds(fitted)
            seconds[used] = np.nan
            ten[draw, index] = seconds
    return Predictions(measured, table.roof_seconds(), preset_seconds(table, cases), unseen, ten)


def _class_of(case: Case) -> str:
    return case.setting.preset if case.family == "gguf" else FAMILY_PRESET[case.family]


def preset_seconds(table: StepTable, cases: Sequence[Case]) -> Array:
    """Each case under its own preset."""
    seconds = np.zeros(len(cases))
    for name in sorted({c.setting.preset for c in cases}):
        chosen = np.asarray([c.setting.preset == name for c in cases])
        seconds[chosen] = table.seconds(load_engine(name))[chosen]
    return seconds
