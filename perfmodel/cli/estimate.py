"""`perfmodel estimate`: latency, what limits it, and memory of one deployment."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from perfmodel.cli import estimate_tables as tables
from perfmodel.cli import kv_tables
from perfmodel.cli.lazy import HELP
from perfmodel.cli.memory_tables import memory_rows, memory_table, parallel_sizes
from perfmodel.cli.options import takes_case
from perfmodel.cli.output import bold, console, print_csv, print_json, print_table
from perfmodel.cli.overflow import refuse_overflow
from perfmodel.cli.speculation_table import speculation_fact, speculation_table
from perfmodel.cli.text import percent, whole
from perfmodel.errors import InputError
from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.inference.kv_report import kv_report
from perfmodel.inference.plan import Plan
from perfmodel.inference.record import HEADLINE, estimate_record, plain, speculation_record
from perfmodel.operators.format_bytes import BASE
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.workload import Workload

app = typer.Typer(add_completion=False, context_settings=HELP)
Explain = Literal["operators", "memory"]


def _summary_rows(result: Estimate) -> list[dict[str, Any]]:
    rows = []
    for name in HEADLINE:
        low, high = result.interval(name)
        value = plain(getattr(result, name))
        rows.append({"quantity": name, "value": value, "low": plain(low), "high": plain(high)})
    for title, phase in (("prefill", result.prefill), ("decode", result.decode)):
        total = phase.cost.total
        for name, value in (
            ("time_s", total.time_s),
            ("tokens_per_s", phase.tokens_per_s),
            ("flops", total.flops),
            ("bytes", total.bytes),
            ("arithmetic_intensity", total.arithmetic_intensity),
            ("ridge_point", phase.ridge_point),
            ("bound", total.bound),
        ):
            rows.append(
                {"quantity": f"{title}.{name}", "value": plain(value), "low": "", "high": ""}
            )
    rows += [row | {"quantity": f"memory.{row['quantity']}"} for row in _memory_rows(result)]
    return rows + _speculation_rows(result)


def _speculation_rows(result: Estimate) -> list[dict[str, Any]]:
    if result.speculation is None:
        return []
    record = speculation_record(result.speculation)
    ends = {f"{name}_{end}" for name in record for end in ("low", "high")}
    return [
        {
            "quantity": f"speculation.{name}",
            "value": ",".join(map(str, value)) if isinstance(value, tuple) else value,
            "low": record.get(f"{name}_low", ""),
            "high": record.get(f"{name}_high", ""),
        }
        for name, value in record.items()
        if name not in ends
    ]


def _memory_rows(result: Estimate) -> list[dict[str, Any]]:
    memory = result.memory
    rows: list[tuple[str, Any]] = [
        (f"{n}_bytes", int(v) if v.is_integer() else v) for n, v in memory_rows(result)
    ]
    rows += [
        ("fits", memory.fits),
        ("max_sequences", memory.max_sequences),
        ("max_context", memory.max_context),
    ]
    return [{"quantity": n, "value": plain(v), "low": "", "high": ""} for n, v in rows]


def _operator_rows(result: Estimate) -> list[dict[str, Any]]:
    record = estimate_record(result)
    rows = []
    for phase in ("prefill", "decode"):
        for operator in record[phase]["operators"]:
            shape = " ".join(f"{name}={size}" for name, size in operator["shape"].items())
            rows.append({"phase": phase} | operator | {"shape": shape})
    return rows


def format_facts(plan: Plan) -> list[str]:
    """The formats of weights and cache; of inputs and exchanges where they aren't in 16 bits."""
    deployment, formats = plan.deployment, plan.formats
    facts = [f"weights {deployment.weights}"]
    if formats.main.quantises_inputs:
        facts.append(f"activations {deployment.activations}")
    facts.append(f"cache {deployment.kv_cache}")
    if formats.communication.bits < BASE.bits:
        facts.append(f"communication {deployment.communication}")
    return facts


