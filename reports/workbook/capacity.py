"""The Capacity sheet: each choice's fleet by formulas, and the chosen one beside them.

The formulas are those of `perfmodel.planning.capacity.sizing`, whose functions give the values
that are stored with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfmodel.planning.capacity.sizing import Fleet, Level, best_level, size_fleet
from perfmodel.units import KILO
from reports.workbook import inputs
from reports.workbook.case import Case, Facts
from reports.workbook.cells import NONE, Cell, Column, Content, Formula, Place, Scalar, Table
from reports.workbook.inputs import Answer, InputPlaces
from reports.workbook.loads import Loads
from reports.workbook.page import Highlight, Page

SHEET = "Capacity"
TOP = 4
UNMET = "no load meets the service levels"
ALL_MET = "none that was simulated"
MOST = "Chosen_"
"""Before the names of the chosen deployment's figures."""
ENDS = ("low", "", "high")


@dataclass(frozen=True, slots=True)
class Sized:
    """A choice's level and fleet, at the low, middle and high price."""

    facts: Facts
    level: Level | None
    fleet: Fleet | None
    """At the middle price; at 0 where there is none."""
    ends: dict[str, Fleet] | None
    """By end of the price; None without a price or a level."""
    prices: dict[str, float] | None
    limit: str
    seen: tuple[float | None, float | None]
    """Slowest TTFT and TPOT at the level, in ms."""


def _prices(case: Case, facts: Facts) -> dict[str, float] | None:
    price = case.plan.terms.usd_per_gpu_hour.get(facts.hardware.name)
    return None if price is None else {"low": price.low, "": price.middle, "high": price.high}


def fleet_of(case: Case, facts: Facts, month: int, price: float) -> Fleet | None:
    """The fleet of a month; None where no load keeps the promises."""
    level = kept(case, facts)
    if level is None:
        return None
    choice = facts.choice
    needs = case.needs(month, price)
    return size_fleet(level.rate, choice.gpus_per_replica, choice.prefill_share, needs)


def kept(case: Case, facts: Facts) -> Level | None:
    """The largest load of a choice that keeps the promises."""
    return best_level(facts.choice.levels, [c.level for c in case.plan.traffic.classes])


def sized(case: Case, facts: Facts, loads: Loads, number: int) -> Sized:
    """What the formulas of a choice give for the inputs as written."""
    level = kept(case, facts)
    prices = _prices(case, facts)
    fleet = fleet_of(case, facts, 0, (prices or {"": 0.0})[""])
    ends = None
    if fleet is not None and prices is not None:
        ends = {end: fleet_of(case, facts, 0, price) for end, price in prices.items()}
    used = sum(1 for each in facts.choice.levels if level is not None and each.rate <= level.rate)
    broken = loads.table.values("first_exceeded")[loads.first[number] :][: loads.count[number]]
    limit = ALL_MET if used == loads.count[number] else str(broken[used])
    seen = (None, None) if level is None else (
        KILO * max(each.ttft_s for each in level.seen),
        max((KILO * each.tpot_s for each in level.seen if each.tpot_s is not None), default=None),
    )  # fmt: skip
    return Sized(facts, level, fleet, ends, prices, limit, seen)  # type: ignore[arg-type]


