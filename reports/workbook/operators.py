"""The Operators sheet: what each step computes, its roof, and its calibrated time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

from perfmodel.inference.phase import OperatorCost
from perfmodel.operators.record import Collective
from perfmodel.specs.hardware import Hardware
from perfmodel.units import GIGA, KILO, MEGA, TERA
from reports.workbook.case import Case, Facts
from reports.workbook.cells import (
    NONE,
    Cell,
    Column,
    Content,
    Formula,
    Place,
    Scalar,
    Table,
    as_cell,
)
from reports.workbook.hardware import BANDWIDTH, PEAK, HardwareFacts
from reports.workbook.operator_counts import SAME, counted, kind_of
from reports.workbook.page import Page

SHEET = "Operators"
TOP = 3
NAMES = (
    Column("choice", "Choice", "int", 7),
    Column("phase", "Phase", "text", 8),
    Column("operator", "Operator", "text", 26),
    Column("kind", "Kind", "text", 11),
    Column("count", "Times run", "int", 7),
)
SHAPE = (
    Column("m", "Rows (m), or queries of a sequence", "n1", 11),
    Column("n", "Columns (n)", "int", 9),
    Column("k", "Contrac- ted (k)", "int", 9),
    Column("copies", "Matrices", "int", 8),
    Column("tokens", "Tokens routed", "int", 9),
    Column("top_k", "Experts per token", "int", 8),
    Column("experts", "Experts in all", "int", 8),
    Column("active_experts", "Experts hit here", "n1", 8),
    Column("ranks", "Ranks", "int", 7),
    Column("sequences", "Sequen- ces", "int", 8),
    Column("context", "Context", "int", 9),
    Column("window", "Window", "int", 8),
    Column("keys", "Keys", "int", 9),
    Column("pairs", "Pairs of a sequence", "int", 12),
    Column("heads", "Heads", "int", 7),
    Column("head_width", "d_qk + d_v", "int", 7),
    Column("token_flops", "FLOPs per token", "int", 11),
    Column("weight_bytes", "Bytes per weight", "n3", 8),
    Column("key_bytes", "Bytes per key, or state", "n1", 11),
    Column("row_bytes", "Bytes in and out per row", "n1", 11),
    Column("message_bytes", "Message, bytes", "int", 13),
)
RESULT = (
    Column("arithmetic", "Arith- metic", "text", 7),
    Column("gflop", "GFLOP", "n3z", 11),
    Column("weight_mb", "Weights, MB", "n2z", 11),
    Column("cache_mb", "Cache, MB", "n2z", 10),
    Column("activation_mb", "Activa- tions, MB", "n2z", 10),
    Column("mb", "Memory traffic, MB", "n2", 11),
    Column("wire_mb", "Sent, MB", "n2z", 9),
    Column("flop_per_byte", "Intensity, FLOP/B", "n2z", 9),
    Column("roof_us", "Roof, µs", "n2z", 11),
    Column("time_us", "Calibrated time, µs", "n2z", 11),
    Column("time_us_low", "90 % interval from, µs", "n2z", 11),
    Column("time_us_high", "to, µs", "n2z", 11),
    Column("over_roof", "Time over roof", "n2", 8),
    Column("share", "Share of the phase", "percent", 8),
    Column("tflop_per_s", "Achieved, TFLOP/s", "n2z", 10),
    Column("bound", "Limited by", "text", 10),
    Column("source", "Source of the time", "text", 16),
)


@dataclass(frozen=True, slots=True)
class Line:
    """An operator of a phase of a choice."""

    facts: Facts
    phase: str
    row: OperatorCost
    phase_us: float


def lines(case: Case) -> list[Line]:
    """Every operator of every choice: the prefill of one prompt, then the decode step."""
    made = []
    for facts in case.facts:
        phases = (("prefill", facts.first.prefill), ("decode", facts.typical.decode))
        for name, phase in phases:
            total = float(phase.cost.total.time_s) / 1e-6
            made += [Line(facts, name, row, total) for row in phase.cost.operators]
    return made


@dataclass(frozen=True, slots=True)
class Operators:
    """The table, with the lines that it was made of."""

    table: Table
    lines: tuple[Line, ...]

    def rows(self, number: int, phase: str) -> tuple[int, int]:
        """First and last row of a choice's phase; ``number`` from 1."""
        found = [
            index
            for index, line in enumerate(self.lines)
            if line.facts.number == number and line.phase == phase
        ]
        return found[0], found[-1]

    def span(self, number: int, phase: str, key: str) -> str:
        """A quantity over a choice's phase."""
        return self.table.place.span(key, *self.rows(number, phase))


