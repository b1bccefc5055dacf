"""Refit the presets' numbers on the published rows that name them, and write their YAML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrate.host import fit_host
from calibrate.published.cases import Case
from calibrate.published.holdout import Sources, balanced, neutral
from calibrate.step_table import StepTable
from perfmodel.specs.engine import ENGINES, Engine, load_engine
from perfmodel.specs.engine_timing import GemmScale, Kernels

MARK = "# Below: host time and kernels."
HEAD = (
    MARK + " Numbers with a fit are written by\n"
    "# `python -m calibrate.published --refit`, relative to the calibration that `source` names.\n"
)
CLASS_PRESET = {"compiled": "compiled"}
"""Presets that stand for a class: the mean of its sources' fits."""


@dataclass(frozen=True, slots=True)
class Refitted:
    """A preset with new numbers, and what they came from."""

    engine: Engine
    sources: list[str]
    rows: int
    median_error: float
    """In per cent, on the rows used."""
    at_bound: tuple[str, ...] = ()


def refit(table: StepTable, cases: Sequence[Case], name: str) -> Refitted:
    """Fit a preset's numbers, starting from round ones."""
    if name in CLASS_PRESET:
        family = CLASS_PRESET[name]
        chosen = np.asarray([i for i, c in enumerate(cases) if c.family == family])
        engine = Sources.of(table, cases).class_numbers(family, name)
        stuck: tuple[str, ...] = ()
    else:
        chosen = np.asarray([i for i, c in enumerate(cases) if c.setting.preset == name])
        measured = np.asarray([cases[i].measured_s for i in chosen])
        weights = balanced(cases, chosen)
        fitted = fit_host(table.take(chosen), measured, neutral(load_engine(name)), weights)
        engine, stuck = fitted.engine, fitted.at_bound
    measured = np.asarray([cases[i].measured_s for i in chosen])
    error = np.abs(table.take(chosen).seconds(engine) / measured - 1)
    sources = sorted({cases[i].source for i in chosen})
    return Refitted(engine, sources, len(chosen), 100 * float(np.median(error)), stuck)


def write_preset(new: Refitted, calibration: str) -> Path:
    """Replace the part of the preset's file below the mark."""
    path = ENGINES / f"{new.engine.name}.yaml"
    how = "mean of the fits of each source" if new.engine.name in CLASS_PRESET else "fitted"
    text = (
        f"{how} on {new.rows} published rows ({', '.join(new.sources)}) over the {calibration}"
        f" calibration; median error there {new.median_error:.1f} %"
    )
    if new.at_bound:
        text += f"; at a bound: {', '.join(new.at_bound)}"
    top = path.read_text(encoding="utf-8").split(MARK)[0]
    path.write_text(top + HEAD + _sections(new.engine, text), encoding="utf-8")
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
