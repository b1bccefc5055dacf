"""Tables of a page: cells as text, with the value that they sort by."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.inference.ceilings import Ceiling
from perfmodel.inference.estimate import Estimate, Phase
from perfmodel.inference.phase import OperatorCost
from perfmodel.inference.roofline import DeviceRoofline
from perfmodel.text import binary, digits, percent, seconds, si, whole
from reports.html.columns import NONE, Columns
from reports.html.grid import Grid
from reports.html.provenance import CalibrationUse, Provenance


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a table."""

    text: str
    sort: float | None = None
    """The number that it sorts by; None: by its text, or last where there is no value."""
    note: str = ""
    """Smaller, beneath."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A column: left for words, right for numbers."""

    text: str
    number: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; the first cell of a row is its heading."""

    name: str
    """For the page to find it by."""
    caption: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sorts: bool = True


def number(value: Any, text: str, note: str = "") -> Cell:
    """A number's cell; one that isn't finite sorts last."""
    value = float(value)
    return Cell(text, value if math.isfinite(value) else None, note)


def operator_table(phase: Phase, name: str, caption: str) -> Table:
    """Every operator of a phase."""
    words = ("Operator", "Limited by", "Times from")
    headings = ("Operator", "Runs", "FLOPs", "Bytes", "FLOP/B", "Time", "Interval", "Share",
                "Limited by", "Times from")  # fmt: skip
    total = float(phase.time_s)
    return Table(
        name=name,
        caption=caption,
        headings=tuple(Heading(text, text not in words) for text in headings),
        rows=tuple(_operator(row, total) for row in phase.cost.operators),
    )


def _operator(row: OperatorCost, total: float) -> tuple[Cell, ...]:
    cost = row.cost
    share = float(cost.time_s) / total
    ends = f"{seconds(cost.low_s)} – {seconds(cost.high_s)}"
    return (
        Cell(row.name, note=" · ".join(f"{n} {_size(size)}" for n, size in row.shape.items())),
        number(row.count, whole(row.count)),
        number(cost.flops, si(float(cost.flops), "")),
        number(cost.bytes, si(float(cost.bytes), "B")),
        number(cost.arithmetic_intensity, digits(float(cost.arithmetic_intensity))),
        number(cost.time_s, seconds(cost.time_s)),
        number(cost.low_s, ends if float(cost.low_s) != float(cost.high_s) else NONE),
        number(share, percent(share)),
        Cell(str(cost.bound)),
        Cell(row.source),
    )


def _size(size: Any) -> str:
    value = float(size)
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.1f}"


def grid_table(grid: Grid, columns: Columns, name: str, caption: str) -> Table:
    """A quantity over batch (rows) and prompt (columns), as on the sliders."""
    width = len(grid.batches)
    rows = [
        (
            number(batch, whole(batch)),
            *(Cell(columns[name][p * width + b]) for p in range(len(grid.prompts))),
        )
        for b, batch in enumerate(grid.batches)
    ]
    headings = [Heading("Batch"), *(Heading(whole(prompt)) for prompt in grid.prompts)]
    return Table(f"grid-{name}", caption, tuple(headings), tuple(rows), sorts=False)


def phase_table(answer: Estimate) -> Table:
    """Prefill and the decode step side by side."""
    phases = (answer.prefill, answer.decode)
    rows: list[tuple[str, list[str]]] = [
        ("Time", [seconds(p.time_s) for p in phases]),
        ("Roof: the datasheet’s rates, no losses", [seconds(p.cost.total.roof_s) for p in phases]),
        ("Throughput of all GPUs", [f"{digits(float(p.tokens_per_s))} tokens/s" for p in phases]),
        ("FLOPs per GPU", [si(float(p.cost.total.flops), "FLOP") for p in phases]),
        ("Device memory traffic per GPU", [si(float(p.cost.total.bytes), "B") for p in phases]),
        ("Arithmetic intensity", [
            f"{digits(float(p.cost.total.arithmetic_intensity))} FLOP/B" for p in phases]),
        ("Ridge point", [f"{digits(p.ridge_point)} FLOP/B" for p in phases]),
        ("Time from assumed shares", [percent(float(p.cost.assumed_share)) for p in phases]),
    ]  # fmt: skip
    context = whole(float(answer.workload.prompt) + float(answer.workload.output) / 2)
    step = "step" if answer.speculation is None else "round"
    headings = (
        Heading("", number=False),
        Heading("Prefill"),
        Heading(f"Decode {step} at {context}"),
    )
    cells = tuple((Cell(label), *(Cell(text) for text in texts)) for label, texts in rows)
    return Table("phases", "Prefill and decode", headings, cells, sorts=False)


def speculation_table(answer: Estimate) -> Table | None:
    """What speculative decoding gains."""
    found = answer.speculation
    if found is None:
        return None
    low, high = (digits(float(end)) for end in found.speedup_interval)
    rows = (
        ("Tokens that a round is expected to give", digits(float(found.expected_tokens))),
        ("A round", seconds(found.round_s)),
        ("A plain step", seconds(found.plain.time_s)),
        ("Speed-up", f"{digits(float(found.speedup))} ({low} – {high})"),
    )  # fmt: skip
    cells = tuple((Cell(label), Cell(text)) for label, text in rows)
    heads = (Heading("", number=False), Heading(""))
    return Table("speculation", "Speculative decoding", heads, cells, sorts=False)


def error_table(used: CalibrationUse) -> Table:
    """How far off the fitted kernels are."""
    headings = ("Kernels", "Rows fitted", "Rows tested", "Median error", "90th percentile",
                "In the interval")  # fmt: skip
    rows = tuple(
        (
            Cell(e.family),
            number(e.fitted_rows, whole(e.fitted_rows)),
            number(e.tested_rows, whole(e.tested_rows)),
            number(e.median, f"{e.median:.1f} %"),
            number(e.p90, f"{e.p90:.1f} %"),
            number(e.inside, f"{e.inside:.1f} %"),
        )
        for e in used.errors
    )
    return Table(
        "errors",
        "How far predicted times lie from measured ones that the fit didn’t see",
        tuple(Heading(text, text != "Kernels") for text in headings),
        rows,
    )


def roof_table(device: DeviceRoofline) -> Table:
    """What one GPU promises, and the most that kernels reach of it."""
    words = ("", "From")
    headings = ("", "Datasheet", "Reached", "Interval", "From")
    return Table(
        "roofs",
        "Roofs of one GPU: the datasheet’s, and the most that kernels reach",
        tuple(Heading(text, text not in words) for text in headings),
        tuple(_roof(ceiling) for ceiling in device.ceilings),
        sorts=False,
    )


def _roof(ceiling: Ceiling) -> tuple[Cell, ...]:
    unit = "FLOP/s" if ceiling.kind == "compute" else "B/s"
    best = ceiling.attained
    name = ceiling.name if ceiling.used or ceiling.kind == "memory" else f"{ceiling.name}, not used"
    stated = NONE if ceiling.datasheet is None else si(ceiling.datasheet, unit)
    if best is None:
        return (Cell(name), Cell(stated), Cell(NONE), Cell(NONE), Cell(""))
    ends = f"{si(best.low, unit)} – {si(best.high, unit)}" if best.low < best.high else NONE
    return (Cell(name), Cell(stated), Cell(si(best.rate, unit)), Cell(ends), Cell(best.source))


def fact_table(found: Provenance) -> Table:
    """The hardware profile; figures that no source was read for say so."""
    rows = tuple(
        (Cell(fact.label), Cell(fact.shown), Cell("recalled" if fact.recalled else ""))
        for fact in found.facts
    )
    heads = (Heading("Figure", number=False), Heading("Value"), Heading("", number=False))
    return Table("hardware", "Hardware profile", heads, rows, sorts=False)


def setting_table(answer: Estimate) -> Table:
    """The workload and the deployment as understood; what is off or absent isn't listed."""
    rows = [*_settings(answer.workload.model_dump())]
    rows += _settings(answer.plan.deployment.model_dump())
    cells = tuple((Cell(name), Cell(text)) for name, text in rows)
    heads = (Heading("Setting", number=False), Heading("", number=False))
    return Table("settings", "Workload and deployment, as understood", heads, cells, sorts=False)


def _settings(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from ((f"{name}: {inner}", text) for inner, text in _settings(value))
        elif value not in (None, False, 0):
            yield name.replace("_", " "), _setting(value)


def _setting(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_setting(item) for item in value)
    if value is True:
        return "yes"
    return f"{value:,}" if isinstance(value, int) else str(value)


def memory_table(answer: Estimate) -> Table:
    """The parts of the memory of the fullest GPU."""
    memory = answer.memory
    rows = (
        ("Weights", memory.weights_bytes),
        ("KV cache and state", memory.kv_bytes),
        ("Activation peak", memory.activation_bytes),
        ("Reserved", memory.reserved_bytes),
        ("Needed in all", memory.required_bytes),
        ("Capacity", memory.capacity_bytes),
    )
    cells = tuple((Cell(label), number(value, binary(value))) for label, value in rows)
    heads = (Heading("", number=False), Heading("Per GPU"))
    return Table("memory", "Memory of the fullest GPU", heads, cells, sorts=False)