@dataclass(frozen=True, slots=True)
class _Maker:
    place: Place
    hardware: HardwareFacts

    def line(self, record: int, line: Line, first: int, last: int) -> dict[str, Content]:
        """The cells of a row, by column."""

        def at(key: str) -> str:
            return self.place.at(record, key)

        row, cost = line.row, line.row.cost
        cells: dict[str, Content] = {
            "choice": line.facts.number,
            "phase": line.phase,
            "operator": row.name,
            "kind": kind_of(row),
            "count": _whole(float(row.count) * float(row.steps)),
            "arithmetic": NONE if row.operator is None else row.arithmetic,
            "bound": str(cost.bound),
            "source": row.source,
        }
        cells |= counted(row, at)
        ends = {"": cost.time_s, "_low": cost.low_s, "_high": cost.high_s}
        cells |= {f"time_us{end}": MEGA * float(value) for end, value in ends.items()}
        parts = "+".join(at(key) for key in ("weight_mb", "cache_mb", "activation_mb"))
        traffic, flops = float(cost.bytes) / MEGA, float(cost.flops) / GIGA
        cells["mb"] = Formula(parts, traffic)
        cells["flop_per_byte"] = Formula(
            f"IF({at('mb')}>0,{at('gflop')}*1000/{at('mb')},0)",
            KILO * flops / traffic if traffic else 0,
        )
        cells["roof_us"] = self._roof(line, at("gflop"), at("mb"), at("wire_mb"))
        time, roof = MEGA * float(cost.time_s), MEGA * float(cost.roof_s)
        cells["over_roof"] = Formula(
            f'IF({at("roof_us")}>0,{at("time_us")}/{at("roof_us")},"")',
            time / roof if roof else "",
        )
        total = f"SUM({_rows(self.place, 'time_us', first, last)})"
        cells["share"] = Formula(f"{at('time_us')}/{total}", time / line.phase_us)
        cells["tflop_per_s"] = Formula(
            f"IF({at('time_us')}>0,{at('gflop')}*1000/{at('time_us')},0)",
            KILO * flops / time if time else 0,
        )
        return cells

    def _roof(self, line: Line, gflop: str, mb: str, wire: str) -> Content:
        """The roof by the profile's cells where they give it, else as the program has it."""
        roof = MEGA * float(line.row.cost.roof_s)
        for text, value in self._roofs(line, gflop, mb, wire):
            if math.isclose(value, roof, rel_tol=SAME):
                return Formula(text, roof)
        return roof

    def _roofs(self, line: Line, gflop: str, mb: str, wire: str) -> Iterator[tuple[str, float]]:
        """What the roof may come from, each with what it gives in µs."""
        hardware, cost = line.facts.hardware, line.row.cost
        memory = f"1000*{mb}/{self.hardware.at(hardware, BANDWIDTH)}"
        memory_us = MEGA * float(cost.bytes) / hardware.memory_bandwidth
        yield memory, memory_us
        for key, rate in _peaks(line, hardware):
            compute = MEGA * float(cost.flops) / rate
            text = f"MAX(1000*{gflop}/{self.hardware.at(hardware, key)},{memory})"
            yield text, max(compute, memory_us)
        if isinstance(line.row.operator, Collective):
            for key, rate in _wires(hardware):
                network = MEGA * float(cost.wire_bytes) / rate
                text = f"MAX(1000*{wire}/{self.hardware.at(hardware, key)},{memory})"
                yield text, max(network, memory_us)


