"""The tables of `perfmodel estimate`: built from a finished estimate, computing nothing new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perfmodel.cli.output import table
from perfmodel.cli.text import binary, digits, percent, seconds, si, whole
from perfmodel.inference.estimate import Estimate, Phase
from perfmodel.inference.phase import OperatorCost

if TYPE_CHECKING:
    from rich.table import Table

SHARES_SHOWN = 6
"""Operators named in the short answer; the rest are summed."""


def headline_table(result: Estimate) -> Table:
    """TTFT, TPOT, total and throughput, each with its interval."""
    made = table(None, [("Latency", "left"), ("", "right"), ("90 % interval", "right")])
    rows = (
        ("Time to first token (TTFT)", "ttft_s"),
        ("Time per output token (TPOT), after the first", "tpot_s"),
        ("Whole batch, prefill and decode", "total_s"),
    )
    for label, name in rows:
        low, high = result.interval(name)
        made.add_row(label, seconds(getattr(result, name)), f"{seconds(low)} – {seconds(high)}")
    low, high = result.interval("output_tokens_per_s")
    rate = digits(float(result.output_tokens_per_s))
    made.add_row("Output tokens per second", rate, f"{digits(float(low))} – {digits(float(high))}")
    return made


def _phase_column(phase: Phase) -> list[str]:
    total = phase.cost.total
    return [
        seconds(total.time_s),
        f"{digits(float(phase.tokens_per_s))} tokens/s",
        si(float(total.flops), "FLOP"),
        si(float(total.bytes), "B"),
        f"{digits(float(total.arithmetic_intensity))} FLOP/B",
        f"{digits(phase.ridge_point)} FLOP/B",
        seconds(total.roof_s),
        str(total.bound),
    ]


def phase_table(result: Estimate) -> Table:
    """Prefill and decode side by side."""
    context = whole(float(result.workload.prompt) + float(result.workload.output) / 2)
    heads = [("Per GPU", "left"), ("Prefill", "right"), (f"Decode step at {context}", "right")]
    made = table(None, heads)
    labels = (
        "Time", "Throughput (all GPUs)", "FLOPs", "Device memory traffic",
        "Arithmetic intensity", "Ridge point", "Roof (datasheet, no losses)", "Limited by",
    )  # fmt: skip
    for label, first, second in zip(
        labels, _phase_column(result.prefill), _phase_column(result.decode), strict=True
    ):
        made.add_row(label, first, second)
    return made


def _shares(phase: Phase) -> dict[str, float]:
    total = float(phase.time_s)
    shares: dict[str, float] = {}
    for row in phase.cost.operators:
        shares[row.name] = shares.get(row.name, 0.0) + float(row.cost.time_s) / total
    return shares


def share_table(result: Estimate) -> Table:
    """The operators that take most of the time, in prefill or in decode."""
    first, second = _shares(result.prefill), _shares(result.decode)
    names = sorted(
        first.keys() | second.keys(),
        key=lambda name: -max(first.get(name, 0.0), second.get(name, 0.0)),
    )
    made = table(None, [("Share of time", "left"), ("Prefill", "right"), ("Decode", "right")])
    for name in names[:SHARES_SHOWN]:
        made.add_row(name, *(percent(s[name]) if name in s else "–" for s in (first, second)))
    rest = names[SHARES_SHOWN:]
    if rest:
        sums = (sum(shares.get(name, 0.0) for name in rest) for shares in (first, second))
        made.add_row(f"{len(rest)} others", *(percent(value) for value in sums))
    return made


def memory_rows(result: Estimate) -> list[tuple[str, float]]:
    """Parts of the memory of the fullest GPU, in bytes."""
    memory = result.memory
    return [
        ("weights", float(memory.weights_bytes)),
        ("kv_cache", float(memory.kv_bytes)),
        ("activation_peak", float(memory.activation_bytes)),
        ("reserved", float(memory.reserved_bytes)),
        ("required", float(memory.required_bytes)),
        ("capacity", float(memory.capacity_bytes)),
    ]


def memory_table(result: Estimate, *, detail: bool) -> Table:
    """Memory per GPU, whether it fits, what more would; ``detail`` explains each part."""
    memory, plan = result.memory, result.plan
    heads = [("Memory per GPU", "left"), ("", "right")]
    made = table(None, [*heads, ("", "left")] if detail else heads)

    def add(label: str, value: str, why: str = "") -> None:
        made.add_row(label, value, why) if detail else made.add_row(label, value)

    deployment = plan.deployment
    length = whole(float(result.workload.prompt) + float(result.workload.output))
    waste = float(memory.kv_bytes) - float(memory.kv_stored_bytes)
    add("Weights", binary(float(memory.weights_bytes)), _weights_note(result))
    add(
        f"KV cache ({whole(float(result.workload.batch))} × {length} tokens)",
        binary(float(memory.kv_bytes)),
        f"{binary(memory.kv_bytes_per_token)} a token and sequence in {deployment.kv_cache}; "
        f"{deployment.kv_layout} layout, {binary(waste)} unused",
    )
    add(
        "Activation peak",
        binary(float(memory.activation_bytes)),
        f"{plan.engine.name}'s start-up run: {whole(plan.limits.max_num_seqs)} sequences × "
        f"vocabulary, {whole(plan.limits.max_num_batched_tokens)} tokens × hidden",
    )
    add(
        "Reserved",
        binary(float(memory.reserved_bytes)),
        f"beyond {deployment.gpu_memory_utilization:g} of the device, driver, communication",
    )
    add("Capacity", binary(float(memory.capacity_bytes)), result.hardware.name)
    add("Fits", "yes" if memory.fits else "NO")
    add("Largest batch at this length", whole(float(memory.max_sequences)))
    add("Longest context at this batch", f"{whole(float(memory.max_context))} tokens",
        _context_note(result))  # fmt: skip
    return made


def _weights_note(result: Estimate) -> str:
    parallel = result.plan.parallel
    stage = f", stage {result.memory.stage + 1} of {parallel.pp}" if parallel.pp > 1 else ""
    return f"{result.plan.deployment.weights}, TP {parallel.tp}{stage}"


def _context_note(result: Estimate) -> str:
    limit = result.model.max_positions
    return f"the model was made for {whole(limit)}" if limit else ""


def shape_text(row: OperatorCost) -> str:
    """An operator's shape in a few words."""
    return " ".join(f"{name}={_size(size)}" for name, size in row.shape.items())


