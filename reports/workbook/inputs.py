"""The Inputs sheet: what a planner changes, and the answer beside it."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.planning.capacity.energy import BUSY, IDLE
from perfmodel.planning.capacity.requests import mean_length
from perfmodel.serving.lengths import Lengths
from perfmodel.specs.traffic import RequestClass
from perfmodel.units import KILO
from reports.workbook.case import Case
from reports.workbook.cells import Cell, Column, Content, Formula, Place, Rule, Table, plain
from reports.workbook.page import Page

SHEET = "Inputs"
RATE, PEAK, GROWTH, HORIZON = "Mean_rate", "Peak_factor", "Monthly_growth", "Horizon_months"
TARGET, SPARE, HOURS = "Utilisation_target", "Spare_replicas", "Hours_per_month"
CHOSEN, CHOICE = "Chosen_deployment", "Choice_no"
PROMPT, OUTPUT = "Mean_prompt", "Mean_output"
"""Names that formulas call inputs by."""
BUSY_LOW, BUSY_HIGH = "Busy_power_low", "Busy_power_high"
IDLE_LOW, IDLE_HIGH = "Idle_power_low", "Idle_power_high"
BUSIEST = f"{RATE}*{PEAK}"
"""Requests per second in the first month's busiest hour."""
HOURS_PER_MONTH = 730
"""A year's 8,760 hours over 12."""
FURTHEST = 120
"""Months that a horizon may reach."""

_LIMIT = "Empty: nothing is promised."
CLASSES = (
    Column("name", "Class", "text", 34),
    Column("share", "Share of requests", "percent", 14),
    Column("prompt_tokens", "Prompt, tokens (mean)", "n1", 14),
    Column("output_tokens", "Output, tokens (mean)", "n1", 14),
    Column("prefix_tokens", "Shared prefix, tokens", "int", 14),
    Column("ttft_limit_ms", "TTFT at most, ms", "general", 14),
    Column("tpot_limit_ms", "TPOT at most, ms", "general", 14),
    Column("e2e_limit_s", "End to end at most, s", "general", 14),
    Column("prompt", "Prompt lengths", "text", 20),
    Column("output", "Output lengths", "text", 20),
)
PRICES = (
    Column("hardware", "Hardware", "text", 34),
    Column("usd_per_gpu_hour_low", "Low, USD per GPU hour", "usd3", 14),
    Column("usd_per_gpu_hour_high", "High, USD per GPU hour", "usd3", 14),
    Column("usd_per_gpu_hour", "Middle, USD per GPU hour", "usd3", 14),
    Column("source", "Source", "text", 14),
)
NO_PRICE = "no price"


@dataclass(frozen=True, slots=True)
class InputPlaces:
    """Where other sheets find what has no name."""

    classes: Place
    class_count: int
    prices: Place
    hardware: tuple[str, ...]

    @property
    def power(self) -> int:
        """The row of the section that follows the prices."""
        return self.prices.top + len(self.hardware) + 2

    def limit(self, which: int, key: str) -> str:
        """The promise to a class: ``ttft_limit_ms``, ``tpot_limit_ms`` or ``e2e_limit_s``."""
        return self.classes.away(which, key)

    def price(self, hardware: str, key: str) -> str:
        """An end of a price, or its middle."""
        return self.prices.away(self.hardware.index(hardware), key)


ANSWERS, DEPLOYMENT, TRAFFIC, SIZING = 3, 23, 27, 35
"""Rows of the sections above the tables."""
_CLASSES = 40


def working_text(rate: str, busiest: str) -> str:
    """Replicas that hold the busiest hour: ⌈busiest / (target·rate)⌉, at least one."""
    return f"MAX(1,ROUNDUP({busiest}/({TARGET}*{rate})-1E-9,0))"


def input_places(case: Case) -> InputPlaces:
    """The places of the tables, whose lengths the case decides."""
    count = len(case.plan.traffic.classes)
    classes = Place(SHEET, _CLASSES + 1, 0, CLASSES)
    prices = Place(SHEET, _CLASSES + 1 + count + 5, 0, PRICES)
    return InputPlaces(classes, count, prices, tuple(h.name for h in case.hardware))


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else KILO * seconds


def _limit(value: float | None, what: str, unit: str) -> Cell:
    message = f"{what}, {unit}, at the traffic's percentile. {_LIMIT}"
    return Cell(value, rule=Rule("decimal", message, 0.001, 1e9, empty=True))


