"""A fresh run of shapes that weren't fitted on: how wrong a calibration is on its own device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrate.cases_file import CasesFile
from calibrate.device import Device
from calibrate.fit_run import chip_of
from calibrate.measure import Progress, Runner, settings_of
from calibrate.plan import Plan, make_plan
from calibrate.roof import Roof
from calibrate.run_rows import Measured, read_run
from calibrate.runs.registry import CEILINGS
from calibrate.score import Score, score
from perfmodel.errors import InputError
from perfmodel.kernels.calibration_file import Calibrated
from perfmodel.operators.quantity import Array
from perfmodel.specs.hardware import Hardware

SEED = 7919
"""Added to a case file's seed: other shapes on the same axes."""
FACTOR = 2.0
"""By how much the median error must beat the bare roofline's on the same rows."""
LEAST_COVERAGE = 75.0
"""Per cent of rows inside the 90 % interval, below which an interval is no answer."""
ALL = "all"


@dataclass(frozen=True, slots=True)
class SetCheck:
    """One set, or all together, on fresh rows."""

    name: str
    score: Score
    bare: Score
    """Of the bare roofline on the same rows."""

    @property
    def factor(self) -> float:
        """Median error of the roofline over that of the calibration."""
        return self.bare.median / max(self.score.median, 1e-9)


@dataclass(frozen=True, slots=True)
class Check:
    """What a check found."""

    sets: tuple[SetCheck, ...]
    """Set by set, ``all`` last."""
    left_out: Mapping[str, str]
    """Rows and sets that weren't checked, with the reason."""

    @property
    def total(self) -> SetCheck:
        """All rows together."""
        return self.sets[-1]

    @property
    def failures(self) -> tuple[str, ...]:
        """Why the calibration isn't good enough; nothing if it is."""
        found = []
        total = self.total
        if total.factor < FACTOR:
            found.append(
                f"the median error of {total.score.median:.1f} % isn't {FACTOR:g} times below the "
                f"bare roofline's {total.bare.median:.1f} %"
            )
        if total.score.coverage < LEAST_COVERAGE:
            found.append(
                f"the 90 % intervals hold {total.score.coverage:.0f} % of the rows, below "
                f"{LEAST_COVERAGE:g} %"
            )
        return tuple(found)


def fresh_cases(cases: CasesFile, seed: int = SEED) -> CasesFile:
    """The same axes with another draw: no ceilings, no shapes that are always measured."""
    drawn = {
        name: group.model_copy(update={"also": ()})
        for name, group in cases.families.items()
        if name not in CEILINGS and group.count
    }
    return cases.model_copy(update={"families": drawn, "seed": cases.seed + seed})


def run_check(
    device: Device,
    hardware: Hardware,
    calibrated: Calibrated,
    cases: CasesFile,
    out: Path,
    *,
    seed: int = SEED,
    tolerance: float = 0.02,
    started: Callable[[Plan], Progress] | None = None,
) -> Check:
    """Measure a fresh draw of ``cases`` on ``device`` into ``out`` and compare.

    Raises:
        InputError: the calibration is another device's, or ``out`` has other rows.
    """
    if calibrated.hardware != hardware.name:
        raise InputError(
            f"the calibration is of {calibrated.hardware}, the profile of {hardware.name}"
        )
    plan = make_plan(fresh_cases(cases, seed), device)
    runner = Runner(device, out, settings_of(cases, tolerance), roof=Roof.of(hardware))
    runner.run(plan, started(plan) if started else lambda case, row: None)
    run = read_run(out, hardware)
    return compare(run.sets, hardware, calibrated, run.left_out)


def compare(
    measured: Mapping[str, Measured],
    hardware: Hardware,
    calibrated: Calibrated,
    left_out: Mapping[str, str] | None = None,
) -> Check:
    """Predictions of measured sets beside the bare roofline.

    Raises:
        InputError: none of the rows has a set.
    """
    without = dict(left_out or {})
    parts: dict[str, tuple[Array, ...]] = {}
    for name, rows in measured.items():
        found, chip = calibrated.sets.get(name), chip_of(rows.family, rows.dtype, hardware)
        if found is None or chip is None:
            without[name] = f"{len(rows)} rows without a fitted set"
        elif rows.family != "launch":
            ends = found.kernels.predict(chip[0], rows.shapes)
            parts[name] = (*ends, roof_seconds(rows, chip[0].peak, hardware), rows.seconds)
    if not parts:
        raise InputError("the calibration has no set for any of the rows")
    parts[ALL] = tuple(np.concatenate(columns) for columns in zip(*parts.values(), strict=True))
    return Check(tuple(_scored(name, *columns) for name, columns in parts.items()), without)


def roof_seconds(rows: Measured, peak: float, hardware: Hardware) -> Array:
    """The least that rows take at the profile's peaks."""
    roof: Array = np.maximum(rows.flops / peak, rows.bytes / hardware.memory_bandwidth)
    return roof


def _scored(
    name: str, predicted: Array, low: Array, high: Array, roof: Array, measured: Array
) -> SetCheck:
    return SetCheck(name, score(predicted, measured, low, high), score(roof, measured))
