"""Write a calibration file: the only way that one comes into being."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from calibrate.calibrated import CalibratedSet
from calibrate.fit import rounded
from calibrate.score import Score
from perfmodel.kernels.calibration_file import CalibrationFile, encode
from perfmodel.operators.quantity import Array
from perfmodel.whole_file import write_text

HEADER = """\
# Written by `perfmodel calibrate fit`; don't edit. Parameters are shares of the datasheet's rates,
# times and pure numbers, with the standard error of their logarithm. `errors` are those on rows
# that the fit didn't see, in per cent of the measured time.
"""


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a file says of itself."""

    hardware: str
    stack: str
    release: str
    date: str
    source: str


@dataclass(frozen=True, slots=True)
class FittedSet:
    """A calibrated set with what a file needs to rebuild it."""

    calibrated: CalibratedSet
    facts: Mapping[str, Any]
    """What tells the form's builder which form it was."""
    arithmetic: str
    kernels: str
    scores: Mapping[str, Score]


def today() -> str:
    """The date that a file bears."""
    return datetime.now(tz=UTC).date().isoformat()


def _numbers(values: Array) -> list[float]:
    return [rounded(float(value)) for value in values]


def _residual(calibrated: CalibratedSet) -> dict[str, Any] | None:
    r = calibrated.residual
    if r is None:
        return None
    return {
        "variance": rounded(r.variance),
        "lengths": [float(length) for length in r.lengths],
        "rows": len(r.weights),
        "points": encode(r.points),
        "weights": encode(r.weights),
    }


def set_record(fitted: FittedSet) -> dict[str, Any]:
    """One set as a file holds it."""
    c = fitted.calibrated
    units = {p.name: p.unit for p in c.form.parameters}
    parameters = {
        name: {
            "value": rounded(value),
            "relative_error": rounded(c.fitted.relative_errors[name]),
            "unit": units[name],
        }
        for name, value in c.fitted.values.items()
    }
    return {
        "form": c.form.name,
        "facts": dict(fitted.facts),
        "arithmetic": fitted.arithmetic,
        "kernels": fitted.kernels,
        "rows": len(c.used),
        "parameters": parameters,
        "at_bound": list(c.fitted.at_bound),
        "intervals": {
            name: {"low": rounded(i.low), "high": rounded(i.high), "rows": i.rows}
            for name, i in c.intervals.items()
        },
        "box_low": _numbers(c.low),
        "box_high": _numbers(c.high),
        "errors": {name: _score(score) for name, score in fitted.scores.items() if score.rows},
        "residual": _residual(c),
    }


def _score(score: Score) -> dict[str, Any]:
    two = {n: round(getattr(score, n), 2) for n in ("median", "mean", "p90", "bias", "coverage")}
    return {"rows": score.rows, **two}


def calibration_record(about: Provenance, sets: Mapping[str, FittedSet]) -> dict[str, Any]:
    """A whole file as plain data, checked against its own schema.

    Raises:
        InputError: a value that the file's reader would refuse.
    """
    record = {
        "schema": 1,
        "hardware": about.hardware,
        "stack": about.stack,
        "release": about.release,
        "origin": "fitted",
        "date": about.date,
        "source": about.source,
        "sets": {name: set_record(fitted) for name, fitted in sorted(sets.items())},
    }
    CalibrationFile.parse(record, f"{about.hardware}.{about.stack}.yaml")
    return record


def write_calibration(path: Path, about: Provenance, sets: Mapping[str, FittedSet]) -> None:
    """Write the calibration of one device and stack.

    Raises:
        InputError: a value that the file's reader would refuse; nothing is written then.
    """
    record = calibration_record(about, sets)
    text = yaml.safe_dump(
        record, sort_keys=False, width=1000, allow_unicode=True, default_flow_style=None
    )
    write_text(path, HEADER + text)
