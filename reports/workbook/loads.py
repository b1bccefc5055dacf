"""The Loads sheet: each choice's replica under growing load, and which loads keep the promises."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.planning.capacity.answer import Choice
from perfmodel.planning.capacity.sizing import Level, Seen
from perfmodel.specs.traffic import ServiceLevel
from perfmodel.units import KILO
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
)
from reports.workbook.inputs import OUTPUT, PROMPT, InputPlaces
from reports.workbook.page import Highlight, Page

SHEET = "Loads"
PROMISED = 3
"""The row of the promises, above the titles."""
TOP = 4
LATENCIES = (("ttft", "ms", "TTFT"), ("tpot", "ms", "TPOT"), ("e2e", "s", "End to end"))
FIRST = (
    Column("choice", "Choice", "int", 8),
    Column("gpus_per_replica", "GPUs of a replica", "int", 9),
    Column("load", "Load", "int", 7),
    Column("requests_per_s", "Offered, requests/s", "n2", 11),
    Column("batch", "Running sequences", "n1", 11),
    Column("utilisation", "Busy", "percent0", 8),
    Column("kv_utilisation", "KV cache in use", "percent0", 9),
    Column("preemptions", "Preemp- tions", "int", 8),
)
LAST = (
    Column("exceeded", "Promises broken", "int", 10),
    Column("first_exceeded", "The first of them", "text", 24),
    Column("usable", "Usable", "int", 8),
    Column("slowest_ttft_ms", "Slowest TTFT, ms", "n1", 10),
    Column("slowest_tpot_ms", "Slowest TPOT, ms", "n2", 10),
    Column("tokens_per_s_user", "Speed of the slowest, tokens/s", "n1", 11),
    Column("usd_per_million_tokens_full", "USD per million tokens at this load", "usd3", 12),
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
            "n2" if name == "tpot" else "n1" if unit == "ms" else "n2",
            11,
        )
        for name, unit, title in LATENCIES
        for which, given in enumerate(classes)
    )
    return FIRST + seen + LAST


def _in_unit(value: float | None, unit: str) -> float | None:
    return None if value is None else KILO * value if unit == "ms" else value


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


def latencies(seen: tuple[Seen, ...]) -> list[float | None]:
    """What all classes see, in the order of the columns."""
    return [
        _in_unit(getattr(each, f"{name}_s"), unit) for name, unit, _ in LATENCIES for each in seen
    ]


def promises(levels: tuple[ServiceLevel, ...]) -> list[float | None]:
    """What all classes are promised, in the order of the columns."""
    return [
        _in_unit(getattr(each, f"{name}_s"), unit) for name, unit, _ in LATENCIES for each in levels
    ]


@dataclass(frozen=True, slots=True)
class _Maker:
    case: Case
    places: InputPlaces
    place: Place
    seen: tuple[str, ...]

    def _strip(self, record: int) -> str:
        """All latencies of a load."""
        return f"{self.place.at(record, self.seen[0])}:{self.place.at(record, self.seen[-1])}"

    def _part(self, record: int, name: str) -> str:
        """One latency of all classes at a load."""
        keys = [key for key in self.seen if key.startswith(f"{name}_")]
        return f"{self.place.at(record, keys[0])}:{self.place.at(record, keys[-1])}"

    @property
    def _promised(self) -> str:
        ends = (self.place.spot(0, key)[1] for key in (self.seen[0], self.seen[-1]))
        first, last = (fixed_row(PROMISED, column) for column in ends)
        return f"{first}:{last}"

    @property
    def _titles(self) -> str:
        ends = (self.place.spot(0, key)[1] for key in (self.seen[0], self.seen[-1]))
        first, last = (fixed_row(TOP, column) for column in ends)
        return f"{first}:{last}"

    def broken(self, record: int) -> str:
        """1 for each latency beyond its promise, else 0: an array."""
        seen, promised = self._strip(record), self._promised
        return f"ISNUMBER({promised})*ISNUMBER({seen})*({seen}>{promised})"

    def row(self, record: int, number: int, load: int, usable: bool) -> list[Content]:
        """A load; ``usable``: it and all smaller ones keep the promises."""
        choice = self.case.facts[number].choice
        level = choice.levels[load]
        levels = tuple(given.level for given in self.case.plan.traffic.classes)
        seen = latencies(level.seen)
        over = [
            value is not None and limit is not None and value > limit
            for value, limit in zip(seen, promises(levels), strict=True)
        ]
        exceeded = self.place.at(record, "exceeded")
        before = "" if load == 0 else f"{self.place.at(record - 1, 'usable')}=1,"
        return [
            number + 1, choice.gpus_per_replica, load + 1, level.rate, level.batch, level.utilisation, level.kv_utilisation,
            level.preemptions, *seen,
            Formula(f"SUMPRODUCT({self.broken(record)})", sum(over)),
            self._first(record, over),
            Formula(f"IF(AND({before}{exceeded}=0),1,0)", int(usable)),
            self._slowest(record, "ttft", [each.ttft_s for each in level.seen]),
            self._slowest(record, "tpot", [each.tpot_s for each in level.seen]),
            self._speed(record, level),
            self._cost(record, choice, level),
        ]  # fmt: skip

    def _first(self, record: int, over: list[bool]) -> Formula:
        """The title of the first latency beyond its promise."""
        exceeded = self.place.at(record, "exceeded")
        spread = self._strip(record)
        start = self.place.spot(0, self.seen[0])[1]
        position = f"10000-SUMPRODUCT(MAX({self.broken(record)}*(10000-COLUMN({spread}))))"
        text = f'IF({exceeded}=0,"",INDEX({self._titles},1,{position}-{start}))'
        titles = {column.key: column.title for column in self.place.columns}
        value = titles[self.seen[over.index(True)]] if any(over) else ""
        return Formula(text, value)

    def _slowest(self, record: int, name: str, seen: list[float | None]) -> Formula:
        span = self._part(record, name)
        known = [KILO * value for value in seen if value is not None]
        return Formula(f'IF(COUNT({span})=0,"{NONE}",MAX({span}))', max(known, default=NONE))

    def _speed(self, record: int, level: Level) -> Formula:
        slowest = self.place.at(record, "slowest_tpot_ms")
        known = [each.tpot_s for each in level.seen if each.tpot_s is not None]
        value: Scalar = 1 / max(known) if known else NONE
        return Formula(f'IF(ISNUMBER({slowest}),1000/{slowest},"{NONE}")', value)

    def _cost(self, record: int, choice: Choice, level: Level) -> Formula:
        """A full replica's rent over all its tokens: no spare, no headroom."""
        price = self.places.price(choice.hardware.name, "usd_per_gpu_hour")
        rate = self.place.at(record, "requests_per_s")
        text = (
            f"IF(ISNUMBER({price}),{self.place.at(record, 'gpus_per_replica')}*{price}/"
            f'({rate}*3600/1E6*({PROMPT}+{OUTPUT})),"{NONE}")'
        )
        known = self.case.plan.terms.usd_per_gpu_hour.get(choice.hardware.name)
        if known is None:
            return Formula(text, NONE)
        millions = level.rate * 3600 / 1e6 * (self.case.prompt + self.case.output)
        return Formula(text, choice.gpus_per_replica * known.middle / millions)


