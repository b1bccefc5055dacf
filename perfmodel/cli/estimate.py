"""`perfmodel estimate`: latency, what limits it, and memory of one deployment."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from perfmodel.cli import estimate_tables as tables
from perfmodel.cli.lazy import HELP
from perfmodel.cli.options import takes_case
from perfmodel.cli.output import console, print_csv, print_json
from perfmodel.cli.text import binary, whole
from perfmodel.errors import CapacityError, InputError
from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.inference.record import HEADLINE, estimate_record, plain
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
    return rows


def _memory_rows(result: Estimate) -> list[dict[str, Any]]:
    memory = result.memory
    rows: list[tuple[str, Any]] = [(f"{n}_bytes", v) for n, v in tables.memory_rows(result)]
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


def _print_tables(result: Estimate, explain: Explain | None) -> None:
    out = console()
    plan = result.plan.deployment
    gpus = result.plan.parallel.gpus
    out.print(f"[bold]{result.model.name}[/bold] on {gpus} × [bold]{result.hardware.name}[/bold]")
    load = result.workload
    out.print(
        f"batch {whole(load.batch)} · prompt {whole(load.prompt)} · output {whole(load.output)} · "
        f"weights {plan.weights} · cache {plan.kv_cache} · {plan.engine}"
    )
    if result.memory.fits:
        for made in (
            tables.headline_table(result), tables.phase_table(result), tables.share_table(result)
        ):  # fmt: skip
            out.print(made)
    out.print(tables.memory_table(result, detail=explain == "memory"))
    if explain == "operators":
        for made in tables.operator_tables(result, out.width):
            out.print(made)
        if out.width < tables.WIDE:
            out.print(f"Shapes and FLOP/B: from {tables.WIDE} columns on, or --csv.")
    _print_notes(out, result)


def _print_notes(out: Any, result: Estimate) -> None:
    kinds = {
        "assumed": "Times: assumed shares of the datasheet's peaks, not calibrated on this device.",
        "datasheet roof": "Times: the datasheet's roof, which no real kernel reaches.",
    }
    if result.memory.fits:
        out.print(kinds.get(result.calibration, f"Times: {result.calibration} calibration."))
        out.print("TTFT is the batch's prefill without queueing.")
    for note in result.warnings:
        out.print(f"Note: {note}.")


def _refuse_overflow(result: Estimate) -> None:
    """Say on one line what doesn't fit and what would."""
    memory = result.memory
    if memory.fits:
        return
    head = f"{result.model.name} on {result.hardware.name}: "
    if memory.max_sequences == 0 and memory.kv_room_bytes < 0:
        raise CapacityError(
            f"{head}weights {binary(memory.weights_bytes)}, activation peak "
            f"{binary(memory.activation_bytes)} and reserve {binary(memory.reserved_bytes)} per "
            f"GPU exceed {binary(memory.capacity_bytes)}: raise --tp or --pp, take smaller "
            "--weights, or lower --max-num-seqs"
        )
    context = f", or {memory.max_context} tokens at this batch" if memory.max_context else ""
    raise CapacityError(
        f"{head}--batch {result.workload.batch} at {result.workload.prompt} + "
        f"{result.workload.output} tokens needs {binary(memory.required_bytes)} per GPU "
        f"({binary(memory.kv_bytes)} of them cache), and it has {binary(memory.capacity_bytes)}: "
        f"at most --batch {memory.max_sequences} at this length{context}"
    )


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
        bool, typer.Option("--roofline-only", help="The datasheet's roof: no calibration.")
    ] = False,
    explain: Annotated[
        Explain | None, typer.Option("--explain", help="Show every operator, or the memory.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Rows for a spreadsheet.")] = False,
) -> None:
    """Latency, throughput and memory of one deployment, and what limits them.

    Exits with status 2 when the batch doesn't fit; the memory is printed all the same.
    """
    if as_json and as_csv:
        raise InputError("--json and --csv: one of them at a time")
    result = estimate(model, hardware, workload, deployment, roofline_only=roofline_only)
    if as_json:
        print_json(estimate_record(result))
    elif as_csv:
        makers = {"operators": _operator_rows, "memory": _memory_rows, None: _summary_rows}
        print_csv(makers[explain](result))
    else:
        _print_tables(result, explain)
    _refuse_overflow(result)
