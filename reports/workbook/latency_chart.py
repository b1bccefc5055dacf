"""The Latency chart sheet: the chosen deployment's TPOT and TTFT over batch, by prompt length."""

from __future__ import annotations

from reports.workbook.case import Case
from reports.workbook.latency import Latency
from reports.workbook.page import Axis, Chart, Page, Series
from reports.workbook.picked import Picked, PickedColumn
from reports.workbook.styles import COLOURS, MARKS

SHEET = "Latency chart"
TOP, CHART_ROWS, LEFT = 3, 24, 13
"""Where charts begin, rows that one covers, and the first column of their data."""
FIGURES = (("batch", "batch", "int"), ("ttft_ms", "TTFT, ms", "n1"), ("tpot_ms", "TPOT, ms", "n2"))


def _data(case: Case, latency: Latency) -> Picked:
    """Batch, TTFT and TPOT per point and prompt; a curve ends where memory does."""
    place = latency.table.place
    last = len(latency.table.rows) - 1
    columns = []
    for prompt, tokens in enumerate(case.facts[0].prompts):
        starts = tuple(starts[prompt] + 1 for starts in latency.first)
        counts = tuple(counts[prompt] for counts in latency.fitting)
        columns += [
            PickedColumn(f"{key}_{prompt}", f"{tokens:,} tokens: {title}", style,
                         place.span(key, 0, last), latency.table.values(key), starts, counts)
            for key, title, style in FIGURES
        ]  # fmt: skip
    points = max(len(facts.batches) for facts in case.facts)
    return Picked(SHEET, TOP + 1, LEFT, points, tuple(columns))


def latency_chart_page(case: Case, latency: Latency) -> Page:
    """The sheet: two charts, and their data right of them."""
    page = Page(SHEET, tab="#0072B2")
    page.head(
        "Latency of the chosen deployment, one batch alone",
        "Curves end at the largest batch of Latency that fits in memory.",
    )
    data = _data(case, latency)
    data.write(page)
    kinds = (("tpot_ms", "TPOT"), ("ttft_ms", "TTFT of the batch"))
    for number, (key, title) in enumerate(kinds):
        series = tuple(
            Series(f"{tokens:,}-token prompts", data.span(f"batch_{prompt}"),
                   data.span(f"{key}_{prompt}"), COLOURS[prompt % len(COLOURS)],
                   mark=MARKS[prompt % len(MARKS)])
            for prompt, tokens in enumerate(case.facts[0].prompts)
        )  # fmt: skip
        page.charts.append(Chart(
            "scatter", f"{title} over batch", series,
            Axis("Sequences in the batch", log=True, number="#,##0"),
            Axis(f"{title}, ms", log=True, number="#,##0"),
            (TOP + number * CHART_ROWS, 0),
        ))  # fmt: skip
    page.printed, page.pages = (0, 0, TOP + 2 * CHART_ROWS, LEFT - 2), 1
    page.portrait = True
    page.frozen = (2, 0)
    return page