Text = Callable[["Maker"], str]
Value = Callable[[Sized], Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the sheet: its column of files, its formula (None: a fact) and its value."""

    column: Column
    value: Value
    text: Text | None = None


@dataclass(frozen=True, slots=True)
class Maker:
    """What formulas of one choice refer to."""

    places: InputPlaces
    loads: Loads
    place: Place
    number: int
    hardware: str

    def __call__(self, key: str) -> str:
        """The choice's own figure."""
        return self.place.at(self.number, key)

    def load(self, key: str) -> str:
        """A quantity over the choice's loads."""
        return self.loads.span(self.number, key)

    def at_level(self, key: str, otherwise: str = NONE) -> str:
        """A quantity at the largest usable load."""
        used = self("usable_loads")
        return f'IF({used}=0,"{otherwise}",INDEX({self.load(key)},{used}))'

    def where(self, key: str, text: str, otherwise: str = NONE) -> str:
        """``text`` where another figure is a number."""
        return f'IF(ISNUMBER({self(key)}),{text},"{otherwise}")'

    def price(self, end: str) -> str:
        """An end of the price, 0 USD being one, or words where there is none."""
        middle = self.places.price(self.hardware, "usd_per_gpu_hour")
        key = f"usd_per_gpu_hour_{end}" if end else "usd_per_gpu_hour"
        source = self.places.price(self.hardware, key)
        return f'IF(ISNUMBER({middle}),{source},"{inputs.NO_PRICE}")'


def _known(value: Scalar) -> Scalar:
    return NONE if value is None else value


def _level(name: str) -> Value:
    return lambda s: NONE if s.level is None else getattr(s.level, name)


def _fleet(name: str) -> Value:
    return lambda s: NONE if s.fleet is None else getattr(s.fleet, name)


def _cost(name: str, end: str) -> Value:
    return lambda s: NONE if s.ends is None else getattr(s.ends[end], name)


def _working(s: Sized) -> Scalar:
    return NONE if s.fleet is None else s.fleet.replicas - _spare(s)


def _spare(s: Sized) -> int:
    """Spare replicas, from the two loads of the fleet: they differ by those gone."""
    assert s.fleet is not None  # noqa: S101  (the caller looked)
    share = s.fleet.utilisation / s.fleet.utilisation_degraded
    return s.fleet.replicas - round(share * s.fleet.replicas)


BUSIEST = f"{inputs.RATE}*{inputs.PEAK}"


def working_text(rate: str, busiest: str) -> str:
    """Replicas that hold the busiest hour: ⌈busiest / (target·rate)⌉, at least one."""
    return f"MAX(1,ROUNDUP({busiest}/({inputs.TARGET}*{rate})-1E-9,0))"


def _suffixed(name: str, end: str) -> str:
    return f"{name}_{end}" if end else name


def _usd(end: str) -> str:
    return _suffixed("usd_per_gpu_hour", end)


def _facts_rows() -> list[Figure]:
    return [
        Figure(Column("label", "Deployment", "wrap"), lambda s: s.facts.label),
        Figure(Column("hardware", "Hardware"), lambda s: s.facts.hardware.name),
        Figure(Column("gpus_per_replica", "GPUs of a replica", "int", unit="GPUs"),
               lambda s: s.facts.choice.gpus_per_replica),
        Figure(Column("prefill_share", "Prefill's share of the steps' time", "percent"),
               lambda s: s.facts.choice.prefill_share),
    ]  # fmt: skip


def _load_rows() -> list[Figure]:
    return [
        Figure(Column("usable_loads", "Loads that keep the promises", "int",
                      unit="of those simulated"),
               lambda s: 0 if s.level is None else s.facts.choice.levels.index(s.level) + 1,
               lambda at: f"SUM({at.load('usable')})"),
        Figure(Column("requests_per_s_replica", "Largest of them", "n2", unit="requests/s"),
               lambda s: UNMET if s.level is None else s.level.rate,
               lambda at: at.at_level("requests_per_s", UNMET)),
        Figure(Column("batch", "Batch at it", "n1", unit="running sequences"), _level("batch"),
               lambda at: at.at_level("batch")),
        Figure(Column("kv_utilisation", "KV cache in use at it", "percent0"),
               _level("kv_utilisation"), lambda at: at.at_level("kv_utilisation")),
        Figure(Column("slowest_ttft_ms", "TTFT at it", "n1", unit="ms, slowest class"),
               lambda s: _known(s.seen[0]), lambda at: at.at_level("slowest_ttft_ms")),
        Figure(Column("slowest_tpot_ms", "TPOT at it", "n2", unit="ms, slowest class"),
               lambda s: _known(s.seen[1]), lambda at: at.at_level("slowest_tpot_ms")),
        Figure(Column("tokens_per_s_user", "Speed of the slowest class", "n1", unit="tokens/s"),
               lambda s: NONE if s.seen[1] is None else KILO / s.seen[1],
               lambda at: at.at_level("tokens_per_s_user")),
        Figure(Column("load_limit", "A larger load breaks", "wrap"), lambda s: s.limit,
               lambda at: f'IF({at("usable_loads")}=ROWS({at.load("usable")}),"{ALL_MET}",'
               f'INDEX({at.load("first_exceeded")},{at("usable_loads")}+1))'),
    ]  # fmt: skip


def _fleet_rows() -> list[Figure]:
    rate = "requests_per_s_replica"
    return [
        Figure(Column("working_replicas", "Replicas for the busiest hour", "int", unit="replicas"),
               _working, lambda at: at.where(rate, working_text(at(rate), BUSIEST))),
        Figure(Column("replicas", "Replicas, spare ones too", "int", unit="replicas"),
               _fleet("replicas"),
               lambda at: at.where(rate, f"{at('working_replicas')}+{inputs.SPARE}")),
        Figure(Column("gpus", "GPUs", "int", unit="GPUs"), _fleet("gpus"),
               lambda at: at.where(rate, f"{at('replicas')}*{at('gpus_per_replica')}")),
        Figure(Column("utilisation", "Load in the busiest hour", "percent",
                      unit="of all replicas' rate"), _fleet("utilisation"),
               lambda at: at.where(rate, f"{BUSIEST}/({at('replicas')}*{at(rate)})")),
        Figure(Column("utilisation_degraded", "… with the spare ones gone", "percent",
                      unit="of the others' rate"), _fleet("utilisation_degraded"),
               lambda at: at.where(rate, f"{BUSIEST}/({at('working_replicas')}*{at(rate)})")),
    ]  # fmt: skip


def _price_rows() -> list[Figure]:
    def price(end: str) -> Figure:
        return Figure(
            Column(_usd(end), f"Price{f', {end}' if end else ', middle'}", "usd3",
                   unit="USD per GPU hour"),
            lambda s: inputs.NO_PRICE if s.prices is None else s.prices[end],
            lambda at: at.price(end),
        )  # fmt: skip

    def hourly(end: str) -> Figure:
        return Figure(
            Column(_suffixed("usd_per_hour", end), f"Cost{f', {end} price' if end else ''}",
                   "usd2", unit="USD per hour"),
            _cost("usd_per_hour", end),
            lambda at: f"IF(AND(ISNUMBER({at('gpus')}),ISNUMBER({at(_usd(end))})),"
            f'{at("gpus")}*{at(_usd(end))},"{NONE}")',
        )  # fmt: skip

    return [price(end) for end in ENDS] + [hourly(end) for end in ENDS]


def _token_rows() -> list[Figure]:
    def tokens(kind: str, share: str, mean: str, end: str) -> Figure:
        key = f"usd_per_million_{kind}_tokens"
        hourly = _suffixed("usd_per_hour", end)

        def text(at: Maker) -> str:
            part = share.format(at("prefill_share"))
            return at.where(hourly, f"{at(hourly)}*{part}/({inputs.RATE}*3600/1E6*{mean})")

        title = f"Cost of {kind} tokens{f', {end} price' if end else ''}"
        return Figure(Column(_suffixed(key, end), title, "usd3", unit="USD per million"),
                      _cost(key, end), text)  # fmt: skip

    kinds = (("prompt", "{}", inputs.PROMPT), ("output", "(1-{})", inputs.OUTPUT))
    return [tokens(*kind, end) for kind in kinds for end in ENDS]


def _monthly() -> Figure:
    return Figure(
        Column("usd_per_month", "Cost", "usd", unit="USD per month"),
        lambda s: NONE if s.ends is None else inputs.HOURS_PER_MONTH * s.ends[""].usd_per_hour,
        lambda at: at.where("usd_per_hour", f"{at('usd_per_hour')}*{inputs.HOURS}"),
    )


def figures() -> list[Figure]:
    """All rows, in their order."""
    return [
        *_facts_rows(), *_load_rows(), *_fleet_rows(), *_price_rows(), _monthly(), *_token_rows(),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Capacity:
    """The table, and the values behind it."""

    table: Table
    sized: tuple[Sized, ...]
    rows: tuple[Figure, ...]

    @property
    def place(self) -> Place:
        """Where it lies."""
        return self.table.place

    @property
    def labels(self) -> str:
        """The range of all choices' labels."""
        return self.place.span("label", 0, len(self.sized) - 1)

    def chosen(self, key: str) -> str:
        """The name of the chosen deployment's figure."""
        return MOST + key

    def first_value(self, key: str) -> Scalar:
        """The first choice's figure: the chosen one's, as written."""
        return self.table.values(key)[0]


def capacity_table(case: Case, places: InputPlaces, loads: Loads) -> Capacity:
    """The fleet of each choice."""
    rows = figures()
    place = Place(SHEET, TOP, 0, tuple(row.column for row in rows), across=True, gap=1)
    all_sized = [sized(case, facts, loads, n) for n, facts in enumerate(case.facts)]
    records = []
    for number, each in enumerate(all_sized):
        at = Maker(places, loads, place, number, each.facts.hardware.name)
        records.append([_content(row, each, at) for row in rows])
    return Capacity(Table.of("capacity", place, records), tuple(all_sized), tuple(rows))


def _content(row: Figure, each: Sized, at: Maker) -> Content:
    value = row.value(each)
    return value if row.text is None else Formula(row.text(at), value)


ANSWERS = (
    ("Deployment", "label", "bold", ""),
    ("GPUs", "gpus", "int", "month 0, spare ones too"),
    ("Replicas", "replicas", "int", "month 0, spare ones too"),
    ("Load in the busiest hour", "utilisation", "percent", "of what all replicas carry"),
    ("… with the spare ones gone", "utilisation_degraded", "percent", "of what the others carry"),
    ("Cost", "usd_per_hour", "usd2", "USD per hour, middle price"),
    ("Cost per month", "usd_per_month", "usd", "USD, month 0"),
    ("Cost of prompt tokens", "usd_per_million_prompt_tokens", "usd3", "USD per million"),
    ("Cost of output tokens", "usd_per_million_output_tokens", "usd3", "USD per million"),
    ("A larger load breaks", "load_limit", "bold", ""),
)


def answers(capacity: Capacity) -> list[Answer]:
    """What the Inputs sheet repeats."""
    return [
        Answer(label, capacity.chosen(key), capacity.first_value(key), style, "", note)
        for label, key, style, note in ANSWERS
    ]


def capacity_page(case: Case, capacity: Capacity) -> Page:
    """The sheet: the chosen deployment, then all choices side by side."""
    page = Page(SHEET, tab="#548235")
    count = len(capacity.sized)
    page.head(
        "Capacity: fleets that hold the busiest hour",
        "Every figure is a formula over Inputs and Loads. The green column is the deployment that "
        "is chosen on Inputs; the others are all that the plan offers, as it ranked them.",
    )
    for column, title in enumerate(("Figure", "Unit", "Chosen")):
        page.put(TOP - 1, column, title, "head")
    for number in range(count):
        page.put(TOP - 1, 3 + number, f"Choice {number + 1}", "head")
    page.table(capacity.table)
    place = capacity.place
    for row in capacity.rows:
        key = row.column.key
        line = place.spot(0, key)[0]
        text = f"INDEX({place.span(key, 0, count - 1)},1,{inputs.CHOICE})"
        page.put(line, 2, Cell(
            Formula(text, capacity.first_value(key)), f"chosen.{row.column.style}",
            capacity.chosen(key)))  # fmt: skip
    page.widths |= {0: 34, 1: 20, 2: 24} | {3 + number: 24 for number in range(count)}
    page.heights |= {place.spot(0, key)[0]: 45 for key in ("label", "load_limit")}
    page.frozen = (TOP, 3)
    first = place.spot(0, "usable_loads")
    page.highlights.append(Highlight(
        (first[0], 2), place.spot(count - 1, "utilisation_degraded"),
        f'OR(C{first[0] + 1}="{UNMET}",C{first[0] + 1}="{NONE}")', {"font_color": "#C00000"},
    ))  # fmt: skip
    return page
