"""`perfmodel plan`: how many GPUs of which kind, in which layout, at what cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli import plan_tables as tables
from perfmodel.cli.inputs import inputs
from perfmodel.cli.lazy import HELP
from perfmodel.cli.options import takes_stated_deployment
from perfmodel.cli.output import console, print_json, print_table
from perfmodel.cli.parsers import duration, number, positive, whole_number
from perfmodel.cli.plan_demand import Stated, growth, listed, price, prices
from perfmodel.cli.plan_files import PlanFiles, file_option, force_option
from perfmodel.cli.plan_launch import check_emit, launch_of_best, script_of
from perfmodel.cli.plan_text import infeasible, note_lines, print_answer
from perfmodel.cli.progress import progress_stages
from perfmodel.cli.simulate_demand import SCHEDULERS, pools
from perfmodel.errors import CapacityError, InputError
from perfmodel.planning.capacity.answer import Plan
from perfmodel.planning.capacity.plan import plan
from perfmodel.planning.capacity.question import Rules
from perfmodel.planning.capacity.record import plan_record
from perfmodel.planning.launch.launch import launch_record
from perfmodel.serving.serve import Serving
from perfmodel.specs.deployment import Deployment

app = typer.Typer(add_completion=False, context_settings=HELP)
_TRAFFIC, _FLEET, _SEARCH, _OUTPUT = "Traffic", "Fleet", "Search", "Output"


def _option(help_text: str, *names: str, panel: str, parser: Any = None, kind: str = "str") -> Any:
    return typer.Option(
        *names, parser=parser, metavar=f"<{kind}>", help=help_text, rich_help_panel=panel
    )


def _time(help_text: str, name: str) -> Any:
    return _option(help_text, name, panel=_TRAFFIC, parser=duration, kind="time")


def _number(help_text: str, name: str, panel: str) -> Any:
    return _option(help_text, name, panel=panel, parser=number, kind="float")


def _count(help_text: str, name: str, panel: str, parser: Any = whole_number) -> Any:
    return _option(help_text, name, panel=panel, parser=parser, kind="int")


@app.command()
@takes_stated_deployment
def command(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Annotated[
        str, typer.Argument(help="Catalogue name, config.json, folder with one, or hub id.")
    ],
    hardware: Annotated[
        list[str],
        typer.Option("--hardware", "-H", help="Name of a profile, or a YAML file; repeatable."),
    ],
    deployment: Deployment,
    rate: Annotated[float | None, _number(
        "Requests per second on average.", "--rate", _TRAFFIC,
    )] = None,
    prompt: Annotated[str | None, _option(
        "Tokens of a prompt: 1024, uniform:LOW:HIGH, normal:MEAN:DEVIATION[:MAX], "
        "lognormal:MEAN:SIGMA[:MAX] or exponential:MEAN[:MAX] (default: 1024).",
        "--prompt", "-p", panel=_TRAFFIC,
    )] = None,
    output: Annotated[str | None, _option(
        "Tokens generated, likewise (default: 256).", "--output", "-o", panel=_TRAFFIC,
    )] = None,
    prefix_tokens: Annotated[int | None, _count(
        "Tokens at the beginning that all prompts share (default: 0).", "--prefix-tokens", _TRAFFIC,
    )] = None,
    ttft: Annotated[float | None, _time(
        "Longest time to first token, queueing included: seconds, or 500ms.", "--ttft",
    )] = None,
    tpot: Annotated[float | None, _time(
        "Longest time per output token after the first: seconds, or 40ms.", "--tpot",
    )] = None,
    e2e: Annotated[float | None, _time("Longest time to the last token.", "--e2e")] = None,
    percentile: Annotated[float | None, _number(
        "Per cent of the requests that must see no more (default: 90).", "--percentile", _TRAFFIC,
    )] = None,
    traffic: Annotated[Path | None, _option(
        "YAML: several classes of requests with shares and promises, in place of the above.",
        "--traffic", panel=_TRAFFIC, kind="file",
    )] = None,
    burstiness: Annotated[float | None, _number(
        "Shape of the gaps' gamma distribution: 1 is Poisson, less is burstier (default: 1).",
        "--burstiness", _TRAFFIC,
    )] = None,
    peak: Annotated[float | None, _number(
        "The busiest hour's multiple of the rate (default: 1).", "--peak", _TRAFFIC,
    )] = None,
    growth_: Annotated[float | None, _option(
        "Growth per month, as 0.1 or 10% (default: 0).", "--growth", panel=_TRAFFIC,
        parser=growth, kind="share",
    )] = None,
    months: Annotated[int | None, _count(
        "Months after the first that are planned for (default: 0).", "--months", _TRAFFIC,
    )] = None,
    utilisation: Annotated[float, _number(
        "Share of its greatest load that a replica gets in the busiest hour.", "--utilisation",
        _FLEET,
    )] = 0.8,
    spare: Annotated[int, _count(
        "Replicas that may fail while promises are kept: 1 is N+1.", "--spare", _FLEET,
    )] = 1,
    price_: Annotated[list[Any] | None, _option(
        "USD per GPU and hour, such as h100-sxm=2.5, in place of the profile's range; repeatable.",
        "--price", panel=_FLEET, parser=price, kind="name=usd",
    )] = None,
    max_gpus: Annotated[int | None, _count(
        "GPUs of the whole fleet at most, in any month.", "--max-gpus", _FLEET, positive,
    )] = None,
    weight_formats: Annotated[Any, _option(
        "Formats of weights that are tried, such as auto,fp8,int4 (default: the checkpoint's, and "
        "fp8 where the chip has it; --weights fixes one).", "--weight-formats", panel=_SEARCH,
        parser=listed, kind="names",
    )] = None,
    kv_formats: Annotated[Any, _option(
        "Formats of the cache that are tried, likewise.", "--kv-formats", panel=_SEARCH,
        parser=listed, kind="names",
    )] = None,
    scheduler: Annotated[str | None, _option(
        SCHEDULERS, "--scheduler", panel=_SEARCH,
    )] = None,
    disaggregate: Annotated[Any, _option(
        "Instances that prefill, and others that decode, such as 2:1 (default: tried).",
        "--disaggregate", panel=_SEARCH, parser=pools, kind="int:int",
    )] = None,
    aggregated: Annotated[bool, typer.Option(
        "--aggregated", metavar="", rich_help_panel=_SEARCH,
        help="Don't try instances that prefill and others that decode.",
    )] = False,
    prefix_caching: Annotated[bool | None, typer.Option(
        "--prefix-caching/--no-prefix-caching", metavar="", rich_help_panel=_SEARCH,
        help="Whether prompts stay cached (default: as the engine does, where classes share any).",
    )] = None,
    confirm: Annotated[int, _count(
        "Deployments to confirm in the simulator.", "--confirm", _SEARCH, positive,
    )] = 8,
    seed: Annotated[int, _count("Of the simulated requests.", "--seed", _SEARCH)] = 0,
    show_rejected: Annotated[bool, typer.Option(
        "--rejected", metavar="", rich_help_panel=_OUTPUT,
        help="Every deployment that isn't offered, and why.",
    )] = False,
    as_json: Annotated[bool, typer.Option(
        "--json", metavar="", help="One JSON object.", rich_help_panel=_OUTPUT,
    )] = False,
    emit: Annotated[str | None, _option(
        "The launch command of the cheapest choice, alone: vllm, trtllm or sglang, as --engine.",
        "--emit", panel=_OUTPUT, kind="engine",
    )] = None,
    xlsx: Annotated[Path | None, file_option("xlsx")] = None,
    csv: Annotated[Path | None, file_option("csv")] = None,
    parquet: Annotated[Path | None, file_option("parquet")] = None,
    plot: Annotated[Path | None, file_option("plot")] = None,
    force: Annotated[bool, force_option()] = False,
) -> None:  # fmt: skip
    """How many GPUs of which kind, in which layout, keep what is promised to users; at what cost.

    Flags of layout, formats and limits fix what would be searched. Status 2: nothing does.
    """
    asked = Stated(traffic, {
        "rate": rate, "prompt": prompt, "output": output, "prefix_tokens": prefix_tokens,
        "ttft_s": ttft, "tpot_s": tpot, "e2e_s": e2e, "percentile": percentile,
        "burstiness": burstiness, "peak": peak, "growth": growth_, "months": months,
    })  # fmt: skip
    rules = Rules(
        utilisation=utilisation, spare=spare, usd_per_gpu_hour=prices(price_), max_gpus=max_gpus,
        weights=weight_formats or (), kv_cache=kv_formats or (), disaggregated=not aggregated,
        confirm=confirm, seed=seed,
    )  # fmt: skip
    if aggregated and disaggregate:
        raise InputError(
            "--aggregated: not with --disaggregate, which asks for pools: leave one out"
        )
    serving = Serving(scheduler, prefix_caching, disaggregate=disaggregate)
    files = PlanFiles(xlsx, csv, parquet, plot)
    files.check(inputs(traffic, model, *hardware, deployment=deployment), force=force)
    check_emit(emit, deployment, scheduler)
    with progress_stages() as progress:
        found = plan(
            model, hardware, asked.made(), deployment, rules, serving=serving, progress=progress
        )
    if not found.choices:
        raise CapacityError(infeasible(found))
    launch = None if emit is None else launch_of_best(found, emit, model, serving)
    files.write(found)
    if as_json:
        said = {} if launch is None else {"launch": launch_record(launch)}
        print_json(plan_record(found) | said)
    elif launch is not None:
        print(script_of(found, launch), end="")
    else:
        _print(found, everything=show_rejected)


def _print(found: Plan, *, everything: bool) -> None:
    out = console()
    print_answer(out, found)
    for made in tables.plan_tables(found, out.width):
        print_table(out, made)
    print_table(out, tables.rejected_table(found, everything=everything))
    out.print()
    for line in note_lines(found, everything=everything):
        out.print(line)
