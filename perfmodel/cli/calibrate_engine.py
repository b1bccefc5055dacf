"""`perfmodel calibrate engine`: refit an engine preset's few numbers on one's own step times."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.calibrate import app
from perfmodel.cli.output import console, print_json
from perfmodel.errors import InputError
from perfmodel.whole_file import check_free, check_unread


@app.command("engine")
def engine(
    points: Annotated[
        Path,
        typer.Argument(
            help="CSV: model, hardware, batch, prompt, output, quantity (ttft, tpot, total), "
            "seconds; tp, pp, weights, activations, kv_cache where they aren't the defaults."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The new preset, for --engine.")],
    preset: Annotated[
        str, typer.Option("--engine", help="Preset to start from: its numbers are the prior.")
    ] = "vllm",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Refit an engine's host time and kernel factors on a few measured steps of static batches.

    Ten points of one deployment usually bring most of the accuracy that can be had.
    """
    try:
        from calibrate.own_points import read_points, refit_engine, write_engine  # noqa: PLC0415
    except ImportError as error:
        raise InputError(f"{error.name} is missing: pip install 'perfmodel[calibrate]'") from None
    check_free(out, (".yaml", ".yml"), force=force, reads=[points, preset])
    cases = read_points(points, preset)
    check_unread(out, {name for c in cases for name in (c.setting.model, c.setting.hardware)})
    new = refit_engine(cases, preset)
    write_engine(new, out, points)
    if as_json:
        print_json({
            "file": str(out), "points": new.points, "at_bound": list(new.at_bound),
            "median_error_before": new.before.median, "median_error_after": new.after.median,
        })  # fmt: skip
        return
    said = console()
    said.print(
        f"{new.points} points: median error {new.before.median:.1f} % with {preset}, "
        f"{new.after.median:.1f} % refitted (on the same points)"
    )
    if new.at_bound:
        said.print(f"at a bound: {', '.join(new.at_bound)}")
    said.print(f"written: {out}")