def _class_row(given: RequestClass, share: float) -> list[Content]:
    level = given.level
    return [
        given.name,
        share,
        mean_length(Lengths.parse(given.prompt, "prompt")),
        mean_length(Lengths.parse(given.output, "output")),
        given.prefix_tokens,
        _limit(_milli(level.ttft_s), "Time to first token, queueing included", "ms"),
        _limit(_milli(level.tpot_s), "Time per output token after the first", "ms"),
        _limit(level.e2e_s, "From arrival to the last token", "s"),
        str(given.prompt),
        str(given.output),
    ]


def class_table(case: Case, places: InputPlaces) -> Table:
    """The request classes with what is promised to them."""
    traffic = case.plan.traffic
    rows = [
        _class_row(given, share)
        for given, share in zip(traffic.classes, traffic.shares(), strict=True)
    ]
    return Table.of("classes", places.classes, rows)


def price_table(case: Case, places: InputPlaces) -> Table:
    """What a GPU of each kind costs."""
    terms, rows = case.plan.terms, []
    rule = Rule("decimal", "USD per GPU and hour. Empty: no price, no cost.", 0, 1e6, empty=True)
    for record, name in enumerate(places.hardware):
        low, high = (
            places.prices.at(record, key)
            for key in ("usd_per_gpu_hour_low", "usd_per_gpu_hour_high")
        )
        price = terms.usd_per_gpu_hour.get(name)
        middle = NO_PRICE if price is None else price.middle
        rows.append([
            name,
            Cell(None if price is None else price.low, rule=rule),
            Cell(None if price is None else price.high, rule=rule),
            Formula(f'IF(COUNT({low},{high})=2,({low}+{high})/2,"{NO_PRICE}")', middle),
            terms.price_source.get(name, "type a price to see costs"),
        ])  # fmt: skip
    return Table.of("prices", places.prices, rows)


@dataclass(frozen=True, slots=True)
class Answer:
    """A line of the answer."""

    label: str
    text: str
    """Its formula: mostly the name of a cell elsewhere."""
    value: str | int | float | None
    style: str
    unit: str
    note: str


def _inputs(case: Case, last_month: int, power: int) -> dict[int, list[tuple[str, Content, str, str, str]]]:
    """Label, cell, style, unit and note of each input, below the row of its section."""
    traffic, terms = case.plan.traffic, case.plan.terms
    return {
        TRAFFIC: [
            ("Mean rate", Cell(traffic.rate, name=RATE, rule=Rule(
                "decimal", "Requests per second of all users, averaged over a month; above 0.",
                1e-6, 1e9)), "general*", "requests/s", "all users together, month 0"),
            ("Peak factor", Cell(traffic.peak, name=PEAK, rule=Rule(
                "decimal", "The busiest hour over the mean rate; 1 or more.", 1, 1e4)),
             "general*", "× mean", "the fleet is sized for the busiest hour"),
            ("Growth", Cell(traffic.growth, name=GROWTH, rule=Rule(
                "decimal", "Per month, as a share: 5% makes 1.05 times the rate each month.",
                -0.99, 10)), "percent*", "per month", "compounds: rate × (1 + growth)^month"),
            ("Horizon", Cell(traffic.months, name=HORIZON, rule=Rule(
                "integer", f"Months after the first that are planned for, 0 to {last_month}.",
                0, last_month)), "int*", "months", f"at most {last_month} in this file"),
            ("Percentile", traffic.percentile, "general", "% of requests",
             "that must keep their service level; simulated, can't be changed here"),
            ("Burstiness", traffic.burstiness, "general", "shape",
             "of the gaps between arrivals: 1 is Poisson, less comes in bursts; simulated"),
        ],
        SIZING: [
            ("Utilisation target", Cell(terms.utilisation_target, name=TARGET, rule=Rule(
                "decimal", "Share of a replica's greatest rate that the busiest hour may load it "
                "with: above 0, at most 100%.", 0.01, 1)), "percent0*", "of its rate",
             "how far the busiest hour may load a replica"),
            ("Spare replicas", Cell(terms.spare, name=SPARE, rule=Rule(
                "integer", "Replicas that may fail in the busiest hour: 1 is N+1.", 0, 10_000)),
             "int*", "replicas", "N+1 is 1"),
            ("Hours per month", Cell(HOURS_PER_MONTH, name=HOURS, rule=Rule(
                "decimal", "Hours that are paid for in a month; 8,760 / 12 = 730.", 1, 744)),
             "general*", "hours", "a year's 8,760 over 12"),
        ],
        power: [
            _power(f"{what} GPU, {end}", name, value, "of TDP", "Notes has the sources")
            for what, end, name, value in (
                ("Busy", "low", BUSY_LOW, BUSY.low), ("Busy", "high", BUSY_HIGH, BUSY.high),
                ("Idle", "low", IDLE_LOW, IDLE.low), ("Idle", "high", IDLE_HIGH, IDLE.high),
            )
        ],
    }  # fmt: skip


