"""`perfmodel validate serving`: simulated loads beside measured ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.calibrate import Progress
from perfmodel.cli.output import console, figure, print_json, table
from perfmodel.cli.text import whole
from perfmodel.cli.validate import app
from perfmodel.errors import InputError
from perfmodel.specs.engine import load_engine
from perfmodel.whole_file import PICTURES, check_free, check_unread

if TYPE_CHECKING:
    from calibrate.score import Score
    from calibrate.serving_check import GroupScore, ServingCheck

TITLES = {
    "all": "", "engine": "Engine", "model": "Model", "gpu": "GPU", "bench": "Bench",
    "concurrency": "Users", "kv": "Cache", "deployment": "Deployment",
}  # fmt: skip


@app.command("serving")
def serving(
    measured: Annotated[
        Path, typer.Argument(metavar="TABLE", help="Measured loads: CSV of the serving schema.")
    ],
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="Preset or file for all rows; else by each row's engine."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the rows with predictions: CSV.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the errors: .svg, .png or .pdf.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out and --plot.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Simulate every row of a table of measured servers, and say how wrong that is.

    Each row is a closed loop: all users start at once and send ten requests, one by one.
    """
    try:
        from calibrate.predictions_file import write_predictions  # noqa: PLC0415
        from calibrate.serving_check import check_serving, output_of  # noqa: PLC0415
        from calibrate.serving_table import read_serving  # noqa: PLC0415
    except ImportError as error:
        raise InputError(f"{error.name} is missing: pip install 'perfmodel[calibrate]'") from None
    files = [file for file in (out, plot) if file is not None]
    for file in files:
        suffixes = (".csv",) if file is out else PICTURES
        check_free(file, suffixes, force=force, reads=[measured, engine])
    if engine is not None:
        load_engine(engine)  # wrong for all rows, it would be the reason of each
    read = read_serving(measured)
    for file in files:
        check_unread(file, read.names)
    with _Bar(len(read.rows), quiet=as_json) as moved:
        check = check_serving(read, engine, moved)
    if out is not None:
        write_predictions(output_of(check), out, force=force)
    if plot is not None:
        _draw(check, plot)
    if as_json:
        print_json(_record(check))
    else:
        _print(check)


def _draw(check: ServingCheck, path: Path) -> None:
    try:
        from reports.serving_errors import draw  # noqa: PLC0415
    except ImportError as error:
        raise InputError(f"--plot: {error}: install perfmodel[plots]") from None
    draw(check, path)


class _Bar:
    """Rows done, on stderr."""

    def __init__(self, rows: int, *, quiet: bool) -> None:
        self._rows, self._progress = rows, Progress(quiet=quiet)

    def __enter__(self) -> _Bar:
        self._progress.__enter__()
        bar = self._progress._bar
        self._task = bar.add_task("simulating", total=self._rows) if bar is not None else None
        return self

    def __exit__(self, *fault: Any) -> None:
        self._progress.__exit__(*fault)

    def __call__(self, done: int, _total: int) -> None:
        bar = self._progress._bar
        if bar is not None:
            bar.update(self._task, completed=done)


def _reasons(check: ServingCheck) -> dict[str, int]:
    return dict(Counter(p.reason for p in check.predicted if p.reason))


def _errors(score: Score) -> dict[str, Any]:
    numbers = {name: figure(getattr(score, name), 4) for name in ("median", "p90", "bias")}
    return {"rows": score.rows, **numbers}


def _group(found: GroupScore) -> dict[str, Any]:
    return {
        "group": found.group, "name": found.name,
        "tpot": _errors(found.tpot), "ttft": _errors(found.ttft),
    }  # fmt: skip


def _record(check: ServingCheck) -> dict[str, Any]:
    return {
        "table": str(check.table.source),
        "rows": len(check.predicted),
        "predicted": sum(not p.reason for p in check.predicted),
        "unpredicted": _reasons(check),
        "scores": [_group(found) for found in check.scores],
        "flagged": [_group(found) for found in check.flagged],
    }


def _print(check: ServingCheck) -> None:
    out = console()
    rows = check.predicted
    out.print(
        f"{whole(sum(not p.reason for p in rows))} of {whole(len(rows))} rows predicted",
        highlight=False,
    )
    out.print(_table("Rows without a flag", check.scores))
    if check.flagged:
        out.print(_table("Flagged rows, which no goal rests on", check.flagged))
    out.print("Errors in % of the measured mean: median, 90th percentile, bias.")
    for reason, count in _reasons(check).items():
        out.print(f"No prediction: {reason}: {whole(count)} rows", markup=False)


def _table(title: str, scores: tuple[GroupScore, ...]) -> Any:
    made = table(
        title,
        [("By", "left"), ("", "left"), ("Rows", "right"), ("TPOT", "right"), ("p90", "right"),
         ("Bias", "right"), ("TTFT", "right"), ("p90", "right"), ("Bias", "right")],
    )  # fmt: skip
    last = ""
    for s in scores:
        title = TITLES.get(s.group, "Flag")
        cells = [
            text for score in (s.tpot, s.ttft)
            for text in (f"{score.median:.1f}", f"{score.p90:.0f}", f"{score.bias:+.1f}")
        ]  # fmt: skip
        made.add_row(title if title != last else "", s.name, whole(s.tpot.rows), *cells)
        last = title
    return made
