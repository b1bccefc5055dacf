"""The Capacity sheet: each choice's fleet by formulas, and the chosen one beside them.

The formulas are those of `perfmodel.planning.capacity`, whose functions give the values that are
stored with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from reports.workbook import inputs
from reports.workbook.case import Case
from reports.workbook.cells import NONE, Cell, Content, Formula, Place, Scalar, Table
from reports.workbook.figure import RATE, Figure, Maker
from reports.workbook.fleet_rows import UNMET, fleet_figures
from reports.workbook.hardware import HardwareFacts
from reports.workbook.inputs import Answer, InputPlaces
from reports.workbook.loads import Loads
from reports.workbook.money_rows import money_figures
from reports.workbook.page import Highlight, Page
from reports.workbook.sized import Sized, sized

SHEET = "Capacity"
TOP = 4
CHOSEN = "Chosen_"
"""Before the names of the chosen deployment's figures."""


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
        return CHOSEN + key

    def first_value(self, key: str) -> Scalar:
        """The first choice's figure: the chosen one's, as written."""
        return self.table.values(key)[0]


def capacity_table(
    case: Case, places: InputPlaces, loads: Loads, profiles: HardwareFacts
) -> Capacity:
    """The fleet of each choice."""
    rows = [*fleet_figures(), *money_figures()]
    place = Place(SHEET, TOP, 0, tuple(row.column for row in rows), across=True, gap=1)
    all_sized = [sized(case, facts, loads, n) for n, facts in enumerate(case.facts)]
    records = []
    for number, each in enumerate(all_sized):
        at = Maker(places, loads, profiles, place, number, each.facts.hardware)
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
    ("TTFT in the busiest hour", "busiest_ttft_ms", "n1", "ms, slowest class, at the percentile"),
    ("TPOT in the busiest hour", "busiest_tpot_ms", "n2", "ms, slowest class, at the percentile"),
    ("Cost", "usd_per_hour", "usd2", "USD per hour, month 0, middle price"),
    ("… at the low price", "usd_per_hour_low", "usd2", "USD per hour"),
    ("… at the high price", "usd_per_hour_high", "usd2", "USD per hour"),
    ("Cost per month", "usd_per_month", "usd", "USD, month 0, middle price"),
    ("Cost of prompt tokens", "usd_per_million_prompt_tokens", "usd3", "USD per million"),
    ("Cost of output tokens", "usd_per_million_output_tokens", "usd3", "USD per million"),
    ("Power, low", "kilowatts_low", "n2", "kW at the mean rate, GPUs alone"),
    ("Power, high", "kilowatts_high", "n2", "kW"),
    ("Energy, low", "kwh_per_million_tokens_low", "n3", "kWh per million tokens"),
    ("Energy, high", "kwh_per_million_tokens_high", "n3", "kWh per million tokens"),
    ("A larger load breaks", "load_limit", "bold", ""),
)


def answers(capacity: Capacity) -> list[Answer]:
    """What the Inputs sheet repeats."""
    made = [
        Answer(label, capacity.chosen(key), capacity.first_value(key), style, note)
        for label, key, style, note in ANSWERS
    ]
    rate = f"ISNUMBER({capacity.chosen(RATE)})"
    kept = capacity.sized[0].level is not None
    words = Answer(
        "Service levels", f'IF({rate},"{inputs.KEPT}","{inputs.UNMET}")',
        inputs.KEPT if kept else inputs.UNMET, "bold", "",
    )  # fmt: skip
    return [made[0], words, *made[1:]]


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
        style = f"{'best' if row.column.strong else 'chosen'}.{row.column.style}"
        made = Formula(text, capacity.first_value(key))
        page.put(line, 2, Cell(made, style, capacity.chosen(key)))
    page.widths |= {0: 34, 1: 20, 2: 24} | {3 + number: 24 for number in range(count)}
    page.heights |= {place.spot(0, key)[0]: 45 for key in ("label", "load_limit", "planned_limit")}
    page.frozen, page.pages = (TOP, 3), 1
    first = place.spot(0, "usable_loads")
    page.highlights.append(Highlight(
        (first[0], 2), place.spot(count - 1, "utilisation_degraded"),
        f'OR(C{first[0] + 1}="{UNMET}",C{first[0] + 1}="{NONE}")', {"font_color": "#C00000"},
    ))  # fmt: skip
    return page