def _power(
    label: str, name: str, share: float, unit: str, note: str
) -> tuple[str, Content, str, str, str]:
    rule = Rule("decimal", "Share of the GPU's power limit (TDP) that it draws.", 0, 1)
    return label, Cell(share, name=name, rule=rule), "percent0*", unit, note


def inputs_page(
    case: Case, places: InputPlaces, answers: list[Answer], labels: str, last_month: int
) -> Page:
    """The sheet; ``labels`` is the range of the choices' labels."""
    page = Page(SHEET, tab="#BF9000")
    page.head(
        f"Capacity plan: {case.plan.model.name}",
        "Yellow cells are inputs: change one, and every sheet follows. "
        "The other cells are locked (Review > Unprotect sheet; no password).",
    )
    page.section(ANSWERS, "Answer for the chosen deployment", 8)
    page.rows(
        ANSWERS + 1,
        [(a.label, Cell(Formula(a.text, a.value), f"answer.{a.style}"), a.unit, a.note)
         for a in answers],
        ("label", "text", "unit", "note"),
    )  # fmt: skip
    titles = {TRAFFIC: "Traffic", SIZING: "Sizing", places.power: "Power"}
    for row, lines in _inputs(case, last_month, places.power).items():
        page.section(row, titles[row], 8)
        page.rows(
            row + 1,
            [(label, Cell(*_restyled(content, style)), unit, note)
             for label, content, style, unit, note in lines],
            ("label", "text", "unit", "note"),
        )  # fmt: skip
    _deployment(page, case, labels)
    _classes(page, case, places)
    page.section(places.prices.top - 1, "Prices", 8)
    page.table(price_table(case, places))
    for column in range(8):
        page.widths[column] = 34 if column == 0 else 14
    page.widths |= {8: 22, 9: 22}
    page.frozen, page.portrait, page.pages = (3, 0), True, 1
    return page


def _restyled(content: Content, style: str) -> tuple[object, ...]:
    if isinstance(content, Cell):
        return content.content, style, content.name, content.rule
    return content, style


def _deployment(page: Page, case: Case, labels: str) -> None:
    page.section(DEPLOYMENT, "Deployment", 8)
    rule = Rule("list", "One of the plan's choices; they stand side by side on Capacity.",
                source=labels)  # fmt: skip
    page.put(DEPLOYMENT + 1, 0, "Chosen deployment")
    page.put(DEPLOYMENT + 1, 1, Cell(case.facts[0].label, "text*", CHOSEN, rule))
    page.put(DEPLOYMENT + 2, 0, "Its number")
    number = Formula(f"IFERROR(MATCH({CHOSEN},{labels},0),1)", 1)
    page.put(DEPLOYMENT + 2, 1, Cell(number, "int", CHOICE))


def _classes(page: Page, case: Case, places: InputPlaces) -> None:
    page.section(_CLASSES, "Request classes and service levels", 10)
    page.table(class_table(case, places))
    last = places.class_count - 1
    row = places.classes.top + places.class_count + 1
    page.put(row, 0, "Mean of all requests", "bold")
    for key, name, value in (
        ("prompt_tokens", PROMPT, case.prompt),
        ("output_tokens", OUTPUT, case.output),
    ):
        share = places.classes.span("share", 0, last)
        text = f"SUMPRODUCT({share},{places.classes.span(key, 0, last)})"
        column = places.classes.spot(0, key)[1]
        page.put(row, column, Cell(Formula(text, plain(value)), "n1", name))
    page.put(
        row + 1, 0,
        "Shares and lengths are what was simulated: queueing depends on them, so no formula can "
        "follow a change. Run perfmodel plan again for another mix.", "note",
    )  # fmt: skip
