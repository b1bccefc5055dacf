"""An engine preset refitted on a few step times of one's own deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from calibrate.csv_file import read_text
from calibrate.host import fit_host
from calibrate.published.build import build_table
from calibrate.published.cases import Case, Setting
from calibrate.score import Score, score
from calibrate.step_table import StepTable
from calibrate.write import today
from perfmodel.errors import InputError
from perfmodel.specs.engine import Engine, load_engine
from perfmodel.specs.plain_numbers import plain_float
from perfmodel.specs.workload import LARGEST
from perfmodel.whole_file import write_text

NEEDED = ("model", "hardware", "batch", "prompt", "output", "quantity", "seconds")
QUANTITIES = ("ttft", "tpot", "total")
DEFAULTS: dict[str, Any] = {
    "tp": 1, "pp": 1, "weights": "auto", "activations": "auto", "kv_cache": "auto",
}  # fmt: skip
NUMBERS = ("batch", "prompt", "output", "seconds", "tp", "pp")
FURTHEST = 20.0
"""Times off the preset's prediction from which a point is a slip of units, not a slow engine."""
MOST = 1000
"""Points that a file may hold: a preset has a handful of numbers."""


@dataclass(frozen=True, slots=True)
class Refitted:
    """A preset with numbers fitted on points, and its errors on them before and after."""

    engine: Engine
    points: int
    before: Score
    after: Score
    at_bound: tuple[str, ...]


def read_points(path: Path, engine: str) -> list[Case]:
    """Points of a CSV: one measured time of one static batch a row.

    Columns: model, hardware, batch, prompt, output, quantity (``ttft``, ``tpot`` without the first
    token, or ``total``), seconds; and, where they aren't the defaults, tp, pp, weights,
    activations, kv_cache.

    Raises:
        InputError: one line with file, row and column.
    """
    table = read_text(path)
    missing = [name for name in NEEDED if name not in table]
    if missing:
        raise InputError(f"{path}: columns missing: {', '.join(missing)}; needed: {NEEDED}")
    if not 0 < len(table) <= MOST:
        raise InputError(f"{path}: {len(table)} points; between 1 and {MOST} are taken")
    rows = [dict.fromkeys(NEEDED, "") | _record(row) for row in table.to_dict("records")]
    return [_case(row, number, path, engine) for number, row in enumerate(rows, 1)]


def _record(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row's values: numbers where they are meant and written, defaults where nothing stands."""
    texts = {str(name): str(text).strip() for name, text in row.items()}
    return DEFAULTS | {name: _typed(name, text) for name, text in texts.items() if text}


def _typed(name: str, text: str) -> Any:
    try:
        return plain_float(text) if name in NUMBERS else text
    except ValueError:
        return text


def _whole(row: dict[str, Any], name: str, where: str) -> int:
    value = row[name]
    known = isinstance(value, int | float) and 1 <= value <= LARGEST
    if not known or value != value // 1:
        raise InputError(
            f"{where}: {name}: a whole number from 1 to {LARGEST:,} is needed, not {value!r:.40}"
        )
    return int(value)


def _case(row: dict[str, Any], number: int, path: Path, engine: str) -> Case:
    where = f"{path}: row {number}"
    if row["quantity"] not in QUANTITIES:
        raise InputError(f"{where}: quantity: {row['quantity']!r:.40} is none of {QUANTITIES}")
    seconds = row["seconds"]
    if not isinstance(seconds, int | float) or not np.isfinite(seconds) or seconds <= 0:
        raise InputError(f"{where}: seconds: a positive number is needed, not {seconds!r:.40}")
    if row["quantity"] == "tpot" and _whole(row, "output", where) == 1:
        raise InputError(f"{where}: output: 1 token has no time per output token; give 2 or more")
    setting = Setting(
        model=str(row["model"]),
        quantised_head=False,
        dummy_experts=False,
        hardware=str(row["hardware"]),
        pcie_only=False,
        weights=str(row["weights"]),
        activations=str(row["activations"]),
        kv_cache=str(row["kv_cache"]),
        tp=_whole(row, "tp", where),
        pp=_whole(row, "pp", where),
        preset=engine,
        host_speed=1.0,
        quantity=row["quantity"],
    )
    return Case(
        id=str(number),
        source=path.name,
        origin=path.name,
        family="own",
        regime="own",
        setting=setting,
        batch=_whole(row, "batch", where),
        prompt=_whole(row, "prompt", where),
        output=_whole(row, "output", where),
        measured_s=float(seconds),
    )


def refit_engine(cases: Sequence[Case], preset: str) -> Refitted:
    """Fit a preset's numbers on points, with the preset itself as prior: few points move little."""
    table = _table(cases)
    measured = np.asarray([case.measured_s for case in cases])
    prior = load_engine(preset)
    for case, ratio in zip(cases, measured / table.seconds(prior), strict=True):
        if not 1 / FURTHEST < ratio < FURTHEST:
            raise InputError(
                f"{case.source}: row {case.id}: seconds: {case.measured_s:g} is {ratio:.3g} times "
                f"what {preset} predicts: seconds are meant, of one step or one request"
            )
    fitted = fit_host(table, measured, prior)
    return Refitted(
        engine=fitted.engine,
        points=len(cases),
        before=score(table.seconds(prior), measured),
        after=score(table.seconds(fitted.engine), measured),
        at_bound=fitted.at_bound,
    )


def _table(cases: Sequence[Case]) -> StepTable:
    """What each point asks of an engine.

    Raises:
        InputError: a point that can't be, by its row.
    """
    try:
        return build_table(cases)
    except InputError as error:
        for case in cases:  # one by one is slow, but then the row is known
            _check(case)
        raise InputError(f"{cases[0].source}: {error}") from None


def _check(case: Case) -> None:
    try:
        build_table([case])
    except InputError as error:
        raise InputError(f"{case.source}: row {case.id}: {error}") from None


def write_engine(new: Refitted, path: Path, points: Path) -> None:
    """Write the preset as a file that ``--engine`` takes."""
    data = new.engine.model_dump(mode="json", by_alias=True, exclude_none=True)
    data["name"] = path.stem
    said = f"{new.points} points of {points.name}, {today()}, prior {new.engine.name}"
    data["host"]["source"] = f"fitted on {said}"
    data["kernels"]["source"] = f"fitted on {said}"
    head = "# Written by `perfmodel calibrate engine`; give it to --engine.\n"
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=None)
    write_text(path, head + text)
