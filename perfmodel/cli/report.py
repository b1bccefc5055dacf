"""`perfmodel report`: one self-contained page about a deployment, for someone who runs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli.command_line import command_line
from perfmodel.cli.inputs import inputs
from perfmodel.cli.lazy import HELP
from perfmodel.cli.options import takes_case
from perfmodel.cli.overflow import overflow_text, refuse_overflow
from perfmodel.errors import InputError
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.workload import Workload
from perfmodel.whole_file import check_free

app = typer.Typer(add_completion=False, context_settings=HELP)
SUFFIXES = (".html", ".htm")


@app.command()
@takes_case
def command(
    model: Annotated[
        str, typer.Argument(help="Catalogue name, config.json, folder with one, or hub id.")
    ],
    hardware: Annotated[
        str, typer.Option("--hardware", "-H", help="Name of a profile, or a YAML file.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="<file>", help="The page: .html.")],
    workload: Workload,
    deployment: Deployment,
    roofline_only: Annotated[
        bool,
        typer.Option("--roofline-only", metavar="", help="The datasheet's roof: no calibration."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", metavar="", help="Overwrite --out.")] = False,
) -> None:
    """Write one self-contained HTML page: the answer, pictures, tables, and where they come from.

    Exits with status 2 when the batch doesn't fit; the page is written all the same, and says so.
    """
    reads = inputs(model, hardware, deployment=deployment)
    check_free(out, SUFFIXES, force=force, reads=reads)
    page: Any
    try:
        from reports.html import page, record  # noqa: PLC0415  (only they need Jinja2)
        from reports.html.grid import Case  # noqa: PLC0415
    except ImportError as error:
        raise InputError(f"report: {error}: install perfmodel[report]") from None
    case = Case(load_model(model), load_hardware(hardware), workload, deployment, roofline_only)
    flags = [("--roofline-only", True)] if roofline_only else []
    said = command_line(
        "report",
        model,
        [("--hardware", hardware), *flags, ("--out", out.name)],
        workload,
        deployment,
    )
    made = record.make_report(case, command=said, remedy=overflow_text)
    page.write_page(made, out)
    refuse_overflow(made.answer)
