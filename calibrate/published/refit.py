"""Refit the presets' numbers on the published rows that name them, and write their YAML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibrate.host import FittedEngine, fit_host
from calibrate.published.cases import Case
from calibrate.published.holdout import balanced, neutral
from calibrate.step_table import StepTable
from perfmodel.specs.engine import ENGINES, Engine, load_engine
from perfmodel.specs.engine_timing import GemmScale, Kernels

MARK = "# Below: host time and kernels."
HEAD = (
    MARK + " Numbers with a fit are written by\n"
    "# `python -m calibrate.published --refit`, relative to the calibration that the source names.\n"
)
ALL_OF_CLASS = {"compiled": "compiled"}
"""Presets fitted on all rows of a class instead of those that name them."""


def refit(table: StepTable, cases: Sequence[Case], name: str) -> tuple[FittedEngine, list[str]]:
    """Fit a preset from round numbers; also the sources used."""
    family = ALL_OF_CLASS.get(name)
    chosen = np.asarray(
        [i for i, c in enumerate(cases) if (c.family == family if family else _named(c, name))]
    )
    measured = np.asarray([cases[i].measured_s for i in chosen])
    prior = neutral(load_engine(name))
    fitted = fit_host(table.take(chosen), measured, prior, balanced(cases, chosen))
    return fitted, sorted({cases[i].source for i in chosen})


def _named(case: Case, name: str) -> bool:
    return case.setting.preset == name


def write_preset(fitted: FittedEngine, sources: Sequence[str], calibration: str) -> Path:
    """Replace the part of the preset's file below the mark."""
    engine = fitted.engine
    path = ENGINES / f"{engine.name}.yaml"
    rows = len(fitted.log_residuals)
    error = 100 * float(np.median(np.abs(np.expm1(-fitted.log_residuals))))
    text = (
        f"fitted on {rows} published rows ({', '.join(sources)}) over the {calibration}"
        f" calibration; median error there {error:.1f} %"
    )
    if fitted.at_bound:
        text += f"; at a bound: {', '.join(fitted.at_bound)}"
    top = path.read_text(encoding="utf-8").split(MARK)[0]
    path.write_text(top + HEAD + _sections(engine, text), encoding="utf-8")
    return path


def _digits(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _sections(engine: Engine, source: str) -> str:
    host, kernels = engine.host, engine.kernels
    lines = ["host:"]
    for name in ("step_us", "layer_us", "sequence_us", "floor_us", "floor_layer_us"):
        lines.append(f"  {name}: {_digits(getattr(host, name))}")
    lines += [f"  spread: {_digits(min(host.spread, 1.6))}", *_folded(source), "kernels:"]
    for field in Kernels.model_fields:
        value = getattr(kernels, field)
        if field == "source" or value == Kernels.model_fields[field].default:
            continue
        lines.append(f"  {field}: {_value(value)}")
    return "\n".join([*lines, *_folded("as the host's"), ""])


def _value(value: object) -> str:
    if isinstance(value, GemmScale):
        parts = {k: v for k, v in value.model_dump().items() if v is not None}
        return "{" + ", ".join(f"{k}: {_digits(v)}" for k, v in parts.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    return _digits(value) if isinstance(value, float) else str(value)


def _folded(text: str, width: int = 96) -> list[str]:
    lines, line = ["  source: >-"], "   "
    for word in text.split():
        if len(line) + 1 + len(word) > width:
            lines.append(line)
            line = "   "
        line += f" {word}"
    return [*lines, line]


