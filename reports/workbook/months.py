"""The Months sheet: the chosen deployment's fleet and cost in each month up to the horizon."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.planning.capacity.sizing import Fleet
from reports.workbook import inputs
from reports.workbook.capacity import Capacity
from reports.workbook.case import Case
from reports.workbook.cells import NONE, Column, Content, Formula, Place, Scalar, Table
from reports.workbook.inputs import Answer
from reports.workbook.page import Highlight, Page
from reports.workbook.sized import fleet_of

SHEET = "Months"
TOP = 3
ROOM = 60
"""Months that a horizon may be extended to, at least."""
COLUMNS = (
    Column("month", "Month", "int", 9),
    Column("requests_per_s", "Mean rate, requests/s", "n2", 14),
    Column("requests_per_s_busiest", "Busiest hour, requests/s", "n2", 14),
    Column("replicas", "Replicas", "int", 11),
    Column("gpus", "GPUs", "int", 11),
    Column("utilisation", "Load in the busiest hour", "percent", 14),
    Column("utilisation_degraded", "… with the spare ones gone", "percent", 14),
    Column("usd_per_hour", "Cost, USD per hour", "usd2", 14),
    Column("usd_per_month", "Cost, USD per month", "usd", 14),
    Column("usd_so_far", "Cost so far, USD", "usd", 16),
    Column("usd_per_million_prompt_tokens", "USD per million prompt tokens", "usd3", 14),
    Column("usd_per_million_output_tokens", "USD per million output tokens", "usd3", 14),
)


@dataclass(frozen=True, slots=True)
class Months:
    """The table, whose rows beyond the horizon are empty."""

    table: Table
    last: int
    """The furthest month that it has room for."""

    def span(self, key: str) -> str:
        """A quantity over all rows."""
        return self.table.place.span(key, 0, self.last)


def furthest(case: Case) -> int:
    """The last month that the table has room for."""
    return max(ROOM, case.plan.traffic.months)


def _values(case: Case, month: int, so_far: float) -> list[Scalar]:
    """What a row's formulas give."""
    facts, traffic = case.facts[0], case.plan.traffic
    price = case.plan.terms.usd_per_gpu_hour.get(facts.hardware.name)
    rates: list[Scalar] = [month, traffic.rate_at(month), traffic.peak_at(month)]
    fleet = fleet_of(case, facts, month, 0.0 if price is None else price.middle)
    if fleet is None:
        return rates + [NONE] * 9
    return rates + _fleet_values(fleet, so_far, priced=price is not None)


def _fleet_values(fleet: Fleet, so_far: float, *, priced: bool) -> list[Scalar]:
    sizes: list[Scalar] = [
        fleet.replicas, fleet.gpus, fleet.utilisation, fleet.utilisation_degraded,
    ]  # fmt: skip
    if not priced:
        return sizes + [NONE] * 5
    monthly = fleet.usd_per_hour * inputs.HOURS_PER_MONTH
    return [
        *sizes, fleet.usd_per_hour, monthly, so_far + monthly,
        fleet.usd_per_million_prompt_tokens, fleet.usd_per_million_output_tokens,
    ]  # fmt: skip


def _texts(place: Place, record: int, capacity: Capacity) -> dict[str, str]:
    """The formulas of a month, for months within the horizon."""

    def at(key: str) -> str:
        return place.at(record, key)

    def where(key: str, text: str) -> str:
        return f'IF(ISNUMBER({at(key)}),{text},"{NONE}")'

    rate, gpus = capacity.chosen("requests_per_s_replica"), capacity.chosen("gpus_per_replica")
    price, share = capacity.chosen("usd_per_gpu_hour"), capacity.chosen("prefill_share")
    busiest, replicas = at("requests_per_s_busiest"), at("replicas")
    usd, millions = at("usd_per_hour"), f"({at('requests_per_s')}*3600/1E6*"
    start = place.span("usd_per_month", 0, 0).partition("!")[2].partition(":")[0]
    return {
        "requests_per_s": f"{inputs.RATE}*(1+{inputs.GROWTH})^{at('month')}",
        "requests_per_s_busiest": f"{at('requests_per_s')}*{inputs.PEAK}",
        "replicas": f"IF(ISNUMBER({rate}),{inputs.working_text(rate, busiest)}+{inputs.SPARE},"
        f'"{NONE}")',
        "gpus": where("replicas", f"{replicas}*{gpus}"),
        "utilisation": where("replicas", f"{busiest}/({replicas}*{rate})"),
        "utilisation_degraded": where(
            "replicas", f"{busiest}/(({replicas}-{inputs.SPARE})*{rate})"
        ),
        "usd_per_hour": f"IF(AND(ISNUMBER({at('gpus')}),ISNUMBER({price})),{at('gpus')}*{price},"
        f'"{NONE}")',
        "usd_per_month": where("usd_per_hour", f"{usd}*{inputs.HOURS}"),
        "usd_so_far": where("usd_per_hour", f"SUM({start}:{at('usd_per_month')})"),
        "usd_per_million_prompt_tokens": where(
            "usd_per_hour", f"{usd}*{share}/{millions}{inputs.PROMPT})"
        ),
        "usd_per_million_output_tokens": where(
            "usd_per_hour", f"{usd}*(1-{share})/{millions}{inputs.OUTPUT})"
        ),
    }


def month_table(case: Case, capacity: Capacity) -> Months:
    """Every month that there is room for; those beyond the horizon show nothing."""
    last = furthest(case)
    place = Place(SHEET, TOP, 0, COLUMNS)
    rows: list[list[Content]] = []
    so_far = 0.0
    for month in range(last + 1):
        within = month <= case.plan.traffic.months
        values = _values(case, month, so_far) if within else [month] + [""] * 11
        spent = values[9]
        so_far = spent if isinstance(spent, float) else so_far
        texts = _texts(place, month, capacity)
        inside = f"{place.at(month, 'month')}>{inputs.HORIZON}"
        cells: list[Content] = [month]
        cells += [
            Formula(f'IF({inside},"",{texts[column.key]})', value)
            for column, value in zip(COLUMNS[1:], values[1:], strict=True)
        ]
        rows.append(cells)
    kept = case.plan.traffic.months + 1
    return Months(Table.of("months", place, rows, kept), last)


def horizon_cost(case: Case, months: Months) -> Answer:
    """The whole horizon's cost, for the Inputs sheet."""
    span = months.span("usd_per_month")
    costs = [v for v in months.table.values("usd_per_month") if isinstance(v, int | float)]
    count = case.plan.traffic.months
    value: Scalar = sum(costs) if costs else NONE
    text = f'IF(COUNT({span})=0,"{NONE}",SUM({span}))'
    note = f"USD, months 0 to the horizon ({count} as planned)"
    return Answer("Cost over the horizon", text, value, "usd", note)


def months_page(case: Case, months: Months) -> Page:
    """The sheet."""
    page = Page(SHEET, tab="#548235")
    page.head(
        "Months: the chosen deployment as traffic grows",
        "Month 0 is the first; rows beyond the horizon of Inputs stay empty. Middle prices.",
    )
    page.table(months.table)
    page.frozen = (TOP + 1, 1)
    place = months.table.place
    first = place.spot(0, "month")
    page.highlights.append(Highlight(
        first, place.spot(months.last, "month"),
        f"{place.at(0, 'month')}>{inputs.HORIZON}", {"font_color": "#BFBFBF"},
    ))  # fmt: skip
    planned = place.spot(case.plan.traffic.months, COLUMNS[-1].key)
    page.printed = (0, 0, *planned)
    return page
