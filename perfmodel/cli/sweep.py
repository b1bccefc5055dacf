"""`perfmodel sweep`: every combination of settings, filtered and ranked, kept in files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from perfmodel.cli.lazy import HELP
from perfmodel.cli.options import axis_flag, takes_axes
from perfmodel.cli.output import console, print_json, print_table
from perfmodel.cli.progress import progress_bar
from perfmodel.cli.stream import complain
from perfmodel.cli.sweep_tables import (
    count_table,
    head_lines,
    origin_lines,
    plain_row,
    row_tables,
)
from perfmodel.errors import InputError
from perfmodel.planning.sweep.answer import PART, Progress, Sweep, Swept
from perfmodel.specs.base import FieldError
from perfmodel.specs.sweep import SweepSpec, load_sweep, parse_sweep
from perfmodel.whole_file import Named, check_free, same_file

app = typer.Typer(add_completion=False, context_settings=HELP)
Form = Literal["parquet", "csv"]
DEFAULT_BEST = "output_tokens_per_s_per_gpu"
"""What the summary ranks by where nothing else is asked for."""
NAMES = ("model", "hardware", "engine", "stack")
"""Axes whose values may be files."""
_ROWS, _FILES, _OUTPUT = "Rows", "Files", "Output"


def _text(text: str, name: str, panel: str) -> Any:
    return typer.Option(name, help=text, metavar="<str>", rich_help_panel=panel)


@app.command()
@takes_axes
def command(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    axes: dict[str, Any],
    what: Annotated[
        str | None,
        typer.Argument(help="A sweep's YAML file, or models separated by commas."),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", "-H", help="Profiles: names or files.", metavar="<list>"),
    ] = None,
    where: Annotated[str | None, _text(
        "Rows that are kept, such as 'fits and tpot_ms < 40'.", "--where", _ROWS,
    )] = None,
    best_by: Annotated[str | None, _text(
        "A column: the best settings that fit; rates count high, times low, else say min:COLUMN "
        f"or max:COLUMN (default: {DEFAULT_BEST}).", "--best-by", _ROWS,
    )] = None,
    top: Annotated[int | None, typer.Option(
        "--top", help="How many of them (default: 10).", metavar="<int>", rich_help_panel=_ROWS,
    )] = None,
    per: Annotated[str | None, _text(
        "Columns: as many for each combination of their values.", "--per", _ROWS,
    )] = None,
    pareto: Annotated[str | None, _text(
        "Columns: settings that fit and that no other beats in all of them.", "--pareto", _ROWS,
    )] = None,
    out: Annotated[Path | None, typer.Option(
        "--out", help="Folder for the table's parts; the same command continues what was "
        "interrupted.", metavar="<path>", rich_help_panel=_FILES,
    )] = None,
    form: Annotated[Form, typer.Option(
        "--format", help="parquet or csv.", metavar="<str>", rich_help_panel=_FILES,
    )] = "parquet",
    part_settings: Annotated[int, typer.Option(
        "--part-settings", help="Settings of a part: what memory must hold.", metavar="<int>",
        min=1, rich_help_panel=_FILES,
    )] = PART,
    selection: Annotated[Path | None, typer.Option(
        "--selection", help="The selected rows: .csv or .parquet.", metavar="<path>",
        rich_help_panel=_FILES,
    )] = None,
    force: Annotated[bool, typer.Option(
        "--force", metavar="", rich_help_panel=_FILES,
        help="Begin anew where --out holds another sweep; overwrite --selection.",
    )] = False,
    dask: Annotated[str | None, _text(
        "Address of a Dask scheduler whose workers make the parts of --out.", "--dask", _FILES,
    )] = None,
    as_json: Annotated[bool, typer.Option(
        "--json", metavar="", help="One JSON object.", rich_help_panel=_OUTPUT,
    )] = False,
) -> None:  # fmt: skip
    """Every combination of settings: time, throughput and memory as `estimate` gives them.

    Each flag of a case takes a list (1,2,4), a range (1:256:x2, 0:1024:+128),
    or both; 1k is 1,024. What can't be run is counted by reason.
    """
    wanted = {"hardware": hardware, "where": where, "best_by": best_by, "top": top, "per": per,
              "pareto": pareto}  # fmt: skip
    given = axes | {name: value for name, value in wanted.items() if value is not None}
    try:
        sweep = Sweep(_spec(what, given))
    except FieldError as error:  # of a flag, or of a key in the file
        name = axis_flag(error.field) if error.field in given else error.field
        raise InputError(f"{name}: {error.problem}") from None
    if dask is not None and out is None:
        raise InputError("--dask: name with --out the folder that its parts are for")
    reads = (what, *(each for axis in NAMES for each in sweep.spec.values(axis)))
    keep = _keeper(selection, out, reads, force=force)
    with progress_bar("settings") as progress:
        result = _swept(sweep, out, form, part_settings, dask, progress, force=force)
    if keep is not None:
        keep(sweep, result)
    if as_json:
        print_json(_record(sweep, result, out))
    else:
        _print(sweep, result, out)


def _spec(what: str | None, given: dict[str, Any]) -> SweepSpec:
    """The sweep of a file or of flags alone.

    Raises:
        InputError: nothing is swept, or something wrong.
    """
    if what is not None and what.lower().endswith((".yaml", ".yml")):
        spec = load_sweep(what, given)
    else:
        spec = parse_sweep(given if what is None else given | {"model": what})
    if spec.best_by is None and not spec.pareto:
        return parse_sweep(spec.record() | {"best_by": DEFAULT_BEST})
    return spec


def _swept(
    sweep: Sweep,
    out: Path | None,
    form: Form,
    part_settings: int,
    dask: str | None,
    progress: Progress | None,
    *,
    force: bool,
) -> Swept:
    if out is None:
        return sweep.without_rows(part_settings, progress)
    write_sweep = _files().write_sweep
    try:
        result: Swept = write_sweep(
            sweep, out, form=form, part_settings=part_settings, dask=dask, force=force,
            progress=progress,
        )  # fmt: skip
    except KeyboardInterrupt:
        complain(f"{out}: the same command continues after the parts that are written")
        raise
    return result


def _files() -> Any:
    """What writes tables, where it is installed."""
    try:
        from reports import sweep_run  # noqa: PLC0415  (only it needs pyarrow)
    except ImportError as error:
        raise InputError(f"--out: {error}: install perfmodel[sweep]") from None
    return sweep_run


def _keeper(
    selection: Path | None, out: Path | None, reads: tuple[Named, ...], *, force: bool
) -> Any:
    """What writes the selected rows, looked for before the work."""
    if selection is None:
        return None
    check_free(selection, (".csv", ".parquet"), force=force, reads=reads)
    in_parts = out is not None and same_file(out, selection.parent)
    if in_parts and selection.name.startswith("part-"):
        raise InputError(f"{selection}: --out calls its own parts so: name another file")
    write = _files().write_selection

    def keep(sweep: Sweep, result: Swept) -> None:
        write(result, sweep, selection)

    return keep


def _record(sweep: Sweep, result: Swept, out: Path | None) -> dict[str, Any]:
    return {
        "sweep": sweep.spec.record(),
        "settings": result.settings,
        "refused": [{"reason": r.reason, "settings": r.settings} for r in result.refused],
        "fits": result.fits,
        "rows": result.rows,
        "columns": list(sweep.columns),
        "best": [plain_row(row) for row in result.best.records()],
        "pareto": [plain_row(row) for row in result.pareto.records()],
        "warnings": list(sweep.notes),
        "out": None if out is None else str(out),
    }


def _print(sweep: Sweep, result: Swept, out: Path | None) -> None:
    screen = console()
    for line in head_lines(sweep.spec):
        screen.print(line)
    print_table(screen, count_table(sweep.spec, result))
    for made in row_tables(sweep, result, screen.width):
        print_table(screen, made)
    screen.print()
    for refused in sorted(result.refused, key=lambda each: -each.settings):
        screen.print(f"Refused, {refused.settings:,} settings such as: {refused.reason}.")
    for line in origin_lines(result):
        screen.print(line)
    if not result.fits:
        screen.print("Nothing fits into memory.")
    elif not result.rows:
        screen.print("No setting is left by --where.")
    for note in sweep.notes:
        screen.print(f"Note: {note}.")
    if out is not None:
        screen.print(f"{result.rows:,} rows in {out}.")