def _size(size: Any) -> str:
    value = float(size if not hasattr(size, "ravel") else size.ravel()[0])
    return f"{value:.0f}" if value.is_integer() else f"{value:.1f}"


def _operator_cells(row: OperatorCost, phase_s: float) -> dict[str, str]:
    cost = row.cost
    return {
        "Operator": row.name,
        "Count": str(row.count),
        "FLOPs": si(float(cost.flops), ""),
        "Bytes": si(float(cost.bytes), ""),
        "FLOP/B": digits(float(cost.arithmetic_intensity)),
        "Time": seconds(cost.time_s),
        "Share": percent(float(cost.time_s) / phase_s),
        "Bound": str(cost.bound),
        "Shape": shape_text(row),
    }


WIDE = 120
"""Columns of a terminal from which an operator's shape stands beside it."""


def operator_tables(result: Estimate, width: int) -> Iterator[Table]:
    """Every operator's row, for each phase; shapes only where ``width`` has room for them."""
    left = {"Operator", "Bound", "Shape"}
    for title, phase in (("Prefill", result.prefill), ("Decode step", result.decode)):
        rows = [_operator_cells(row, float(phase.time_s)) for row in phase.cost.operators]
        heads = [name for name in rows[0] if width >= WIDE or name not in {"Shape", "FLOP/B"}]
        made = table(
            f"{title}: operators of one GPU, totals over their count",
            [(head, "left" if head in left else "right") for head in heads],
        )
        for row in rows:
            made.add_row(*(row[head] for head in heads))
        yield made
