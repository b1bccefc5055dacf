"""The Inputs sheet: what a planner changes, and the answer beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.planning.capacity.energy import BUSY, IDLE
from perfmodel.planning.capacity.requests import mean_length
from perfmodel.serving.lengths import Lengths
from perfmodel.specs.traffic import RequestClass
from perfmodel.units import KILO
from reports.workbook.case import Case
from reports.workbook.cells import (
    NONE,
    Cell,
    Column,
    Content,
    Formula,
    Place,
    Rule,
    Scalar,
    Table,
    plain,
)
from reports.workbook.page import Highlight, Page

SHEET = "Inputs"
RATE, PEAK, GROWTH, HORIZON = "Mean_rate", "Peak_factor", "Monthly_growth", "Horizon_months"
TARGET, SPARE, HOURS = "Utilisation_target", "Spare_replicas", "Hours_per_month"
BUSY_LOW, BUSY_HIGH = "Busy_power_low", "Busy_power_high"
IDLE_LOW, IDLE_HIGH = "Idle_power_low", "Idle_power_high"
CHOSEN, CHOICE = "Chosen_deployment", "Choice_no"
PROMPT, OUTPUT = "Mean_prompt", "Mean_output"
"""Names that formulas call inputs by."""
BUSIEST = f"{RATE}*{PEAK}"
"""Requests per second in the first month's busiest hour."""
HOURS_PER_MONTH = 730
"""A year's 8,760 hours over 12."""
NO_PRICE = "no price"
KEPT, UNMET = "kept", "unmet by every load"
CLASSES = (
    Column("name", "Class", "text", 34),
    Column("share", "Share of requests", "percent", 14),
    Column("prompt_tokens", "Prompt, tokens (mean)", "n1", 14),
    Column("output_tokens", "Output, tokens (mean)", "n1", 14),
    Column("prefix_tokens", "Shared prefix, tokens", "int", 14),
    Column("ttft_limit_ms", "TTFT at most, ms", "general", 14),
    Column("tpot_limit_ms", "TPOT at most, ms", "general", 14),
    Column("e2e_limit_s", "End to end at most, s", "general", 14),
    Column("prompt", "Prompt lengths", "text", 22),
    Column("output", "Output lengths", "text", 22),
)
PRICES = (
    Column("hardware", "Hardware", "text", 34),
    Column("usd_per_gpu_hour_low", "Low, USD per GPU hour", "usd3", 14),
    Column("usd_per_gpu_hour_high", "High, USD per GPU hour", "usd3", 14),
    Column("usd_per_gpu_hour", "Middle, USD per GPU hour", "usd3", 14),
    Column("source", "Source", "text", 14),
)
ANSWERS, DEPLOYMENT, TRAFFIC, SIZING, CLASS_ROW = 3, 25, 29, 37, 42
"""Rows of the sections above the tables."""
SECTION = 8
"""Columns that a section's line runs over."""


def working_text(rate: str, busiest: str) -> str:
    """Replicas that hold the busiest hour: ⌈busiest / (target·rate)⌉, at least one."""
    return f"MAX(1,ROUNDUP({busiest}/({TARGET}*{rate})-1E-9,0))"


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


def input_places(case: Case) -> InputPlaces:
    """The places of the tables, whose lengths the case decides."""
    count = len(case.plan.traffic.classes)
    classes = Place(SHEET, CLASS_ROW + 1, 0, CLASSES)
    prices = Place(SHEET, CLASS_ROW + count + 6, 0, PRICES)
    return InputPlaces(classes, count, prices, tuple(h.name for h in case.hardware))


def _limit(value: float | None, factor: float, what: str, unit: str) -> Cell:
    message = f"{what}, {unit}, at the traffic's percentile. Empty: nothing is promised."
    content = None if value is None else factor * value
    return Cell(content, rule=Rule("decimal", message, 0.001, 1e9, empty=True))


def _class_row(given: RequestClass, share: float) -> list[Content]:
    level = given.level
    return [
        given.name,
        share,
        mean_length(Lengths.parse(given.prompt, "prompt")),
        mean_length(Lengths.parse(given.output, "output")),
        given.prefix_tokens,
        _limit(level.ttft_s, KILO, "Time to first token, queueing included", "ms"),
        _limit(level.tpot_s, KILO, "Time per output token after the first", "ms"),
        _limit(level.e2e_s, 1, "From arrival to the last token", "s"),
        str(given.prompt),
        str(given.output),
    ]


def class_table(case: Case, places: InputPlaces) -> Table:
    """The request classes with what is promised to them."""
    traffic = case.plan.traffic
    pairs = zip(traffic.classes, traffic.shares(), strict=True)
    return Table.of("classes", places.classes, [_class_row(*pair) for pair in pairs])


def price_table(case: Case, places: InputPlaces) -> Table:
    """What a GPU of each kind costs."""
    terms = case.plan.terms
    rows: list[list[Content]] = []
    rule = Rule("decimal", "USD per GPU and hour. Empty: no price, no cost.", 0, 1e6, empty=True)
    for record, name in enumerate(places.hardware):
        low, high = (places.prices.at(record, f"usd_per_gpu_hour_{end}") for end in ("low", "high"))
        price = terms.usd_per_gpu_hour.get(name)
        text = f'IF(COUNT({low},{high})=2,({low}+{high})/2,"{NO_PRICE}")'
        rows.append([
            name,
            Cell(None if price is None else price.low, rule=rule),
            Cell(None if price is None else price.high, rule=rule),
            Formula(text, NO_PRICE if price is None else price.middle),
            terms.price_source.get(name, "type a price to see costs"),
        ])  # fmt: skip
    return Table.of("prices", places.prices, rows)


