"""`perfmodel calibrate fit`: from measured tables to a device's calibration file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.calibrate import app
from perfmodel.cli.output import console, print_json, table
from perfmodel.errors import InputError
from perfmodel.kernels.choice import GENERIC
from perfmodel.specs.hardware import Hardware, hardware_dir, load_hardware
from perfmodel.whole_file import check_free

if TYPE_CHECKING:
    from collections.abc import Mapping

    from calibrate.write import FittedSet


def default_path(hardware: Hardware, stack: str) -> Path:
    """Where the calibration of a device and stack belongs in the checkout."""
    return Path(str(hardware_dir())) / "calibrations" / f"{hardware.name}.{stack}.yaml"


def _record(path: Path, sets: Mapping[str, FittedSet]) -> dict[str, Any]:
    return {
        "file": str(path),
        "sets": {
            name: {
                "rows": len(fitted.calibrated.used),
                "at_bound": list(fitted.calibrated.fitted.at_bound),
                "errors": {
                    regime: {"rows": s.rows, "median": s.median, "p90": s.p90, "bias": s.bias}
                    for regime, s in fitted.scores.items()
                    if s.rows
                },
            }
            for name, fitted in sets.items()
        },
    }


def _show(path: Path, sets: Mapping[str, FittedSet]) -> None:
    heads = ("Used", "Tested", "Median", "90th", "Bias", "Covered")
    made = table(
        "Errors in % on rows that the fits didn't see; share of them in the 90 % interval",
        [("Set", "left"), *((head, "right") for head in heads)],
    )
    stuck = []
    for name, fitted in sets.items():
        s = fitted.scores["all"]
        values = (s.median, s.p90, s.bias, s.coverage)
        figures = [f"{value:.1f}" if s.rows else "–" for value in values]
        made.add_row(name, str(len(fitted.calibrated.used)), str(s.rows), *figures)
        stuck += [f"{name}: {p}" for p in fitted.calibrated.fitted.at_bound]
    out = console()
    out.print(made)
    if stuck:
        out.print(f"At a bound, where the form fails: {'; '.join(stuck)}.")
    out.print(f"written: {path}")


@app.command("fit")
def fit(
    tables: Annotated[list[Path], typer.Argument(help="Measured tables, or folders of them.")],
    hardware: Annotated[str, typer.Option("--hardware", "-H", help="The device measured.")],
    stack: Annotated[
        str, typer.Option("--stack", help="Software whose kernels were measured: vllm, torch, …")
    ] = "vllm",
    rows: Annotated[
        int, typer.Option("--rows", min=30, help="Per family and format, at most.")
    ] = 300,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write (default: the device's own).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Fit kernel models on measured rows and test them on the rows left over.

    At most --rows of each family and format are used, chosen to cover the shapes.
    """
    try:
        from calibrate.fit_device import fit_measured  # noqa: PLC0415
        from calibrate.write import Provenance, today, write_calibration  # noqa: PLC0415
    except ImportError as error:
        raise InputError(f"{error.name} is missing: pip install 'perfmodel[calibrate]'") from None
    if stack == GENERIC or not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,39}", stack):
        raise InputError(
            f"--stack {stack!r:.60}: small letters, digits, - and _ are needed, such as vllm; "
            f"{GENERIC!r} means no calibration"
        )
    profile = load_hardware(hardware)
    path = out or default_path(profile, stack)
    check_free(path, (".yaml", ".yml"), force=force, reads=[hardware, *tables])
    with console_progress() as say:
        fits = fit_measured(tables, profile, rows, say)
    about = Provenance(profile.name, stack, fits.release, today(), fits.source)
    write_calibration(path, about, fits.sets)
    if as_json:
        print_json(_record(path, fits.sets) | {"left_out": fits.left_out})
    else:
        _show(path, fits.sets)
        for what, why in fits.left_out.items():
            console().print(f"left out: {what}: {why}", markup=False, highlight=False)


class console_progress:  # noqa: N801  (used as a function)
    """A line on stderr that says which set is being fitted."""

    def __enter__(self) -> Any:
        from rich.console import Console  # noqa: PLC0415

        self._status = Console(stderr=True).status("fitting")
        self._status.start()
        return lambda name: self._status.update(f"fitted {name}")

    def __exit__(self, *_: object) -> None:
        self._status.stop()
