"""`perfmodel simulate`: what users of a deployment see under load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli import simulate_text as text
from perfmodel.cli.inputs import inputs
from perfmodel.cli.lazy import HELP
from perfmodel.cli.options import takes_deployment
from perfmodel.cli.output import console, print_json, print_table
from perfmodel.cli.parsers import number, whole_number
from perfmodel.cli.progress import progress_bar
from perfmodel.cli.request_rows import request_rows
from perfmodel.cli.simulate_demand import SCHEDULERS, Asked, pools
from perfmodel.cli.simulate_tables import definition_lines, simulation_tables
from perfmodel.errors import InputError
from perfmodel.serving.arrivals import Demand
from perfmodel.serving.record import case_record
from perfmodel.serving.results import Simulation, simulation_record
from perfmodel.serving.router import ROUTERS
from perfmodel.serving.serve import Served, Serving, run, served, settled
from perfmodel.specs.deployment import Deployment
from perfmodel.whole_file import PICTURES, Named, check_free

app = typer.Typer(add_completion=False, context_settings=HELP)
_DEMAND, _SERVING, _OUTPUT = "Requests", "Serving", "Output"
Draw = Callable[[Any, Path, str], None]


def _int(help_text: str, *names: str, panel: str = _DEMAND) -> Any:
    return typer.Option(
        *names, parser=whole_number, metavar="<int>", help=help_text, rich_help_panel=panel
    )


def _str(help_text: str, *names: str, panel: str = _DEMAND) -> Any:
    return typer.Option(*names, metavar="<str>", help=help_text, rich_help_panel=panel)


def _float(help_text: str, *names: str) -> Any:
    return typer.Option(
        *names, parser=number, metavar="<float>", help=help_text, rich_help_panel=_DEMAND
    )


def _file(help_text: str, *names: str, panel: str = _OUTPUT) -> Any:
    return typer.Option(*names, metavar="<file>", help=help_text, rich_help_panel=panel)


@app.command()
@takes_deployment
def command(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Annotated[
        str, typer.Argument(help="Catalogue name, config.json, folder with one, or hub id.")
    ],
    hardware: Annotated[
        str, typer.Option("--hardware", "-H", help="Name of a profile, or a YAML file.")
    ],
    deployment: Deployment,
    concurrency: Annotated[int | None, _int(
        "Users, each of whom sends the next request when the last has ended.", "--concurrency",
    )] = None,
    rate: Annotated[float | None, _float(
        "Requests per second, whatever becomes of those before them; inf: all at once.", "--rate",
    )] = None,
    burstiness: Annotated[float | None, _float(
        "Shape of the gaps' gamma distribution: 1 is Poisson, less is burstier (default: 1).",
        "--burstiness",
    )] = None,
    trace: Annotated[Path | None, _file(
        "CSV: arrival_s, prompt_tokens, output_tokens and perhaps prefix_id, prefix_tokens.",
        "--trace", panel=_DEMAND,
    )] = None,
    prompt: Annotated[str | None, _str(
        "Tokens of a prompt: 1024, uniform:LOW:HIGH, normal:MEAN:DEVIATION[:MAX], "
        "lognormal:MEAN:SIGMA[:MAX] or exponential:MEAN[:MAX] (default: 1024).", "--prompt", "-p",
    )] = None,
    output: Annotated[str | None, _str(
        "Tokens generated, likewise (default: 256).", "--output", "-o",
    )] = None,
    requests: Annotated[int | None, _int(
        "How many (default: ten for each user, at least 1000; all of a trace).", "--requests",
    )] = None,
    seed: Annotated[int | None, _int("Of all draws (default: 0).", "--seed")] = None,
    prefix_tokens: Annotated[int | None, _int(
        "Tokens at the beginning of a prompt that requests share.", "--prefix-tokens",
    )] = None,
    prefix_count: Annotated[int | None, _int(
        "Texts that they begin with, each as likely (default: 1).", "--prefix-count",
    )] = None,
    warmup: Annotated[int, _int(
        "First requests that the statistics leave out.", "--warmup",
    )] = 0,
    scheduler: Annotated[str | None, _str(
        SCHEDULERS, "--scheduler", panel=_SERVING,
    )] = None,
    router: Annotated[str, _str(
        f"How a replica is chosen: {', '.join(ROUTERS)}.", "--router", panel=_SERVING,
    )] = "round_robin",
    disaggregate: Annotated[Any, typer.Option(
        "--disaggregate", parser=pools, metavar="<int:int>", rich_help_panel=_SERVING,
        help="Instances that prefill, and others that decode, such as 2:1.",
    )] = None,
    prefix_caching: Annotated[bool | None, typer.Option(
        "--prefix-caching/--no-prefix-caching", metavar="", rich_help_panel=_SERVING,
        help="Whether prompts stay cached (default: as the engine does).",
    )] = None,
    as_json: Annotated[bool, typer.Option(
        "--json", metavar="", help="One JSON object.", rich_help_panel=_OUTPUT,
    )] = False,
    csv: Annotated[Path | None, _file("A row for each request, as they end.", "--csv")] = None,
    timeline: Annotated[Path | None, _file(
        "Draw running and waiting requests and the cache over time: .svg, .png or .pdf.",
        "--timeline",
    )] = None,
    force: Annotated[bool, typer.Option(
        "--force", metavar="", help="Overwrite --csv and --timeline.", rich_help_panel=_OUTPUT,
    )] = False,
) -> None:  # fmt: skip
    """What users see under load: each request is run through a simulated engine, step by step."""
    demand = Asked(
        concurrency, rate, burstiness, trace, prompt, output, requests, seed, prefix_tokens,
        prefix_count,
    ).demand()  # fmt: skip
    serving = settled(Serving(scheduler, prefix_caching, router, disaggregate, warmup), demand)
    draw = _drawer(timeline)
    reads = (*inputs(trace, model, hardware, deployment=deployment),)
    _check_files(csv, timeline, reads, force=force)
    case = served(model, hardware, deployment, serving)
    with request_rows(csv) as ended, progress_bar("requests") as progress:
        result = run(case, demand, serving, ended=ended, progress=progress)
        if draw is not None and timeline is not None:
            draw(result.timeline, timeline, text.title(case, result))
    if as_json:
        print_json(_record(case, demand, serving, result))
    else:
        _print(case, demand, serving, result)


def _drawer(timeline: Path | None) -> Draw | None:
    """What draws a timeline, looked for before the work."""
    if timeline is None:
        return None
    try:
        from reports.timeline import draw_timeline  # noqa: PLC0415  (only it needs matplotlib)
    except ImportError as error:
        raise InputError(f"--timeline: {error}: install perfmodel[plots]") from None
    return draw_timeline


def _check_files(
    csv: Path | None, timeline: Path | None, reads: tuple[Named, ...], *, force: bool
) -> None:
    """Say before the work that its result couldn't be kept."""
    if csv is None and timeline is None:
        return
    if csv is not None:
        check_free(csv, (".csv",), force=force, reads=reads)
    if timeline is not None:
        check_free(timeline, PICTURES, force=force, reads=reads)


def _record(
    case: Served, demand: Demand, serving: Serving, result: Simulation
) -> dict[str, Any]:  # fmt: skip
    typically = text.typical(case, result)
    shares = {"prefill": typically.prefill, "decode": typically.decode}
    return {
        **case_record(case, demand, serving),
        "assumed_share": {name: float(p.cost.assumed_share) for name, p in shares.items()},
        **simulation_record(result),
        "warnings": list(text.notes(case, serving, result.longest_tokens)),
    }


def _print(case: Served, demand: Demand, serving: Serving, result: Simulation) -> None:
    out = console()
    text.print_head(out, case, demand, serving, result)
    for made in simulation_tables(result, out.width):
        print_table(out, made)
    out.print()
    for line in definition_lines(result, out.width):
        out.print(line)
    text.print_notes(
        out, text.typical(case, result), text.notes(case, serving, result.longest_tokens)
    )  # fmt: skip