@dataclass(frozen=True, slots=True)
class Answer:
    """A line of the answer."""

    label: str
    text: str
    """Its formula: mostly the name of a cell elsewhere."""
    value: Scalar
    style: str
    note: str


@dataclass(frozen=True, slots=True)
class Line:
    """An input, or a fact beside them."""

    label: str
    value: int | float
    style: str
    unit: str
    note: str
    name: str = ""
    rule: Rule | None = None

    @property
    def cell(self) -> Cell:
        """What stands in the sheet."""
        style = self.style if self.rule is None else f"{self.style}*"
        return Cell(self.value, style, self.name, self.rule)


def _traffic(case: Case, last_month: int) -> list[Line]:
    t = case.plan.traffic
    return [
        Line("Mean rate", t.rate, "general", "requests/s", "all users together, month 0", RATE,
             Rule("decimal", "Requests per second of all users, averaged over a month; above 0.",
                  1e-6, 1e9)),
        Line("Peak factor", t.peak, "general", "× mean", "the fleet is sized for the busiest hour",
             PEAK, Rule("decimal", "The busiest hour over the mean rate; 1 or more.", 1, 1e4)),
        Line("Growth", t.growth, "percent", "per month", "compounds: rate × (1 + growth)^month",
             GROWTH, Rule("decimal", "Per month, as a share: 5% makes 1.05 times the rate each "
                          "month.", -0.99, 10)),
        Line("Horizon", t.months, "int", "months", f"at most {last_month} in this file", HORIZON,
             Rule("integer", f"Months after the first that are planned for, 0 to {last_month}.",
                  0, last_month)),
        Line("Percentile", t.percentile, "general", "% of requests",
             "that must keep their service level; simulated, can't be changed here"),
        Line("Burstiness", t.burstiness, "general", "shape",
             "of the gaps between arrivals: 1 is Poisson, less comes in bursts; simulated"),
    ]  # fmt: skip


def _sizing(case: Case) -> list[Line]:
    terms = case.plan.terms
    return [
        Line("Utilisation target", terms.utilisation_target, "percent0", "of its rate",
             "how far the busiest hour may load a replica", TARGET,
             Rule("decimal", "Share of a replica's greatest rate that the busiest hour may load it "
                  "with: above 0, at most 100%.", 0.01, 1)),
        Line("Spare replicas", terms.spare, "int", "replicas", "N+1 is 1", SPARE,
             Rule("integer", "Replicas that may fail in the busiest hour: 1 is N+1.", 0, 1e6)),
        Line("Hours per month", HOURS_PER_MONTH, "general", "hours", "a year's 8,760 over 12",
             HOURS, Rule("decimal", "Hours that are paid for in a month; 8,760 / 12 = 730.",
                         1, 744)),
    ]  # fmt: skip


def _power() -> list[Line]:
    rule = Rule("decimal", "Share of the GPU's power limit (TDP) that it draws.", 0, 1)
    ends = (
        ("Busy GPU, low", BUSY.low, BUSY_LOW), ("Busy GPU, high", BUSY.high, BUSY_HIGH),
        ("Idle GPU, low", IDLE.low, IDLE_LOW), ("Idle GPU, high", IDLE.high, IDLE_HIGH),
    )  # fmt: skip
    return [
        Line(label, share, "percent0", "of TDP", "Notes has the sources", name, rule)
        for label, share, name in ends
    ]


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
    page.section(ANSWERS, "Answer for the chosen deployment", SECTION)
    shown = [(a.label, Cell(Formula(a.text, a.value), f"answer.{a.style}"), "", a.note)
             for a in answers]  # fmt: skip
    below = page.rows(ANSWERS + 1, shown, ("label", "text", "unit", "note"))
    page.highlights.append(Highlight(
        (ANSWERS + 1, 1), (below - 1, 1), f'OR(B{ANSWERS + 2}="{UNMET}",B{ANSWERS + 2}="{NONE}")',
        {"font_color": "#C00000"},
    ))  # fmt: skip
    _deployment(page, case, labels)
    _lines(page, TRAFFIC, "Traffic", _traffic(case, last_month))
    _lines(page, SIZING, "Sizing", _sizing(case))
    _classes(page, case, places)
    page.section(places.prices.top - 1, "Prices", SECTION)
    page.table(price_table(case, places))
    _lines(page, places.power, "Power", _power())
    page.widths |= dict.fromkeys(range(1, 8), 14.0)
    page.frozen, page.portrait, page.pages = (3, 0), True, 1
    return page


def _lines(page: Page, row: int, title: str, lines: Sequence[Line]) -> None:
    page.section(row, title, SECTION)
    shown = [(line.label, line.cell, line.unit, line.note) for line in lines]
    page.rows(row + 1, shown, ("label", "text", "unit", "note"))


def _deployment(page: Page, case: Case, labels: str) -> None:
    page.section(DEPLOYMENT, "Deployment", SECTION)
    rule = Rule("list", "One of the plan's choices; they stand side by side on Capacity.",
                source=labels)  # fmt: skip
    page.put(DEPLOYMENT + 1, 0, "Chosen deployment", "label")
    page.put(DEPLOYMENT + 1, 1, Cell(case.facts[0].label, "text*", CHOSEN, rule))
    page.put(DEPLOYMENT + 2, 0, "Its number", "label")
    number = Formula(f"IFERROR(MATCH({CHOSEN},{labels},0),1)", 1)
    page.put(DEPLOYMENT + 2, 1, Cell(number, "int", CHOICE))


def _classes(page: Page, case: Case, places: InputPlaces) -> None:
    page.section(CLASS_ROW, "Request classes and service levels", len(CLASSES))
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
