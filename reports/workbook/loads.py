"""The Loads sheet: each choice's replica under growing load, and which loads keep the promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from perfmodel.planning.capacity.answer import Choice
from perfmodel.planning.capacity.sizing import Level, Seen, size_fleet
from perfmodel.specs.traffic import ServiceLevel
from perfmodel.units import KILO
from reports.workbook import inputs
from reports.workbook.between import between, between_text
from reports.workbook.case import Case
from reports.workbook.cells import (
    NONE,
    Column,
    Content,
    Formula,
    Place,
    Scalar,
    Table,
    fixed_row,
    plain,
)
from reports.workbook.inputs import InputPlaces
from reports.workbook.page import Highlight, Page

SHEET = "Loads"
PROMISED, TOP = 3, 4
"""The rows of the promises and of the titles."""
LATENCIES = (("ttft", "ms", "TTFT"), ("tpot", "ms", "TPOT"), ("e2e", "s", "End to end"))
FIRST = (
    Column("choice", "Choice", "int", 8),
    Column("load", "Load", "int", 6),
    Column("gpus_per_replica", "GPUs of a replica", "int", 9),
    Column("requests_per_s", "Offered, requests/s", "n2", 10),
    Column("batch", "Running sequen- ces", "n1", 9),
    Column("utilisation", "Busy", "percent0", 8),
    Column("kv_utilisation", "KV cache in use", "percent0", 9),
    Column("preemptions", "Pre- emptions", "int", 9),
)
LAST = (
    Column("exceeded", "Promises broken", "int", 10),
    Column("first_exceeded", "The first of them", "text", 24),
    Column("usable", "Usable (1: yes)", "int", 8),
    Column("slowest_ttft_ms", "Slowest TTFT, ms", "n1", 10),
    Column("slowest_tpot_ms", "Slowest TPOT, ms", "n2", 10),
    Column("fleet_replicas", "Fleet of such replicas", "int", 10),
    Column("fleet_gpus", "Its GPUs", "int", 8),
    Column("fleet_usd_per_hour", "Its cost, USD per hour", "usd2", 11),
    Column("busiest_requests_per_s", "Busiest hour, requests/s of a replica", "n2", 11),
    Column("busiest_tpot_ms", "Slowest TPOT then, ms", "n2", 10),
    Column("busiest_tokens_per_s", "One user's tokens/s then", "n1", 10),
)


def latency_key(name: str, unit: str, which: int) -> str:
    """The name of a class's latency: ``ttft_ms_1`` for the first class."""
    return f"{name}_{unit}_{which + 1}"


def _columns(case: Case) -> tuple[Column, ...]:
    classes = case.plan.traffic.classes
    many = len(classes) > 1
    seen = tuple(
        Column(
            latency_key(name, unit, which),
            f"{title}{f' of {given.name}' if many else ''}, {unit}",
            "n1" if name == "ttft" else "n2",
            11,
        )
        for name, unit, title in LATENCIES
        for which, given in enumerate(classes)
    )
    return FIRST + seen + LAST


def _of_all(records: Sequence[Seen] | Sequence[ServiceLevel]) -> list[float | None]:
    """Latencies or promises of all classes in the order of the columns, in their units."""
    return [
        None if value is None or not isfinite(value) else (KILO if unit == "ms" else 1) * value
        for name, unit, _ in LATENCIES
        for each in records
        for value in [getattr(each, f"{name}_s")]
    ]


def slowest(level: Level, name: str) -> Scalar:
    """The largest ``ttft`` or ``tpot`` of the classes, in ms."""
    seen = [getattr(each, f"{name}_s") for each in level.seen]
    return max((KILO * s for s in seen if s is not None and isfinite(s)), default=NONE)