def print_head(out: Any, result: Estimate) -> None:
    """Model, hardware and the case, on two lines."""
    plan, load = result.plan.deployment, result.workload
    gpus = result.plan.parallel.gpus
    layout = ", ".join(f"{name} {ranks}" for name, ranks in parallel_sizes(result.plan))
    out.print(
        bold(result.model.name), f"on {gpus} ×", bold(result.hardware.name),
        *([f"({layout})"] if layout else []),
    )  # fmt: skip
    facts = [f"batch {whole(load.batch)}", f"prompt {whole(load.prompt)}"]
    if load.cached_prefix:
        share = "" if load.prefix_share is None else f" for {percent(load.prefix_share)}"
        facts.append(f"{whole(load.cached_prefix)} of them cached{share}")
    if load.prefill_chunk:
        facts.append(f"chunks of {whole(load.prefill_chunk)}")
    facts += [f"output {whole(load.output)}", *format_facts(result.plan), plan.engine]
    if plan.speculation is not None:
        facts.append(speculation_fact(plan.speculation))
    out.print(" · ".join(facts))


def _print_tables(result: Estimate, explain: Explain | None) -> None:
    out = console()
    print_head(out, result)
    if result.memory.fits:
        print_table(out, tables.headline_table(result))
        if result.speculation is not None:
            print_table(out, speculation_table(result.speculation))
        print_table(out, tables.phase_table(result))
        print_table(out, tables.share_table(result))
    print_table(out, memory_table(result, detail=explain == "memory"))
    if explain == "memory" or result.workload.prefill_chunk:
        report = kv_report(result)
        if report.chunking is not None and result.memory.fits:
            step = "step" if result.speculation is None else "round"
            print_table(out, kv_tables.chunk_table(report.chunking, step))
        if explain == "memory" and result.memory.kv_bytes_per_token:
            print_table(out, kv_tables.kv_table(result, report))
    if explain == "operators":
        for made in tables.operator_tables(result, out.width):
            print_table(out, made)
        if out.width < tables.WIDE:
            out.print(f"\nShapes and FLOP/B: from {tables.WIDE} columns on, or --csv.")
    out.print()
    _print_notes(out, result)


def times_line(result: Estimate) -> str:
    """What the times rest on."""
    kinds = {
        "assumed": "Times: assumed shares of the datasheet's peaks, not calibrated on this device.",
        "datasheet roof": "Times: the datasheet's roof, which no real kernel reaches.",
    }
    if result.calibration in kinds:
        return kinds[result.calibration]
    prefill, decode = (p.cost.assumed_share for p in (result.prefill, result.decode))
    return (
        f"Times: {result.calibration} calibration; assumed shares price what it didn't measure, "
        f"{100 * prefill:.0f} % of prefill and {100 * decode:.0f} % of decode."
    )


def _print_notes(out: Any, result: Estimate) -> None:
    if result.memory.fits:
        out.print(times_line(result))
        out.print("TTFT is the batch's prefill without queueing.")
    for note in result.warnings:
        out.print(f"Note: {note}.")


@app.command()
@takes_case
def command(
    model: Annotated[
        str, typer.Argument(help="Catalogue name, config.json, folder with one, or hub id.")
    ],
    hardware: Annotated[
        str, typer.Option("--hardware", "-H", help="Name of a profile, or a YAML file.")
    ],
    workload: Workload,
    deployment: Deployment,
    roofline_only: Annotated[
        bool,
        typer.Option("--roofline-only", metavar="", help="The datasheet's roof: no calibration."),
    ] = False,
    explain: Annotated[
        Explain | None,
        typer.Option("--explain", help="operators or memory: every row of it.", metavar="<str>"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="One JSON object.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", metavar="", help="Rows for a spreadsheet.")
    ] = False,
) -> None:
    """Latency, throughput and memory of one deployment, and what limits them.

    Exits with status 2 when the batch doesn't fit; the memory is printed all the same.
    """
    if as_json and as_csv:
        raise InputError("--json and --csv: one of them at a time")
    if as_json and explain:
        raise InputError(f"--explain {explain}: --json holds it already; leave --explain out")
    result = estimate(model, hardware, workload, deployment, roofline_only=roofline_only)
    if as_json:
        print_json(estimate_record(result))
    elif as_csv:
        makers = {"operators": _operator_rows, "memory": _memory_rows, None: _summary_rows}
        print_csv(makers[explain](result))
    else:
        _print_tables(result, explain)
    refuse_overflow(result)
