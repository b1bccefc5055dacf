"""The Cost sheet: what fleets cost by month, by choice, and by how fast users are served."""

from __future__ import annotations

from reports.workbook import inputs
from reports.workbook.capacity import Capacity
from reports.workbook.case import Case
from reports.workbook.cells import Column, Formula, Place, Scalar
from reports.workbook.loads import Loads
from reports.workbook.months import Months
from reports.workbook.page import Axis, Chart, Page, Series
from reports.workbook.styles import BLUE, COLOURS, GREEN, MARKS, ORANGE

SHEET = "Cost"
TOP, CHART_ROWS = 3, 22
LEFT = 14
"""The first column of the charts' data."""
BY_MONTH = (
    Column("month", "Month, at most the horizon", "int"),
    Column("usd_per_month", "USD per month", "usd"),
    Column("utilisation_degraded", "Load with the spare ones gone", "percent"),
)
FRONT = (
    ("speed", "busiest_tokens_per_s", "n1"),
    ("usd", "fleet_usd_per_hour", "usd2"),
)
"""Both figures of a fleet: the name here, that on Loads, and the style."""
EMPTY = 0.1
"""Share of the largest usable load below which no fleet is drawn."""
BY_CHOICE = (
    Column("label", "Deployment", "text"),
    Column("usd_per_hour_low", "USD per hour, low price", "usd2"),
    Column("usd_per_hour_high", "USD per hour, high price", "usd2"),
)


def _months(page: Page, case: Case, months: Months) -> Place:
    """Every month of the horizon; later rows repeat its last one."""
    place = Place(SHEET, TOP, LEFT, BY_MONTH)
    source = months.table.place
    last = case.plan.traffic.months
    page.put(TOP - 1, LEFT, "Data of the charts: later rows repeat the horizon's", "note")
    for column in BY_MONTH:
        page.put(*place.spot(-1, column.key), column.title, "head")
    for month in range(months.last + 1):
        shown = min(month, last)
        text = f"MIN({source.away(month, 'month')},{inputs.HORIZON})"
        page.put(*place.spot(month, "month"), Formula(text, shown), "int")
        for key in ("usd_per_month", "utilisation_degraded"):
            picked = f"INDEX({months.span(key)},{place.at(month, 'month')}+1)"
            value = _number(months.table.values(key)[shown])
            made = Formula(f"IF(ISNUMBER({picked}),{picked},0)", value)
            page.put(*place.spot(month, key), made, "usd" if key == "usd_per_month" else "percent")
    return place


def _number(value: Scalar) -> Scalar:
    return value if isinstance(value, int | float) else 0


def _choices(page: Page, capacity: Capacity) -> Place:
    place = Place(SHEET, TOP, LEFT + 4, BY_CHOICE)
    for column in BY_CHOICE:
        page.put(*place.spot(-1, column.key), column.title, "head")
    for number in range(len(capacity.sized)):
        label = capacity.table.values("label")[number]
        page.put(*place.spot(number, "label"),
                 Formula(capacity.place.away(number, "label"), label))  # fmt: skip
        for end in ("low", "high"):
            key = f"usd_per_hour_{end}"
            source = capacity.place.away(number, key)
            value = _number(capacity.table.values(key)[number])
            made = Formula(f"IF(ISNUMBER({source}),{source},0)", value)
            page.put(*place.spot(number, key), made, "usd2")
    return place


def _monthly(months: Place, last: int) -> Chart:
    def span(key: str) -> str:
        return months.span(key, 0, last)

    return Chart(
        "scatter", "Cost and headroom of the chosen deployment by month",
        (
            Series("USD per month", span("month"), span("usd_per_month"), BLUE, mark="circle"),
            Series("Busiest hour's load, the spare ones gone (right scale)", span("month"),
                   span("utilisation_degraded"), ORANGE, mark="square", dash="dash", second=True),
        ),
        Axis("Month", low=0), Axis("USD per month", low=0, number='"$"#,##0'),
        (TOP, 0), legend="bottom",
        y2=Axis("Share of what replicas carry", low=0, high=1, number="0%"),
    )  # fmt: skip


def _by_choice(choices: Place, count: int) -> Chart:
    names = choices.span("label", 0, count - 1)
    series = tuple(
        Series(f"at the {end} price", names, choices.span(f"usd_per_hour_{end}", 0, count - 1),
               colour)
        for end, colour in (("low", GREEN), ("high", ORANGE))
    )  # fmt: skip
    return Chart(
        "bar", "Cost of each choice's fleet, month 0 (0 where the levels aren't met)", series,
        Axis("USD per hour", low=0, number='"$"#,##0', far=True), Axis("", reverse=True),
        (TOP + CHART_ROWS, 0), (760, 160 + 60 * count), legend="bottom",
    )  # fmt: skip