@dataclass(frozen=True, slots=True)
class Loads:
    """The table, and which of its rows are a choice's."""

    table: Table
    first: tuple[int, ...]
    count: tuple[int, ...]
    seen: tuple[str, ...]
    """Names of all latencies, in order."""

    def span(self, choice: int, key: str) -> str:
        """A quantity over a choice's loads; ``choice`` from 0."""
        start = self.first[choice]
        return self.table.place.span(key, start, start + self.count[choice] - 1)

    def values(self, choice: int, key: str) -> list[Scalar]:
        """What it holds."""
        start = self.first[choice]
        return self.table.values(key)[start : start + self.count[choice]]


@dataclass(frozen=True, slots=True)
class _Spot:
    """A load of a choice: its row, and the ranges it looks at."""

    place: Place
    record: int
    first: int
    """The row of the choice's first load."""
    count: int
    seen: tuple[str, ...]

    def __call__(self, key: str) -> str:
        return self.place.at(self.record, key)

    def own(self, key: str) -> str:
        """A quantity over all loads of the choice."""
        span = self.place.span(key, self.first, self.first + self.count - 1)
        return span.partition("!")[2]

    def latencies(self, name: str = "") -> str:
        """All latencies of the load, or those of one name."""
        keys = [key for key in self.seen if key.startswith(name)]
        return f"{self(keys[0])}:{self(keys[-1])}"

    def above(self, row: int) -> str:
        """The cells of another row above the latencies."""
        ends = (self.place.spot(0, key)[1] for key in (self.seen[0], self.seen[-1]))
        return ":".join(fixed_row(row, column) for column in ends)

    @property
    def broken(self) -> str:
        """1 for each latency beyond its promise, else 0: an array."""
        seen, promised = self.latencies(), self.above(PROMISED)
        return f"ISNUMBER({promised})*ISNUMBER({seen})*({seen}>{promised})"


def _judged(at: _Spot, level: Level, promised: list[float | None], usable: bool) -> list[Content]:
    """Which promises a load breaks."""
    pairs = zip(_of_all(level.seen), promised, strict=True)
    over = [v is not None and limit is not None and v > limit for v, limit in pairs]
    first = at.place.spot(0, at.seen[0])[1]
    columns = f"COLUMN({at.latencies()})"
    position = f"10000-SUMPRODUCT(MAX({at.broken}*(10000-{columns})))-{first}"
    titles = {column.key: column.title for column in at.place.columns}
    before = "" if at.record == at.first else f"{at.place.at(at.record - 1, 'usable')}=1,"
    return [
        Formula(f"SUMPRODUCT({at.broken})", sum(over)),
        Formula(f'IF({at("exceeded")}=0,"",INDEX({at.above(TOP)},1,{position}))',
                titles[at.seen[over.index(True)]] if any(over) else ""),
        Formula(f"IF(AND({before}{at('exceeded')}=0),1,0)", int(usable)),
        *(
            Formula(f'IF(COUNT({at.latencies(name)})=0,"{NONE}",MAX({at.latencies(name)}))',
                    slowest(level, name))
            for name in ("ttft", "tpot")
        ),
    ]  # fmt: skip


def _fleet(
    at: _Spot, case: Case, places: InputPlaces, choice: Choice, level: Level
) -> list[Content]:
    """The fleet whose replicas are loaded so, and what its users see in the busiest hour."""
    price = case.plan.terms.usd_per_gpu_hour.get(choice.hardware.name)
    usd = 0.0 if price is None else price.middle
    fleet = size_fleet(
        level.rate, choice.gpus_per_replica, choice.prefill_share, case.needs(0, usd)
    )
    each = case.busiest / fleet.replicas
    rates = [x.rate for x in choice.levels]
    tpot = between(each, rates, [slowest(x, "tpot") for x in choice.levels])
    cost = places.price(choice.hardware.name, "usd_per_gpu_hour")
    replicas, gpus, then = at("fleet_replicas"), at("fleet_gpus"), at("busiest_tpot_ms")
    working = inputs.working_text(at("requests_per_s"), inputs.BUSIEST)
    return [
        Formula(f"{working}+{inputs.SPARE}", fleet.replicas),
        Formula(f"{replicas}*{at('gpus_per_replica')}", fleet.gpus),
        Formula(f'IF(ISNUMBER({cost}),{gpus}*{cost},"{NONE}")',
                NONE if price is None else fleet.usd_per_hour),
        Formula(f"{inputs.BUSIEST}/{replicas}", each),
        Formula(between_text(at("busiest_requests_per_s"), at.own("requests_per_s"),
                             at.own("slowest_tpot_ms")), tpot),
        Formula(f'IF(ISNUMBER({then}),1000/{then},"{NONE}")',
                KILO / tpot if isinstance(tpot, float) else NONE),
    ]  # fmt: skip


