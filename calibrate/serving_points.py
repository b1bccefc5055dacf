"""`calibrate serving`: an engine preset refitted on a few loads of one's own deployment."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from calibrate.score import Score
from calibrate.serving_check import ENGINES, Predicted, Predictor, score_of
from calibrate.serving_fit import Numbers, Response, fit_numbers, responses
from calibrate.serving_table import ServingTable
from calibrate.write import today
from perfmodel.errors import InputError
from perfmodel.specs.engine import Engine, load_engine
from perfmodel.whole_file import write_text

FURTHEST = 5.0
"""Times off the preset's TPOT from which a point is a slip of units or of columns."""
MOST_POINTS = 50
"""Points beyond which a table isn't a handful of one's own."""


@dataclass(frozen=True, slots=True)
class ServingFit:
    """A preset refitted on points, and its errors on them."""

    engine: Engine
    """The preset's name and numbers, changed."""
    own: Numbers
    numbers: Numbers
    before: tuple[Predicted, ...]
    after: tuple[Predicted, ...]
    """Simulated with the new preset."""
    left_out: tuple[Predicted, ...]
    """Each point with the numbers fitted on the others; empty for one point."""


def fit_serving(table: ServingTable, preset: str | None = None) -> ServingFit:
    """Fit three numbers on a table's rows, with the preset as prior; None: of the rows' engine.

    Raises:
        InputError: a row that can't be used, by number; rows of several engines.
    """
    names = list(dict.fromkeys(row.engine for row in table.rows))
    if len(names) > 1:
        raise InputError(f"{table.source}: engine: {', '.join(names)}: fit one of them at a time")
    preset = preset or ENGINES.get(names[0], names[0])
    if len(table.rows) > MOST_POINTS:
        raise InputError(
            f"{table.source}: {len(table.rows)} points: give up to {MOST_POINTS}, of one deployment"
        )
    engine = load_engine(preset)
    found = [_usable(made, table.source) for made in responses(Predictor(preset), table.rows)]
    numbers = fit_numbers(found)
    new = _changed(engine, numbers)
    left_out = [
        point.at(fit_numbers([r for r in found if r is not point]).array)
        for point in found if len(found) > 1
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fitted.yaml"
        path.write_text(_text(new), encoding="utf-8")
        again = Predictor(str(path))
        after = [again.predict(row) for row in table.rows]
    return ServingFit(
        new, found[0].own, numbers, tuple(r.predicted for r in found), tuple(after), tuple(left_out)
    )


def _usable(made: Response | Predicted, path: Path) -> Response:
    row = made.row if isinstance(made, Predicted) else made.predicted.row
    where = f"{path}: row {row.number}"
    if isinstance(made, Predicted):
        raise InputError(f"{where}: {made.reason}")
    if row.osl == 1:
        raise InputError(f"{where}: osl: 1 token has no time per output token; give 2 or more")
    if not np.isfinite(row.tpot_ms):
        raise InputError(f"{where}: tpot_ms: is empty; a measured mean is needed")
    ratio = row.tpot_ms / made.predicted.tpot_ms
    if not 1 / FURTHEST < ratio < FURTHEST:
        raise InputError(
            f"{where}: tpot_ms: {row.tpot_ms:g} is {ratio:.3g} times what the preset predicts: "
            "check units, tp and concurrency"
        )
    return made


def written(value: float) -> float:
    """A fitted number to four digits, more than a fit on a few loads knows.

    >>> written(0.83999999999), written(1234.56)
    (0.84, 1235.0)
    """
    return float(f"{value:.4g}")


def _changed(engine: Engine, numbers: Numbers) -> Engine:
    """The preset with new host times, and every kernel factor times the new one."""
    k, f = engine.kernels, numbers.kernels
    gemms: dict[str, Any] = {}
    for name in ("gemm", "gemm_8bit", "gemm_4bit"):
        scale = getattr(k, name)
        if scale is not None:
            changed = {"compute": written(scale.compute * f), "memory": written(scale.memory * f)}
            gemms[name] = scale.model_copy(update=changed)
    own = k.all_reduce
    if own is not None:
        own = own.model_copy(update={
            "start_us": written(own.start_us * f), "rank_us": written(own.rank_us * f),
            "link_share": min(1.0, written(own.link_share / f)),
        })  # fmt: skip
    kernels = k.model_copy(update={
        **gemms, "attention": written(k.attention * f), "collective": written(k.collective * f),
        "all_reduce": own,
    })  # fmt: skip
    host = engine.host.model_copy(
        update={"step_us": written(numbers.step_us), "sequence_us": written(numbers.sequence_us)}
    )
    return engine.model_copy(update={"kernels": kernels, "host": host})


def _text(engine: Engine) -> str:
    data = engine.model_dump(mode="json", by_alias=True, exclude_none=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=None)


def write_fitted(fit: ServingFit, path: Path, points: Path) -> None:
    """Write the preset as a file that ``--engine`` takes."""
    count = len(fit.before)
    said = f"fitted on {count} loads of {points.name}, {today()}, prior {fit.engine.name}"
    engine = fit.engine.model_copy(update={
        "name": path.stem,
        "host": fit.engine.host.model_copy(update={"source": said}),
        "kernels": fit.engine.kernels.model_copy(update={"source": said}),
    })  # fmt: skip
    head = "# Written by `perfmodel calibrate serving`; give it to --engine.\n"
    write_text(path, head + _text(engine))


def tpot_score(points: tuple[Predicted, ...]) -> Score:
    """Errors of TPOT in per cent."""
    return score_of(points, "tpot_ms")