def _fronts(page: Page, capacity: Capacity, loads: Loads) -> Place:
    """Each choice's fleets, load by load, as far as promises are kept; other rows repeat.

    Loads below a tenth of the largest usable one would dwarf the others: fleets of empty GPUs.
    """
    count = len(capacity.sized)
    columns = tuple(
        column
        for number in range(1, count + 1)
        for column in (
            Column(f"row_{number}", f"Choice {number}: load", "int"),
            Column(f"speed_{number}", f"Choice {number}: tokens/s of a user", "n1"),
            Column(f"usd_{number}", f"Choice {number}: USD per hour", "usd2"),
        )
    )
    place = Place(SHEET, TOP + count + 4, LEFT + 4, (Column("load", "Load", "int"), *columns))
    page.put(place.top - 1, place.left, "Fleets of the loads that keep the promises", "note")
    for column in place.columns:
        page.put(*place.spot(-1, column.key), column.title, "head")
    for load in range(max(loads.count)):
        page.put(*place.spot(load, "load"), load + 1, "int")
        for number in range(count):
            _front(page, capacity, loads, place, load, number)
    return place


def _front(
    page: Page, capacity: Capacity, loads: Loads, place: Place, load: int, number: int
) -> None:
    """A fleet of a choice: which load it is for, how fast and how dear it is."""
    used = capacity.place.away(number, "usable_loads")
    rates = loads.span(number, "requests_per_s")
    least = f"SUMPRODUCT(1*({rates}<{EMPTY}*INDEX({rates},MAX(1,{used}))))+1"
    usable = int(capacity.table.values("usable_loads")[number] or 0)
    known = [float(rate or 0) for rate in loads.values(number, "requests_per_s")]
    first = sum(rate < EMPTY * known[max(1, usable) - 1] for rate in known) + 1
    picked = max(first, min(load + 1, usable))
    key = f"row_{number + 1}"
    text = f"MAX({least},MIN({place.at(load, 'load')},{used}))"
    page.put(*place.spot(load, key), Formula(text, picked), "int")
    found = [f"INDEX({loads.span(number, source)},{place.at(load, key)})" for _, source, _ in FRONT]
    values = [loads.values(number, source)[picked - 1] for _, source, _ in FRONT]
    shown = usable > 0 and all(isinstance(value, int | float) for value in values)
    both = ",".join(f"ISNUMBER({each})" for each in found)
    for (name, _, style), each, value in zip(FRONT, found, values, strict=True):
        made = Formula(f"IF(AND({used}>0,{both}),{each},0)", value if shown else 0)
        page.put(*place.spot(load, f"{name}_{number + 1}"), made, style)


def _by_speed(capacity: Capacity, fronts: Place, points: int, row: int) -> Chart:
    series = tuple(
        Series(
            capacity.place.away(number, "label"),
            fronts.span(f"speed_{number + 1}", 0, points - 1),
            fronts.span(f"usd_{number + 1}", 0, points - 1),
            COLOURS[number % len(COLOURS)], mark=MARKS[number % len(MARKS)],
        )
        for number in range(len(capacity.sized))
    )  # fmt: skip
    return Chart(
        "scatter", "User's speed against cost: fleets at every load that keeps the promises",
        series, Axis("Tokens per second of one user in the busiest hour", low=0, number="0"),
        Axis("USD per hour, middle price", low=0, number='"$"#,##0'),
        (row, 0), (760, 420 + 20 * len(series)), legend="bottom",
    )  # fmt: skip


def cost_page(case: Case, capacity: Capacity, loads: Loads, months: Months) -> Page:
    """The sheet: charts, and their data right of them."""
    page = Page(SHEET, tab="#548235")
    page.head(
        "Cost",
        "Charts follow Inputs. Rent of GPUs alone: no hosts, network, storage or staff.",
    )
    by_month, by_choice = _months(page, case, months), _choices(page, capacity)
    fronts = _fronts(page, capacity, loads)
    bars = _by_choice(by_choice, len(capacity.sized))
    below = bars.spot[0] + bars.size[1] // 20 + 2
    speed = _by_speed(capacity, fronts, max(loads.count), below)
    page.charts += [_monthly(by_month, months.last), bars, speed]
    page.widths |= {LEFT + 4: 40}
    page.printed, page.pages = (0, 0, below + speed.size[1] // 20 + 1, LEFT - 2), 1
    page.portrait = True
    page.frozen = (2, 0)
    return page
