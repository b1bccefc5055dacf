"""`calibrate serving`: an engine preset refitted on a few loads of one's own deployment."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrate.score import Score
from calibrate.serving_check import ENGINES, Predicted, Predictor, score_of
from calibrate.serving_fit import Response, claims_ttft, fit_numbers, responses
from calibrate.serving_preset import Numbers, changed, text_of
from calibrate.serving_table import ServingTable
from calibrate.serving_transfer import Carried, carried, deployment, grouped
from calibrate.write import today
from perfmodel.errors import InputError
from perfmodel.specs.engine import Engine, load_engine
from perfmodel.whole_file import write_text

FURTHEST = 5.0
"""Times off the preset's TPOT from which a point is a slip of units or of columns."""
FURTHEST_TTFT = 20.0
"""The same of its TTFT, which a queue may lengthen."""
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
    """Each point with the numbers fitted on the others; empty for one point or deployment."""
    carried: Carried | None
    """What holds across the points' deployments; None for points of one."""
    with_ttft: int
    """Points whose TTFT was fitted beside their TPOT."""


def fit_serving(table: ServingTable, preset: str | None = None) -> ServingFit:
    """Fit three numbers on a table's rows, with the preset as prior; None: of the rows' engine.

    Rows of one deployment (model, GPU and format) are fitted as they are. Of several, what holds
    across them is: as much as predicts each model and GPU from the others best.

    Raises:
        InputError: a row that can't be used, by number; rows of several engines.
    """
    names = list(dict.fromkeys(row.engine for row in table.rows))
    if len(names) > 1:
        raise InputError(f"{table.source}: engine: {', '.join(names)}: fit one of them at a time")
    own = preset is None
    preset = preset or ENGINES.get(names[0], names[0])
    if len(table.rows) > MOST_POINTS:
        raise InputError(f"{table.source}: {len(table.rows)} points: give up to {MOST_POINTS}")
    engine = _prior(preset, table, own)
    found = [_usable(made, table.source) for made in responses(Predictor(preset), table.rows)]
    across = carried(found) if len(grouped(found)) > 1 else None
    numbers = across.numbers if across else fit_numbers(found)
    new = changed(engine, numbers)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fitted.yaml"
        path.write_text(text_of(new), encoding="utf-8")
        again = Predictor(str(path))
        after = [again.predict(row) for row in table.rows]
    plain = tuple(r.predicted for r in found)
    return ServingFit(
        new, found[0].own, numbers, plain, tuple(after), _left_out(found), across,
        sum(claims_ttft(p) and bool(np.isfinite(p.row.ttft_ms)) for p in plain),
    )  # fmt: skip


def _left_out(found: list[Response]) -> tuple[Predicted, ...]:
    """Each point with the numbers of the others; of the other deployments where there are some."""
    if len(found) == 1:
        return ()
    if len(grouped(found)) == 1:
        return tuple(r.at(fit_numbers([o for o in found if o is not r]).array) for r in found)
    without = {
        key: carried([r for r in found if deployment(r) != key]).numbers.array
        for key in dict.fromkeys(deployment(r) for r in found)
    }
    return tuple(r.at(without[deployment(r)]) for r in found)


def _prior(preset: str, table: ServingTable, own: bool) -> Engine:
    """The preset to start from, ``own``: that of the rows' engine.

    Raises:
        InputError: there is none such, by the flag or the row that names it.
    """
    try:
        return load_engine(preset)
    except InputError as error:
        if not own:
            raise
        said = str(error).removeprefix("--engine: ")
        where = f"{table.source}: row {table.rows[0].number}: engine"
        raise InputError(f"{where}: {said}; --engine names one for all rows") from None


def _usable(made: Response | Predicted, path: Path) -> Response:
    row = made.row if isinstance(made, Predicted) else made.predicted.row
    where = f"{path}: row {row.number}"
    if isinstance(made, Predicted):
        raise InputError(f"{where}: {made.reason}")
    if row.osl == 1:
        raise InputError(f"{where}: osl: 1 token has no time per output token; give 2 or more")
    if not np.isfinite(row.tpot_ms):
        raise InputError(f"{where}: tpot_ms: is empty; a measured mean is needed")
    fitted = {"tpot_ms": FURTHEST}
    if claims_ttft(made.predicted) and np.isfinite(row.ttft_ms):
        fitted["ttft_ms"] = FURTHEST_TTFT
    for name, furthest in fitted.items():
        measured = getattr(row, name)
        ratio = measured / getattr(made.predicted, name)
        if not 1 / furthest < ratio < furthest:
            raise InputError(
                f"{where}: {name}: {measured:g} is {ratio:.3g} times what the preset predicts: "
                "check units, tp and concurrency"
            )
    return made


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
    write_text(path, head + text_of(engine))


def tpot_score(points: tuple[Predicted, ...]) -> Score:
    """Errors of TPOT in per cent."""
    return score_of(points, "tpot_ms")
