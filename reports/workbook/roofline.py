"""The Roofline sheet: the chosen deployment's operators under its device's roofs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.units import GIGA, KILO, MEGA
from reports.workbook.case import Case
from reports.workbook.cells import Column, Content, Formula, Place, Table, plain
from reports.workbook.hardware import BANDWIDTH, PEAK, HardwareFacts
from reports.workbook.operators import Operators
from reports.workbook.page import Axis, Chart, Page, Series
from reports.workbook.picked import Picked, PickedColumn, chosen
from reports.workbook.styles import BLUE, GREEN, GREY, ORANGE, PINK, SKY, YELLOW

SHEET = "Roofline"
PHASES = ("prefill", "decode")
PHASE_COLUMNS = (
    Column("choice", "Choice", "int", 9),
    Column("phase", "Phase", "text", 9),
    Column("batch", "Batch, sequences", "int", 10),
    Column("context", "Tokens of each", "int", 10),
    Column("gflop", "GFLOP", "n1", 12),
    Column("mb", "Memory traffic, MB", "n1", 12),
    Column("flop_per_byte", "Intensity, FLOP/B", "n2", 11),
    Column("ridge_flop_per_byte", "Ridge point, FLOP/B", "n1", 11),
    Column("roof_ms", "Roof, ms", "n2", 10),
    Column("time_ms", "Calibrated time, ms", "n2", 11),
    Column("time_ms_low", "90 % interval from, ms", "n2", 11),
    Column("time_ms_high", "to, ms", "n2", 10),
    Column("bound", "Limited by", "text", 11),
)
POINTS = (
    Column("choice", "Choice", "int", 9),
    Column("phase", "Phase", "text", 9),
    Column("operator", "Operator", "text", 10),
    Column("share", "Share of the phase", "percent", 10),
    Column("flop_per_byte", "Intensity, FLOP/B", "n2", 11),
    Column("tflop_per_s", "Achieved, TFLOP/s", "n2", 11),
)
PICKED = (
    ("operator", "operator", "text"), ("share", "share of time", "percent"),
    ("flop_per_byte", "FLOP/B", "n2"), ("tflop_per_s", "TFLOP/s", "n2"),
)  # fmt: skip
RANKED = (
    Column("once", "share of time, once", "percent"), Column("row", "row by share", "int"),
    Column("name", "name and share", "text"), Column("flop_per_byte", "FLOP/B", "n2"),
    Column("tflop_per_s", "TFLOP/s", "n2"),
)  # fmt: skip
TIE = 1e-12
"""Taken from a share for each row above, so that no two are equal."""
DASHES = ("solid", "dash", "round_dot", "dash_dot")
NAMED = 3
"""Operators of a phase whose marks the legend names: those that take most of its time."""
MARKED = (
    (PHASES[0], "circle", (BLUE, SKY, GREEN)),
    (PHASES[1], "diamond", (ORANGE, YELLOW, PINK)),
)
TOP, CHART_ROWS = 3, 27
"""Of the table of phases, and how many rows the chart below it covers."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """The tables behind the chart."""

    phases: Table
    points: Table
    starts: dict[str, tuple[int, ...]]
    """By phase and choice: the first of its points, from 1."""
    counts: dict[str, tuple[int, ...]]


def _phase_rows(case: Case, operators: Operators, hardware: HardwareFacts,
                place: Place) -> list[list[Content]]:  # fmt: skip
    rows: list[list[Content]] = []
    for facts in case.facts:
        for name, result, phase in (
            (PHASES[0], facts.first, facts.first.prefill),
            (PHASES[1], facts.typical, facts.typical.decode),
        ):
            total, record = phase.cost.total, len(rows)

            def summed(key: str, factor: str = "") -> str:
                return f"SUM({operators.span(facts.number, name, key)}){factor}"  # noqa: B023

            peak = hardware.at(facts.hardware, PEAK + result.plan.formats.main.arithmetic)
            bandwidth = hardware.at(facts.hardware, BANDWIDTH)
            gflop, mb = place.at(record, "gflop"), place.at(record, "mb")
            context = result.workload.prompt
            if name == PHASES[1]:
                context = context + result.workload.output / 2
            rows.append([
                facts.number, name, plain(result.workload.batch), plain(context),
                Formula(summed("gflop"), float(total.flops) / GIGA),
                Formula(summed("mb"), float(total.bytes) / MEGA),
                Formula(f"{gflop}*1000/{mb}", float(total.arithmetic_intensity)),
                Formula(f"{peak}*1000/{bandwidth}", phase.ridge_point),
                Formula(summed("roof_us", "/1000"), KILO * float(total.roof_s)),
                Formula(summed("time_us", "/1000"), KILO * float(total.time_s)),
                Formula(summed("time_us_low", "/1000"), KILO * float(total.low_s)),
                Formula(summed("time_us_high", "/1000"), KILO * float(total.high_s)),
                str(total.bound),
            ])  # fmt: skip
    return rows


def _point_rows(
    operators: Operators,
) -> tuple[list[list[Content]], dict[tuple[int, str], list[int]]]:
    """Operators with FLOPs, and which rows are those of a choice's phase."""
    rows: list[list[Content]] = []
    found: dict[tuple[int, str], list[int]] = {}
    source, table = operators.table.place, operators.table
    values = {key: table.values(key) for key in ("share", "flop_per_byte", "tflop_per_s")}
    for record, line in enumerate(operators.lines):
        if not float(line.row.cost.flops) or not float(line.row.cost.time_s):
            continue
        found.setdefault((line.facts.number, line.phase), []).append(len(rows) + 1)
        rows.append([
            line.facts.number, line.phase, line.row.name,
            *(Formula(source.away(record, key), values[key][record]) for key in values),
        ])  # fmt: skip
    return rows, found