def load_table(case: Case, places: InputPlaces) -> Loads:
    """All loads of all choices."""
    place = Place(SHEET, TOP, 0, _columns(case))
    count = len(case.plan.traffic.classes)
    seen = tuple(latency_key(n, unit, which) for n, unit, _ in LATENCIES for which in range(count))
    maker = _Maker(case, places, place, seen)
    promised = [given.level for given in case.plan.traffic.classes]
    rows: list[list[Content]] = []
    first, counts = [], []
    for number, facts in enumerate(case.facts):
        first.append(len(rows))
        counts.append(len(facts.choice.levels))
        usable = True
        for load, level in enumerate(facts.choice.levels):
            usable = usable and level.keeps(promised)
            rows.append(maker.row(len(rows), number, load, usable))
    return Loads(Table.of("loads", place, rows), tuple(first), tuple(counts), seen)


def loads_page(case: Case, places: InputPlaces, loads: Loads) -> Page:
    """The sheet: promises above, loads below."""
    page = Page(SHEET)
    percentile = f"{case.plan.traffic.percentile:g}"
    page.head(
        "Loads: one replica of each choice, simulated",
        f"Latencies are the {percentile}th percentile of each class. A load is usable while it and "
        "every smaller one keep all promises of Inputs.",
    )
    place = loads.table.place
    page.put(PROMISED, 0, "Promised at most", "bold")
    limits = [f"{name}_limit_{unit}" for name, unit, _ in LATENCIES for _ in range(places.class_count)]
    values = promises(tuple(given.level for given in case.plan.traffic.classes))
    for number, (key, limit, value) in enumerate(zip(loads.seen, limits, values, strict=True)):
        source = places.limit(number % places.class_count, limit)
        text = f'IF(ISNUMBER({source}),{source},"")'
        page.put(PROMISED, place.spot(0, key)[1], Formula(text, "" if value is None else value), "general")
    page.table(loads.table)
    page.filtered = loads.table
    page.frozen = (TOP + 1, 2)
    _highlights(page, loads)
    return page


def _highlights(page: Page, loads: Loads) -> None:
    place, rows = loads.table.place, len(loads.table.rows)
    first, last = place.spot(0, loads.seen[0]), place.spot(rows - 1, loads.seen[-1])
    cell = place.at(0, loads.seen[0])
    limit = fixed_row(PROMISED, first[1])
    page.highlights.append(Highlight(
        first, last, f"AND(ISNUMBER({limit}),ISNUMBER({cell}),{cell}>{limit})",
        {"font_color": "#C00000", "bold": True},
    ))  # fmt: skip
    usable = place.at(0, "usable")
    page.highlights.append(Highlight(
        place.spot(0, "choice"), place.spot(rows - 1, LAST[-1].key),
        f"${usable}=1", {"bg_color": "#E2EFDA"},
    ))  # fmt: skip
