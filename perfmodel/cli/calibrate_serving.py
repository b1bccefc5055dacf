"""`perfmodel calibrate serving`: refit an engine preset on a few loads of one's own deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli.calibrate import app
from perfmodel.cli.output import console, print_json, table
from perfmodel.errors import InputError
from perfmodel.whole_file import check_free, check_unread


@app.command("serving")
def serving(
    points: Annotated[
        Path,
        typer.Argument(
            help="CSV of measured loads, as validate serving takes: model, gpu, engine, weights, "
            "tp, concurrency, isl, osl, ttft_ms, tpot_ms and, where they matter, more."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The new preset, for --engine.")],
    preset: Annotated[
        str | None,
        typer.Option("--engine", help="Preset to start from, the prior; else the rows' engine's."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Fit three numbers of an engine on three to five load tests of your own deployment.

    They are a factor on kernels, and the host's time per step and per sequence.
    """
    try:
        from calibrate.serving_points import (  # noqa: PLC0415
            fit_serving,
            tpot_score,
            write_fitted,
        )
        from calibrate.serving_table import read_serving  # noqa: PLC0415
    except ImportError as error:
        raise InputError(f"{error.name} is missing: pip install 'perfmodel[calibrate]'") from None
    check_free(out, (".yaml", ".yml"), force=force, reads=[points, preset])
    read = read_serving(points)
    check_unread(out, read.names)
    fit = fit_serving(read, preset)
    write_fitted(fit, out, points)
    errors = {
        name: tpot_score(found) for name, found in
        (("before", fit.before), ("after", fit.after), ("left_out", fit.left_out))
    }  # fmt: skip
    rows: list[dict[str, Any]] = [
        {
            "row": before.row.number, "measured_tpot_ms": before.row.tpot_ms,
            "before_tpot_ms": before.tpot_ms, "after_tpot_ms": after.tpot_ms,
            "left_out_tpot_ms": fit.left_out[place].tpot_ms if fit.left_out else None,
        }
        for place, (before, after) in enumerate(zip(fit.before, fit.after, strict=True))
    ]  # fmt: skip
    names = ("kernels", "step_us", "sequence_us")
    if as_json:
        print_json({
            "file": str(out), "points": rows,
            "prior": {name: getattr(fit.own, name) for name in names},
            "fitted": {name: getattr(fit.numbers, name) for name in names},
            "median_error": {n: s.median if s.rows else None for n, s in errors.items()},
        })  # fmt: skip
        return
    made = table(
        "TPOT in ms", [("Row", "right"), ("Measured", "right"), ("Before", "right"),
                       ("After", "right"), ("Without it", "right")],
    )  # fmt: skip
    for line in rows:
        values = (line[n] for n in list(line)[1:])
        made.add_row(str(line["row"]), *("" if v is None else f"{v:.2f}" for v in values))
    said = console()
    said.print(made)
    for name in names:
        was, now = getattr(fit.own, name), getattr(fit.numbers, name)
        said.print(f"{name}: {was:.3g} -> {now:.3g}", highlight=False)
    said.print(
        f"Median error of TPOT: {errors['before'].median:.1f} % before, "
        f"{errors['after'].median:.1f} % after (on the same points)"
        + (f", {errors['left_out'].median:.1f} % where each point is left out."
           if fit.left_out else "; one point can't be checked.")
    )  # fmt: skip
    said.print(f"written: {out}")
