"""`perfmodel advise`: what each optimisation gains on one deployment, and what it costs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import typer

from perfmodel.cli import advise_tables as tables
from perfmodel.cli.estimate import print_head
from perfmodel.cli.lazy import HELP
from perfmodel.cli.options import takes_case
from perfmodel.cli.output import console, print_csv, print_json, print_table
from perfmodel.cli.parsers import duration, positive
from perfmodel.errors import CapacityError, InputError
from perfmodel.planning.advice import Advice, advise
from perfmodel.planning.lever import Limits
from perfmodel.planning.record import advice_record, advice_rows
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.workload import Workload

app = typer.Typer(add_completion=False, context_settings=HELP)
By = Literal["ttft", "tpot", "throughput", "memory", "cost"]
QUIET_S = 1.5
"""Seconds before progress is shown."""


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Says on a terminal's stderr how far it is, once it takes a while; leaves nothing behind."""
    started, shown = time.monotonic(), [0.0]
    seen = sys.stderr is not None and sys.stderr.isatty()

    def say(count: int) -> None:
        now = time.monotonic()
        if seen and now - started > QUIET_S and now - shown[0] > 0.2:
            shown[0] = now
            print(f"\r{count} settings estimated …", end="", file=sys.stderr, flush=True)

    try:
        yield say
    finally:
        if shown[0]:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _print_tables(advice: Advice, top: int) -> None:
    out = console()
    print_head(out, advice.base.estimate)
    if advice.base.fits:
        print_table(out, tables.base_table(advice))
        over = tables.over_limit_line(advice)
        if over:
            out.print(f"\n{over}")
    else:
        out.print(f"\n{tables.overflow_line(advice)}")
    useful = advice.useful()[:top]
    if useful:
        for made in tables.ranking(tables.ranking_title(advice), useful, advice, out.width):
            print_table(out, made)
        print_table(out, tables.price_table(useful))
    for group in (advice.pairs[: max(1, top // 2)], advice.triples[: max(1, top // 2)]):
        if group:
            title = tables.combination_title(group)
            for made in tables.ranking(title, group, advice, out.width):
                print_table(out, made)
    rest = tables.rest_table(advice)
    if rest is not None:
        print_table(out, rest)
    out.print()
    _print_notes(out, advice, len(useful))


def _print_notes(out: Any, advice: Advice, shown: int) -> None:
    hidden = len(advice.useful()) - shown
    if hidden:
        out.print(f"{hidden} more gain something: --top {shown + hidden} shows them.")
    out.print(f"Changes take up to {advice.max_gpus} GPUs (--max-gpus).")
    out.print(
        f"Times: {advice.base.estimate.calibration}. Every row is an estimate of the changed case; "
        "combinations are estimated, not added up."
    )
    for note in advice.base.estimate.warnings:
        out.print(f"Note: {note}.")


@app.command()
@takes_case
def command(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Annotated[
        str, typer.Argument(help="Catalogue name, config.json, folder with one, or hub id.")
    ],
    hardware: Annotated[
        str, typer.Option("--hardware", "-H", help="Name of a profile, or a YAML file.")
    ],
    workload: Workload,
    deployment: Deployment,
    by: Annotated[
        By, typer.Option("--by", help="ttft, tpot, throughput, memory or cost.", metavar="<str>")
    ] = "throughput",
    ttft_limit: Annotated[
        float | None,
        typer.Option("--ttft-limit", parser=duration, metavar="<time>",
                     help="Longest time to first token: seconds, or 500ms."),
    ] = None,
    tpot_limit: Annotated[
        float | None,
        typer.Option("--tpot-limit", parser=duration, metavar="<time>",
                     help="Longest time per output token: seconds, or 50ms."),
    ] = None,
    max_gpus: Annotated[
        int | None,
        typer.Option("--max-gpus", parser=positive, metavar="<int>",
                     help="GPUs that a change may use (default: 8)."),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", parser=positive, metavar="<int>", help="Rows of the ranking.")
    ] = 8,
    roofline_only: Annotated[
        bool,
        typer.Option("--roofline-only", metavar="", help="The datasheet's roof: no calibration."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="One JSON object.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", metavar="", help="Rows for a spreadsheet.")
    ] = False,
) -> None:  # fmt: skip
    """What each optimisation gains on one deployment, ranked, with its price and what limits next.

    Flags describe the deployment as it is now. Status 2: nothing that is tried fits.
    """
    if as_json and as_csv:
        raise InputError("--json and --csv: one of them at a time")
    limits = Limits(ttft_limit, tpot_limit, max_gpus)
    with _progress() as progress:
        advice = advise(model, hardware, workload, deployment, by=by, limits=limits,
                        roofline_only=roofline_only, progress=progress)  # fmt: skip
    if as_json:
        print_json(advice_record(advice))
    elif as_csv:
        print_csv(advice_rows(advice))
    else:
        _print_tables(advice, top)
    if not advice.solvable:
        raise CapacityError(
            f"{advice.base.estimate.model.name} on {advice.base.estimate.hardware.name}: nothing "
            "that was tried makes it fit; allow more by --max-gpus, or shorten --prompt"
        )
