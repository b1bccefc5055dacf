"""How well an engine's numbers carry over: whole sources left out, and ten rows of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from calibrate.design import choose
from calibrate.host import fit_host, numbers_in, with_numbers
from calibrate.published.cases import Case
from calibrate.step_table import Indices, StepTable
from perfmodel.operators.quantity import Array
from perfmodel.specs.engine import Engine, load_engine
from perfmodel.specs.loading import load_model

FAMILY_PRESET = {
    "compiled": "compiled",
    "gguf": "llamacpp-cuda",
    "python": "vllm-2024",
    "rocm": "vllm-2024-rocm",
    "eager": "eager-2023",
}
"""Which numbers a class of engines has: serial time alone, or a floor as well."""
LEARNS_FROM = {"rocm": "python"}
"""Classes with one source only, and the class that its numbers come from when it is left out."""
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
FEWEST = 3
"""Rows from which a source is fitted on other sources."""


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


def balanced(cases: Sequence[Case], chosen: Indices) -> Array:
    """Weights that let each source count alike, and a row at most once."""
    names = [cases[i].source for i in chosen]
    size = {name: names.count(name) for name in set(names)}
    smallest = float(np.median(list(size.values())))
    return np.asarray([min(1.0, smallest / size[name]) for name in names])


def fit_on(table: StepTable, cases: Sequence[Case], chosen: Indices, prior: Engine) -> Engine:
    """Numbers of ``prior`` fitted on some cases, sources weighed alike."""
    measured = np.asarray([cases[i].measured_s for i in chosen])
    return fit_host(table.take(chosen), measured, prior, balanced(cases, chosen)).engine


@dataclass(frozen=True, slots=True)
class Sources:
    """Cases by source, and the fits of each source alone."""

    table: StepTable
    cases: Sequence[Case]
    rows: dict[str, Indices]
    _fits: dict[tuple[str, str], Engine] = field(default_factory=dict)

    @classmethod
    def of(cls, table: StepTable, cases: Sequence[Case]) -> Sources:
        """Group ``cases`` by source."""
        names = np.asarray([c.source for c in cases])
        return cls(table, cases, {n: np.flatnonzero(names == n) for n in sorted(set(names))})

    def fit(self, source: str, facts: str) -> Engine:
        """Numbers of one source, from round ones, with the set of numbers that ``facts`` has."""
        if (source, facts) not in self._fits:
            index = self.rows[source]
            prior = neutral(load_engine(facts))
            self._fits[source, facts] = fit_on(self.table, self.cases, index, prior)
        return self._fits[source, facts]

    def class_numbers(self, family: str, facts: str, without: str = "") -> Engine:
        """A class's numbers: the geometric mean of its sources' fits, origin ``without`` left out.

        Not one fit over all their rows: where sources disagree it would bend the kernels' factors
        to make up for a host's time, and the result fits none.
        """
        chosen = self._of(family, without) or self._of("compiled", without)
        base = neutral(load_engine(facts))
        fits = [numbers_in(self.fit(source, facts)) for source in chosen]
        mean = {n: float(np.exp(np.mean([np.log(f[n]) for f in fits]))) for n in fits[0]}
        return with_numbers(base, mean)

    def _of(self, family: str, without: str) -> list[str]:
        found = []
        for source, index in self.rows.items():
            first = self.cases[index[0]]
            if first.family == family and first.origin != without and len(index) >= FEWEST:
                found.append(source)
        return found


def predict(table: StepTable, cases: Sequence[Case]) -> Predictions:
    """All columns for all cases."""
    measured = np.asarray([c.measured_s for c in cases])
    unseen = np.full(len(cases), np.nan)
    ten = np.full((DRAWS, len(cases)), np.nan)
    sources = Sources.of(table, cases)
    for index in sources.rows.values():
        first = cases[index[0]]
        family = LEARNS_FROM.get(first.family, first.family)
        prior = sources.class_numbers(family, _class_of(first), without=first.origin)
        own = table.take(index)
        unseen[index] = own.seconds(prior)
        for draw in range(DRAWS if len(index) >= ROWS + 3 else 0):
            used = choose(_features([cases[i] for i in index]), ROWS, seed=draw)
            fitted = fit_host(own.take(used), measured[index[used]], prior).engine
            seconds = own.seconds(fitted)
            seconds[used] = np.nan
            ten[draw, index] = seconds
    return Predictions(measured, table.roof_seconds(), preset_seconds(table, cases), unseen, ten)


def _features(cases: Sequence[Case]) -> Array:
    """What a user knows before measuring: sizes, layout, and what is timed."""
    return np.asarray(
        [
            [
                np.log2(c.batch),
                np.log2(c.prompt),
                np.log2(c.output),
                2 * np.log2(c.setting.tp * c.setting.pp),
                2 * np.log2(load_model(c.setting.model).hidden),
                4.0 * (c.setting.quantity == "ttft"),
                2.0 * (c.setting.weights != "bf16"),
            ]
            for c in cases
        ]
    )


def _class_of(case: Case) -> str:
    return case.setting.preset if case.family == "gguf" else FAMILY_PRESET[case.family]


def preset_seconds(table: StepTable, cases: Sequence[Case]) -> Array:
    """Each case under its own preset."""
    seconds = np.zeros(len(cases))
    for name in sorted({c.setting.preset for c in cases}):
        chosen = np.asarray([c.setting.preset == name for c in cases])
        seconds[chosen] = table.seconds(load_engine(name))[chosen]
    return seconds