def roofline_tables(case: Case, operators: Operators, hardware: HardwareFacts) -> Roofline:
    """Totals of each phase, and a point for each operator that has FLOPs."""
    place = Place(SHEET, TOP, 0, PHASE_COLUMNS)
    phases = Table.of("phases", place, _phase_rows(case, operators, hardware, place))
    rows, found = _point_rows(operators)
    below = TOP + 1 + len(phases.rows) + 1 + CHART_ROWS + 3
    points = Table.of("roofline", Place(SHEET, below, 0, POINTS), rows)
    numbers = [facts.number for facts in case.facts]
    return Roofline(
        phases,
        points,
        {phase: tuple(found[n, phase][0] for n in numbers) for phase in PHASES},
        {phase: tuple(len(found[n, phase]) for n in numbers) for phase in PHASES},
    )


def _picked(roofline: Roofline) -> Picked:
    place, last = roofline.points.place, len(roofline.points.rows) - 1
    columns = tuple(
        PickedColumn(f"{phase}_{key}", f"{phase.capitalize()}: {title}", style,
                     place.span(key, 0, last), roofline.points.values(key),
                     roofline.starts[phase], roofline.counts[phase])
        for phase in PHASES
        for key, title, style in PICKED
    )  # fmt: skip
    most = max(max(counts) for counts in roofline.counts.values())
    return Picked(SHEET, place.top, len(POINTS) + 1, most, columns)


def _ranked(page: Page, data: Picked, phase: str, which: int) -> Place:
    """The operators of a phase by their share of its time, the largest first."""
    place, columns = data.place, {c.key: c for c in data.columns}
    share, names = columns[f"{phase}_share"], columns[f"{phase}_operator"]
    count, start = share.counts[0], share.starts[0] - 1
    left = data.left + len(data.columns) + 2 + (len(RANKED) + 1) * which
    made = Place(SHEET, data.top, left, RANKED)
    for column in RANKED:
        page.put(*made.spot(-1, column.key), f"{phase.capitalize()}: {column.title}", "head")
    shares = made.span("once", 0, data.points - 1)
    values = [float(v or 0) for v in share.values[start : start + count]]
    once = [value - TIE * row for row, value in enumerate(values, 1)]
    order = sorted(range(count), key=lambda row: -once[row])
    for rank in range(data.points):
        point, found = place.at(rank, "point"), place.at(rank, f"{phase}_share")
        own = once[rank] if rank < count else -TIE * (rank + 1)
        text = f"IF({point}>{chosen(share.counts)},0,{found})-{TIE:.0E}*{point}"
        page.put(*made.spot(rank, "once"), Formula(text, own), "percent")
        row, spot = order[min(rank, count - 1)], made.at(rank, "row")
        largest = f"LARGE({shares},MIN({point},{chosen(share.counts)}))"
        page.put(*made.spot(rank, "row"), Formula(f"MATCH({largest},{shares},0)", row + 1), "int")
        name, part = data.span(names.key), data.span(share.key)
        page.put(*made.spot(rank, "name"), Formula(
            f'"{phase.capitalize()}: "&INDEX({name},{spot})&", "&TEXT(INDEX({part},{spot}),"0%")',
            f"{phase.capitalize()}: {names.values[start + row]}, {values[row]:.0%}"))  # fmt: skip
        for key in ("flop_per_byte", "tflop_per_s"):
            source = columns[f"{phase}_{key}"]
            text = f"INDEX({data.span(source.key)},{spot})"
            page.put(*made.spot(rank, key), Formula(text, source.values[start + row]), "n2")
    return made


def _marks(page: Page, data: Picked) -> list[Series]:
    """A mark for each operator; those that take most time have colours and names of their own."""
    others, named = [], []
    for which, (phase, mark, colours) in enumerate(MARKED):
        made, last = _ranked(page, data, phase, which), data.points - 1

        def series(name: str, first: int, end: int, colour: str) -> Series:
            x, y = (made.span(key, first, end) for key in ("flop_per_byte", "tflop_per_s"))  # noqa: B023
            return Series(name, x, y, colour, line=False, mark=mark)  # noqa: B023

        named += [
            series(made.away(rank, "name"), rank, rank, colours[rank])
            for rank in range(min(NAMED, data.points))
        ]
        if last >= NAMED:
            others.append(series(f"{phase.capitalize()}, others", NAMED, last, "#A6A6A6"))
    return named + others


