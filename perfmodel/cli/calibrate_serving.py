"""`perfmodel calibrate serving`: refit an engine preset on a few loads of one's own deployment."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.calibrate import app
from perfmodel.cli.output import console, print_json, table
from perfmodel.errors import InputError
from perfmodel.whole_file import check_free, check_unread

if TYPE_CHECKING:
    from calibrate.serving_points import ServingFit


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
    """Fit three numbers of an engine on four or more load tests of your own deployment.

    They are a factor on kernels that reading limits (decode), one on products that arithmetic
    limits (prompts), and the host's time per sequence. Measure on as many GPUs as you serve with:
    few and many users, each with short and long prompts. Of several deployments, what holds
    across them is fitted: as much as predicts each from the others.
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
    across = fit.carried
    if as_json:
        print_json({
            "file": str(out), "points": rows,
            "prior": asdict(fit.own), "fitted": asdict(fit.numbers), "with_ttft": fit.with_ttft,
            "carried": across and {"share": across.share, "fields": across.fields},
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
    for name, was in asdict(fit.own).items():
        said.print(f"{name}: {was:.3g} -> {getattr(fit.numbers, name):.3g}", highlight=False)
    said.print(_ground(fit), highlight=False)
    left = "its deployment" if across else "each point"
    said.print(
        f"Median error of TPOT: {errors['before'].median:.1f} % before, "
        f"{errors['after'].median:.1f} % after (on the same points)"
        + (f", {errors['left_out'].median:.1f} % where {left} is left out."
           if fit.left_out else "; one point can't be checked.")
    )  # fmt: skip
    said.print(f"written: {out}")


def _ground(fit: ServingFit) -> str:
    """What the numbers rest on."""
    points, across = len(fit.before), fit.carried
    used = f"TPOT of {points} points, TTFT of {fit.with_ttft}" + (
        "" if fit.with_ttft == points else " (it counts where lengths vary and the cache has room)"
    )
    if across is None:
        return f"Fitted on {used}, of one deployment: for it alone."
    if not across.fields:
        return f"{used}, of deployments that differ in format alone: the preset is kept."
    left = " and ".join(across.fields)
    if across.share == 0:
        return (
            f"{used}: nothing holds across deployments ({left} left out in turn): the preset is "
            "kept. Fit each deployment by itself."
        )
    return (
        f"{used}: {across.share:.0%} is carried over to other deployments ({left} left out in "
        "turn). Fit a deployment by itself to predict it."
    )
