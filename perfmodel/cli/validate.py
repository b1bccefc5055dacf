"""`perfmodel validate kernels`: predictions beside a measured table. Needs `perfmodel[calibrate]`.

`serving` joins the same ``app``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.lazy import HELP
from perfmodel.cli.output import console, figure, print_json, table
from perfmodel.cli.text import whole
from perfmodel.errors import InputError
from perfmodel.kernels.choice import Choice, choose_calibration
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.whole_file import PICTURES, Named, check_free

if TYPE_CHECKING:
    from calibrate.lint import Finding
    from calibrate.validate import RegimeScore, Validation

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings=HELP,
    help="Predictions against measurements: kernels, serving.",
)
SHOWN_ROWS = 5


@app.callback()
def group() -> None:
    """Keep `kernels` a command of its own while it is the only one."""


@app.command("kernels")
def kernels(
    measured: Annotated[
        Path, typer.Argument(metavar="TABLE", help="Measured kernels: Parquet or CSV.")
    ],
    hardware: Annotated[
        str, typer.Option("--hardware", "-H", help="Name of a profile, or a YAML file.")
    ],
    stack: Annotated[
        str | None, typer.Option("--stack", help="Whose kernels: vllm, …; else the first there is.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the rows with predictions: Parquet or CSV.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the errors: .svg, .png or .pdf.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out and --plot.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Predict every row of a measured table, and say how wrong the predictions are.

    TABLE is of one family, in the shared schema, or as aiconfigurator, Vidur or InferSim write it.
    """
    device = load_hardware(hardware)
    choice = choose_calibration(device, stack)
    reads = (measured, hardware, stack)
    _check_files(out, plot, reads, force=force)
    results = _run(measured, device, choice, (out, plot), force=force)
    if as_json:
        print_json(_record(results, device, choice))
    else:
        _print(results, device)


def _check_files(
    out: Path | None, plot: Path | None, reads: tuple[Named, ...], *, force: bool
) -> None:
    """Say before the work that its result couldn't be kept."""
    if out is not None:
        check_free(out, (".parquet", ".csv"), force=force, reads=reads)
    if plot is not None:
        check_free(plot, PICTURES, force=force, reads=reads)


Results = list[tuple["Validation", list["Finding"]]]


def _run(
    measured: Path, device: Hardware, choice: Choice | None,
    files: tuple[Path | None, Path | None], *, force: bool,
) -> Results:  # fmt: skip
    try:
        # Only this command needs pandas, which they import.
        from calibrate.lint import lint  # noqa: PLC0415
        from calibrate.predictions_file import write_predictions  # noqa: PLC0415
        from calibrate.tables import read_tables  # noqa: PLC0415
        from calibrate.validate import output_of, validate_table  # noqa: PLC0415
    except ImportError as error:
        raise InputError(f"{error}: install perfmodel[calibrate]") from None
    out, plot = files
    tables = read_tables(measured, device)
    if len(tables) > 1 and out is not None and out.suffix != ".csv":
        # Families have different columns: in Parquet they would have to be filled with nulls.
        raise InputError(f"{measured}: holds several families: --out must be a .csv")
    validations = [validate_table(t, device, choice) for t in tables]
    results = [(v, lint(v.own, device)) for v in validations]
    if out is not None:
        write_predictions(output_of(validations), out, force=force)
    if plot is not None:
        _draw(validations, plot)
    return results


def _draw(validations: list[Validation], path: Path) -> None:
    try:
        from reports.kernel_errors import draw  # noqa: PLC0415
    except ImportError as error:
        raise InputError(f"--plot: {error}: install perfmodel[plots]") from None
    draw(validations, path)


def _merged(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def _record(results: Results, device: Hardware, choice: Choice | None) -> dict[str, Any]:
    tables = [validation.table for validation, _ in results]
    every = [validation for validation, _ in results]
    return {
        "table": str(tables[0].source),
        "layout": tables[0].layout,
        "hardware": device.name,
        "calibration": choice.label if choice else None,
        "families": [table.family for table in tables],
        "rows": sum(len(table.rows) for table in tables),
        "predicted": sum(int(v.predicted.sum()) for v in every),
        "left_out": dict(tables[0].left_out),
        "unpredicted": _merged(v.unpredicted for v in every),
        "sources": _merged(v.sources for v in every),
        "scores": [_score_record(score) for v in every for score in v.scores],
        "findings": [
            {"check": f.check, "message": f.message, "count": f.count, "rows": list(f.rows[:100])}
            for _, findings in results
            for f in findings
        ],
    }


def _score_record(found: RegimeScore) -> dict[str, Any]:
    named = {"family": found.family, "dtype": found.dtype, "regime": found.regime}
    s = found.score
    errors = {
        "median": s.median, "mean": s.mean, "p90": s.p90, "bias": s.bias, "coverage": s.coverage,
    }  # fmt: skip
    numbers = {name: figure(value) for name, value in errors.items()}
    return named | {"source": found.source, "rows": s.rows} | numbers


def _print(results: Results, device: Hardware) -> None:
    out = console()
    for validation, findings in results:
        source = validation.table
        predicted, rows = int(validation.predicted.sum()), len(source.rows)
        out.print(
            f"{source.family} on {device.name}: {whole(predicted)} of "
            f"{whole(rows)} rows predicted", highlight=False,
        )  # fmt: skip
        if validation.scores:
            out.print(_score_table(validation))
            out.print("Errors in % of the measured time; coverage of the stated 90 % interval.")
        for name, count in validation.sources.items():
            out.print(f"Source: {name}: {whole(count)} rows", markup=False)
        for reason, count in (*source.left_out.items(), *validation.unpredicted.items()):
            out.print(f"No prediction: {reason}: {whole(count)} rows", markup=False)
        for f in findings:
            shown = ", ".join(str(row) for row in f.rows[:SHOWN_ROWS])
            more = ", …" if f.count > SHOWN_ROWS else ""
            out.print(
                f"Note: {f.check}: {whole(f.count)} rows ({shown}{more}): {f.message}", markup=False
            )


def _score_table(validation: Validation) -> Any:
    made = table(
        None,
        [("Format", "left"), ("Regime", "left"), ("Rows", "right"), ("Median", "right"),
         ("Mean", "right"), ("p90", "right"), ("Bias", "right"), ("Coverage", "right")],
    )  # fmt: skip
    last = ""
    for s in validation.scores:
        values = (s.score.median, s.score.mean, s.score.p90)
        made.add_row(
            s.dtype if s.dtype != last else "", s.regime, whole(s.score.rows),
            *(f"{value:.1f}" for value in values), f"{s.score.bias:+.1f}",
            f"{s.score.coverage:.0f}",
        )  # fmt: skip
        last = s.dtype
    return made


# `serving` joins the app here, so that whoever loads it has all its commands.
from perfmodel.cli import validate_serving as _serving  # noqa: E402, F401
