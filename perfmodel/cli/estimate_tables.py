"""The tables of `perfmodel estimate`: built from a finished estimate, computing nothing new."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from perfmodel.cli.output import table
from perfmodel.cli.text import digits, percent, seconds, si, whole
from perfmodel.inference.estimate import Estimate, Phase
from perfmodel.inference.phase import OperatorCost
from perfmodel.inference.pipeline import BUBBLE_ROW

if TYPE_CHECKING:
    from rich.table import Table

SHARES_SHOWN = 6
"""Operators named in the short answer; the rest are summed."""


def headline_table(result: Estimate) -> Table:
    """TTFT, TPOT, total and throughput, each with its interval; a roof has none."""
    uncertain = result.calibration != "datasheet roof"
    interval = [("90 % interval", "right")] if uncertain else []
    made = table(None, [("Latency", "left"), ("", "right"), *interval])

    def add(label: str, name: str, shown: Callable[[Any], str]) -> None:
        low, high = result.interval(name)
        ends = [f"{shown(low)} – {shown(high)}"] if uncertain else []
        made.add_row(label, shown(getattr(result, name)), *ends)

    add("Time to first token (TTFT)", "ttft_s", seconds)
    add("Time per output token (TPOT), after the first", "tpot_s", seconds)
    add("Whole batch, prefill and decode", "total_s", seconds)
    add("Output tokens per second", "output_tokens_per_s", lambda rate: digits(float(rate)))
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


HOW_STARTED = {
    "graph": "in a graph",
    "eager": "one by one",
    "ahead": "ahead",
    "fitted": "as fitted",
}
"""How a phase's kernels are started, in words."""


def _launch_cells(phase: Phase) -> tuple[str, str]:
    started = HOW_STARTED[str(phase.started)]
    saved = float(phase.graphs_save_s)
    kernels = whole(float(phase.cost.total.launches))
    return f"{kernels} {started}", seconds(saved) if saved else "nothing"


def phase_table(result: Estimate) -> Table:
    """Prefill and decode side by side."""
    context = whole(float(result.workload.prompt) + float(result.workload.output) / 2)
    stages = result.plan.parallel.pp
    whose = "Per GPU" if stages == 1 else f"One GPU of each of {stages} stages"
    if result.plan.deployment.pp_microbatches > 1:
        whose = f"One GPU of the slowest of {stages} stages"
    what = "step" if result.speculation is None else "round"
    heads = [(whose, "left"), ("Prefill", "right"), (f"Decode {what} at {context}", "right")]
    made = table(None, heads)
    labels = (
        "Time", "Throughput (all GPUs)", "FLOPs", "Device memory traffic",
        "Arithmetic intensity", "Ridge point", "Roof (datasheet, no losses)", "Limited by",
    )  # fmt: skip
    for label, first, second in zip(
        labels, _phase_column(result.prefill), _phase_column(result.decode), strict=True
    ):
        made.add_row(label, first, second)
    cells = zip(_launch_cells(result.prefill), _launch_cells(result.decode), strict=True)
    for label, (first, second) in zip(("Kernels launched", "Graphs save"), cells, strict=True):
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
LONGEST_NAME = 30
"""Characters of an operator's name beyond which a narrow table breaks it at a dot."""


def _broken(name: str) -> str:
    head, dot, tail = name.rpartition(".")
    return f"{head}\n  {dot}{tail}" if len(name) > LONGEST_NAME and head else name


def _title(name: str, phase: Phase) -> str:
    steps = max(int(row.steps) for row in phase.cost.operators)
    if any(row.name == BUBBLE_ROW for row in phase.cost.operators):
        return f"{name} on the slowest stage: totals over all micro-batches, and its wait"
    if steps == 1:
        return f"{name}: operators of one GPU, totals over their count"
    return f"{name} in {steps} chunks: count and shape of the first, totals over all of them"


def operator_tables(result: Estimate, width: int) -> Iterator[Table]:
    """Every operator's row, for each phase; shapes only where ``width`` has room for them."""
    left = {"Operator", "Bound", "Shape"}
    decode = "Decode step" if result.speculation is None else "Decode round"
    for title, phase in (("Prefill", result.prefill), (decode, result.decode)):
        rows = [_operator_cells(row, float(phase.time_s)) for row in phase.cost.operators]
        heads = [name for name in rows[0] if width >= WIDE or name not in {"Shape", "FLOP/B"}]
        made = table(
            _title(title, phase), [(head, "left" if head in left else "right") for head in heads]
        )
        for row in rows:
            if width < WIDE:
                row["Operator"] = _broken(row["Operator"])
            made.add_row(*(row[head] for head in heads))
        yield made