def _arithmetics(operators: Operators, hardware: HardwareFacts) -> list[str]:
    """What the operators of any choice compute in, where the first choice's device has it."""
    used = dict.fromkeys(line.row.arithmetic for line in operators.lines)
    return [name for name in used if PEAK + name in hardware.table.keys]


def _decade(value: float, *, up: bool) -> float:
    power = math.log10(value)
    return 10.0 ** (math.ceil(power) if up else math.floor(power))


def roofline_page(case: Case, roofline: Roofline, operators: Operators,
                  hardware: HardwareFacts) -> Page:  # fmt: skip
    """The sheet: totals, the chart, and its data."""
    page = Page(SHEET, tab="#0072B2")
    page.head(
        "Roofline: where the chosen deployment's operators stand",
        "A mark is an operator at its calibrated time; no device works above the lines. "
        "Operators without FLOPs (norms, exchanges) have no mark.",
    )
    page.table(roofline.phases)
    page.table(roofline.points, shown=False)
    data = _picked(roofline)
    data.write(page)
    xs = [float(x) for x in roofline.points.values("flop_per_byte") if isinstance(x, int | float)]
    ys = [float(y) for y in roofline.points.values("tflop_per_s") if isinstance(y, int | float)]
    names = _arithmetics(operators, hardware)
    peaks = [rate for h in case.hardware for name in names if (rate := h.peak(name))]
    low, high = _decade(min(xs), up=False), _decade(max([*xs, 1000]), up=True)
    top = _decade(max(peaks) / 1e12, up=True)
    lines = _roofs(page, case, hardware, names, (low, high), data)
    marks = _marks(page, data)
    page.charts.append(Chart(
        "scatter", "Roofline of the chosen deployment, one GPU", (*lines, *marks),
        Axis("Arithmetic intensity, FLOP per byte of device memory", True, low, high),
        Axis("TFLOP/s", True, _decade(min(ys), up=False), top),
        (TOP + 1 + len(roofline.phases.rows) + 1, 0), (980, 520),
    ))  # fmt: skip
    page.frozen = (TOP + 1, 0)
    below = TOP + 1 + len(roofline.phases.rows) + 1 + CHART_ROWS
    page.printed, page.pages = (0, 0, below, len(PHASE_COLUMNS) - 1), 1
    return page


ROOF_COLUMNS = 3


def _roofs(page: Page, case: Case, hardware: HardwareFacts, names: list[str],
           ends: tuple[float, float], data: Picked) -> list[Series]:  # fmt: skip
    """The roofs' points: both ends of the axis, and the ridge between them."""
    left = data.left + len(data.columns) + 2 + 2 * (len(RANKED) + 1)
    page.put(data.top - 1, left, "Roofs of the chosen deployment's device", "note")
    which = f"MATCH(Chosen_hardware,{hardware.span('name')},0)"
    series = []
    first = case.facts[0].hardware
    bandwidth = f"INDEX({hardware.span(BANDWIDTH)},1,{which})"
    for number, name in enumerate(names):
        key, column = PEAK + name, left + 2 * number
        page.put(data.top, column, f"{name}: FLOP/B", "head")
        page.put(data.top, column + 1, f"{name}: TFLOP/s", "head")
        rate = f"INDEX({hardware.span(key)},1,{which})"
        best = f"INDEX({hardware.span(PEAK + _main(case))},1,{which})"
        peak = f"IF(N({rate})>0,{rate},{best})"
        rates = first.peak(name) or first.peak(_main(case)) or 0.0
        ridge = rates / first.memory_bandwidth
        xs: list[Content] = [ends[0], Formula(f"{peak}*1000/{bandwidth}", ridge), ends[1]]
        values = [ends[0], ridge, ends[1]]
        for row, (x, value) in enumerate(zip(xs, values, strict=True), data.top + 1):
            cell = page.put(row, column, x, "n2")
            roof = min(rates, first.memory_bandwidth * value) / 1e12
            page.put(row, column + 1, Formula(f"MIN({peak},{bandwidth}*{cell}/1000)", roof), "n1")
        series.append(Series(
            f"{name} roof", _range(column, data.top), _range(column + 1, data.top),
            GREY, dash=DASHES[number % len(DASHES)],
        ))  # fmt: skip
    return series


def _main(case: Case) -> str:
    return case.facts[0].first.plan.formats.base_arithmetic


def _range(column: int, top: int) -> str:
    place = Place(SHEET, top, column, (Column("x", "x"),))
    return place.span("x", 0, 2)
