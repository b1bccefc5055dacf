"""The tables of `perfmodel simulate`: built from a finished simulation, computing nothing new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfmodel.cli.output import table
from perfmodel.cli.text import counted, digits, percent, seconds, whole
from perfmodel.serving.metrics import Distribution
from perfmodel.serving.results import DEFINITIONS, LATENCIES, Simulation

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 120
"""Columns of a terminal from which a definition stands beside its figure."""
LABELS = {
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "itl_s": "ITL",
    "e2e_s": "End to end",
    "queue_s": "Queueing",
}
WHOLE = {"kv_utilisation_peak": "KV cache in use at most"}
"""Labels that the table shortens."""


def _cells(values: Distribution) -> list[str]:
    return [seconds(getattr(values, name)) for name in ("mean", "p50", "p90", "p99")]


def latency_table(result: Simulation, width: int) -> Table:
    """What users wait, as means and percentiles."""
    heads = [("Latency", "left"), *((name, "right") for name in ("Mean", "p50", "p90", "p99"))]
    wide = width >= WIDE
    made = table(None, [*heads, *([("What it is", "left")] if wide else [])])
    for name in LATENCIES:
        cells = _cells(getattr(result, name))
        made.add_row(LABELS[name], *cells, *([DEFINITIONS[name]] if wide else []))
    return made


def _throughput(result: Simulation) -> Iterator[tuple[str, str, str]]:
    """Label, figure, and the name of its definition."""
    yield "Requests per second", digits(result.requests_per_s), "requests_per_s"
    yield "Output tokens per second", digits(result.output_tokens_per_s), "output_tokens_per_s"
    if result.gpus > 1:
        yield "  and GPU", digits(result.output_tokens_per_s_per_gpu), ""
    yield "Total tokens per second", digits(result.total_tokens_per_s), "total_tokens_per_s"
    if result.gpus > 1:
        yield "  and GPU", digits(result.total_tokens_per_s_per_gpu), ""
    yield "Busy", percent(result.utilisation), "utilisation"
    yield "Running sequences", digits(result.mean_running), "mean_running"
    yield "Waiting requests", digits(result.mean_waiting), "mean_waiting"
    yield "KV cache in use", percent(result.kv_utilisation), "kv_utilisation"
    yield "  at most", percent(result.kv_utilisation_peak), "kv_utilisation_peak"
    yield "Preemptions", whole(result.preemptions), "preemptions"
    yield "Simulated time", seconds(result.simulated_s), "simulated_s"


def throughput_table(result: Simulation, width: int) -> Table:
    """What the machine does meanwhile."""
    wide = width >= WIDE
    head = f"{counted(result.requests, 'request')}, {counted(result.gpus, 'GPU')}"
    heads = [(head, "left"), ("", "right"), *([("What it is", "left")] if wide else [])]
    made = table(None, heads)
    for label, figure, name in _throughput(result):
        made.add_row(label, figure, *([DEFINITIONS.get(name, "")] if wide else []))
    return made


def pool_table(result: Simulation) -> Table:
    """Each pool of instances, where there is more than one."""
    heads = ("Instances", "GPUs", "Busy", "Running", "Waiting", "KV in use", "at most")
    made = table(None, [("Pool", "left"), *((head, "right") for head in heads)])
    for pool in result.pools:
        made.add_row(
            pool.name, whole(pool.instances), whole(pool.gpus), percent(pool.utilisation),
            digits(pool.mean_running), digits(pool.mean_waiting), percent(pool.kv_utilisation),
            percent(pool.kv_utilisation_peak),
        )  # fmt: skip
    return made


def simulation_tables(result: Simulation, width: int) -> Iterator[Table]:
    """All tables, for a terminal of ``width`` columns."""
    yield latency_table(result, width)
    yield throughput_table(result, width)
    if len(result.pools) > 1:
        yield pool_table(result)


def definition_lines(result: Simulation, width: int) -> Iterator[str]:
    """Notes below the tables; on a narrow terminal the definitions too."""
    if width < WIDE:
        for name in LATENCIES:
            yield f"{LABELS[name]}: {DEFINITIONS[name]}."
        for label, _, name in _throughput(result):
            if name:
                yield f"{WHOLE.get(name, label)}: {DEFINITIONS[name]}."
    if result.warmup:
        yield (
            f"Of the first {counted(result.warmup, 'request')} no latency counts; rates and "
            "averages count from the arrival of the next."
        )
    else:
        yield (
            "Everything counts, the start too: where all users begin at once, mean TTFT contains "
            "that burst, as in published benchmarks; --warmup leaves it out."
        )