def load_table(case: Case, places: InputPlaces) -> Loads:
    """All loads of all choices."""
    place = Place(SHEET, TOP, 0, _columns(case))
    classes = case.plan.traffic.classes
    seen = tuple(
        latency_key(name, unit, which)
        for name, unit, _ in LATENCIES
        for which in range(len(classes))
    )
    levels = [given.level for given in classes]
    promised = _of_all(levels)
    rows: list[list[Content]] = []
    first, counts = [], []
    for facts in case.facts:
        choice, usable = facts.choice, True
        first.append(len(rows))
        counts.append(len(choice.levels))
        for load, level in enumerate(choice.levels):
            usable = usable and level.keeps(levels)
            at = _Spot(place, len(rows), first[-1], counts[-1], seen)
            rows.append([
                facts.number, load + 1, choice.gpus_per_replica, level.rate, level.batch,
                level.utilisation, level.kv_utilisation, level.preemptions,
                *(plain(value) for value in _of_all(level.seen)),
                *_judged(at, level, promised, usable),
                *_fleet(at, case, places, choice, level),
            ])  # fmt: skip
    return Loads(Table.of("loads", place, rows), tuple(first), tuple(counts), seen)


def loads_page(case: Case, places: InputPlaces, loads: Loads) -> Page:
    """The sheet: promises above, loads below."""
    page = Page(SHEET)
    page.head(
        "Loads: one replica of each choice, simulated",
        f"Latencies: the {case.plan.traffic.percentile:g}th percentile of each class. A load is "
        "usable (green) while it and every smaller one keep all promises of Inputs; what breaks "
        "one is red.",
    )
    place = loads.table.place
    page.put(PROMISED, 0, "Promised at most", "bold")
    count = places.class_count
    keys = [f"{name}_limit_{unit}" for name, unit, _ in LATENCIES for _ in range(count)]
    values = _of_all([given.level for given in case.plan.traffic.classes])
    for number, (seen, key, value) in enumerate(zip(loads.seen, keys, values, strict=True)):
        source = places.limit(number % count, key)
        made = Formula(f'IF(ISNUMBER({source}),{source},"")', "" if value is None else value)
        page.put(PROMISED, place.spot(0, seen)[1], made, "general")
    page.table(loads.table)
    page.filtered = loads.table
    page.frozen, page.titles = (TOP + 1, 2), 2
    page.breaks = (place.spot(0, "exceeded")[1],)
    _highlights(page, loads)
    return page


def _highlights(page: Page, loads: Loads) -> None:
    place, rows = loads.table.place, len(loads.table.rows)
    first, last = place.spot(0, loads.seen[0]), place.spot(rows - 1, loads.seen[-1])
    cell, limit = place.at(0, loads.seen[0]), fixed_row(PROMISED, first[1])
    page.highlights.append(Highlight(
        first, last, f"AND(ISNUMBER({limit}),ISNUMBER({cell}),{cell}>{limit})",
        {"font_color": "#C00000", "bold": True},
    ))  # fmt: skip
    page.highlights.append(Highlight(
        place.spot(0, "choice"), place.spot(rows - 1, LAST[-1].key),
        f"${place.at(0, 'usable')}=1", {"bg_color": "#E2EFDA"},
    ))  # fmt: skip
