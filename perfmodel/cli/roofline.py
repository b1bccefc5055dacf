"""`perfmodel roofline`: where each operator sits under the roofs of one or several devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli.inputs import inputs
from perfmodel.cli.lazy import HELP
from perfmodel.cli.options import takes_cases
from perfmodel.cli.output import console, print_json
from perfmodel.cli.overflow import refuse_unfit
from perfmodel.cli.pictures import (
    OUTPUT,
    drawer,
    force_option,
    json_option,
    out_option,
    size_option,
)
from perfmodel.cli.roofline_tables import print_roofline
from perfmodel.errors import InputError
from perfmodel.inference.roofline import Measured, Roofline, roofline
from perfmodel.inference.roofline_record import roofline_record
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import hardware_dir
from perfmodel.specs.workload import Workload

app = typer.Typer(add_completion=False, context_settings=HELP)


@app.command()
@takes_cases("batch", "prompt", "output", "cached_prefix")
def command(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Annotated[
        str, typer.Argument(help="Catalogue name, config.json, folder with one, or hub id.")
    ],
    hardware: Annotated[
        list[str],
        typer.Option("--hardware", "-H", help="Name of a profile, or a YAML file; once for each."),
    ],
    workload: Workload,
    deployment: Deployment,
    roofline_only: Annotated[
        bool,
        typer.Option("--roofline-only", metavar="", help="The datasheet's roof: no calibration."),
    ] = False,
    measured: Annotated[
        Path | None,
        typer.Option(
            "--measured", metavar="<path>", rich_help_panel=OUTPUT,
            help="Calls that calibrate run timed on the one device: its folder, or a .csv in it.",
        ),
    ] = None,
    out: Annotated[Path | None, out_option()] = None,
    size: Annotated[Any, size_option()] = "9x6.5",
    force: Annotated[bool, force_option()] = False,
    as_json: Annotated[bool, json_option()] = False,
) -> None:  # fmt: skip
    """Every operator of prefill and decode under a device's roofs: a table, or a picture.

    One of --batch, --prompt, --output and --cached-prefix may be a list: each operator's path.
    """
    reads = inputs(model, *hardware, measured, deployment=deployment)
    draw = drawer("roofline", "draw_roofline", out, force=force, reads=reads)
    result = roofline(model, hardware, workload, deployment, roofline_only=roofline_only)
    calls = _calls(measured, result)
    if draw is not None:
        draw(result, out, calls, size)
    if as_json:
        print_json(roofline_record(result, calls))
    elif draw is None:
        print_roofline(console(), result)
    for device in result.devices:
        refuse_unfit(device.estimate, deployment)


def _calls(path: Path | None, result: Roofline) -> tuple[Measured, ...]:
    """Timed calls in the arithmetics in use: those given, or shipped with the device."""
    if len(result.devices) > 1:
        if path is not None:
            raise InputError("--measured: the calls of one device: name one --hardware")
        return ()
    from calibrate.measured_calls import read_calls  # noqa: PLC0415  (its own table reader)

    (device,) = result.devices
    if path is None:
        shipped = Path(str(hardware_dir())) / "measured"
        path = next(iter(sorted(shipped.glob(f"{device.hardware.name}.*"))), None)
        if path is None:
            return ()
    used = {ceiling.name for ceiling in device.ceilings if ceiling.used}
    return tuple(call for call in read_calls(path) if call.arithmetic in used)