def _whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _peaks(line: Line, hardware: Hardware) -> Iterator[tuple[str, float]]:
    for name in (line.row.arithmetic, "fp16_accumulate"):
        rate = getattr(hardware.peaks_tflops, name, None)
        if rate is not None:
            yield PEAK + name, rate * TERA


def _wires(hardware: Hardware) -> Iterator[tuple[str, float]]:
    """Ways to other GPUs by the key of their rate, in bytes/s."""
    if hardware.link is not None:
        yield "link.gb_s_per_direction", GIGA * hardware.link.gb_s_per_direction
        if hardware.link.gb_s_per_pair is not None:
            yield "link.gb_s_per_pair", GIGA * hardware.link.gb_s_per_pair
    if hardware.pcie is not None:
        yield "pcie.gb_s_per_direction", GIGA * hardware.pcie.gb_s_per_direction
    if hardware.network is not None:
        yield "network.gb_s_per_gpu", GIGA * hardware.network.gb_s_per_gpu


def _rows(place: Place, key: str, first: int, last: int) -> str:
    """Some rows of a column for a formula of the same sheet."""
    return place.span(key, first, last).partition("!")[2]


def operator_table(case: Case, hardware: HardwareFacts) -> Operators:
    """All operators; sizes that no operator has aren't shown."""
    all_lines = lines(case)
    used: dict[str, list[Scalar]] = {}
    for line in all_lines:
        for key, content in counted(line.row, lambda key: key).items():
            used.setdefault(key, []).append(as_cell(content).value)
    shape = tuple(_styled(column, used) for column in SHAPE if column.key in used)
    longest = max(len(line.row.name) for line in all_lines) + 3.0
    names = tuple(replace(c, width=longest) if c.key == "operator" else c for c in NAMES)
    place = Place(SHEET, TOP, 0, names + shape + RESULT)
    maker = _Maker(place, hardware)
    rows = []
    starts: dict[tuple[int, str], list[int]] = {}
    for record, line in enumerate(all_lines):
        starts.setdefault((line.facts.number, line.phase), []).append(record)
    for record, line in enumerate(all_lines):
        mine = starts[line.facts.number, line.phase]
        cells = maker.line(record, line, mine[0], mine[-1])
        rows.append([cells.get(column.key, Cell(None)) for column in place.columns])
    return Operators(Table.of("operators", place, rows), tuple(all_lines))


def _styled(column: Column, used: dict[str, list[Scalar]]) -> Column:
    """``column`` without decimals where all its sizes are whole numbers."""
    whole = all(float(value).is_integer() for value in used[column.key] if _is_number(value))
    return replace(column, style="int") if whole and column.style == "n1" else column


def _is_number(value: Scalar) -> TypeGuard[int | float]:
    return isinstance(value, int | float)


def operators_page(case: Case, operators: Operators) -> Page:
    """The sheet."""
    page = Page(SHEET)
    batches = ", ".join(f"{facts.number}: {facts.typical.workload.batch}" for facts in case.facts)
    page.head(
        "Operators: exact counts, the roof, and the calibrated time",
        "Per GPU, all runs of a step together. "
        f"Prefill: one prompt of {case.mean_prompt:,} tokens. "
        f"Decode: one step of the mean batch (choice {batches}) at the mean context. "
        "MB are 10^6 bytes.",
    )
    page.table(operators.table)
    page.filtered = operators.table
    page.frozen = (TOP + 1, 3)
    page.breaks = (len(operators.table.place.columns) - len(RESULT),)
    return page
