"""From pages to a file, by XlsxWriter. Text is written as text whatever it begins with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from io import BytesIO
from itertools import pairwise
from typing import Any

import xlsxwriter
from xlsxwriter.utility import xl_rowcol_to_cell

from reports.workbook.cells import Cell, Formula, Rule, quoted
from reports.workbook.page import Axis, Chart, Page, Series
from reports.workbook.styles import GREY, properties

A4 = 9
PAGE_CHARACTERS = 100
"""Width of a landscape A4 page in characters at 100 %."""
SAFE = {"strings_to_formulas": False, "strings_to_numbers": False, "strings_to_urls": False}
EVERYWHERE = "A1:XFD1048576"
PROTECTED = {
    "format_columns": True, "format_rows": True, "format_cells": True, "sort": True,
    "autofilter": True, "select_locked_cells": True, "select_unlocked_cells": True,
    "objects": True, "scenarios": True,
}  # fmt: skip
"""What stays allowed on sheets whose formulas are locked, without a password."""


class _Book:
    """The file being written: its styles are made once each."""

    def __init__(self, stream: BytesIO, title: str, created: datetime) -> None:
        self.file = xlsxwriter.Workbook(stream, {"in_memory": True, **SAFE})
        self.file.set_properties({"title": title, "created": created, "comments": "perfmodel plan"})
        self.file.set_calc_mode("auto")
        self._made: dict[str, Any] = {}

    def style(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self.file.add_format(properties(name))
        return self._made[name]

    def page(self, page: Page) -> None:
        sheet = self.file.add_worksheet(page.name)
        for (row, column), cell in sorted(page.cells.items()):
            self._cell(sheet, page, row, column, cell)
        for column, width in page.widths.items():
            sheet.set_column(column, column, width)
        for row, height in page.heights.items():
            sheet.set_row(row, height)
        self._view(sheet, page)
        for look in page.highlights:
            sheet.conditional_format(
                *look.first, *look.last,
                {"type": "formula", "criteria": f"={look.formula}",
                 "format": self.file.add_format(look.look)},
            )  # fmt: skip
        for chart in page.charts:
            sheet.insert_chart(*chart.spot, self._chart(chart))

    def _cell(self, sheet: Any, page: Page, row: int, column: int, cell: Cell) -> None:
        style = self.style(cell.style)
        content = cell.content
        if isinstance(content, Formula):
            value = "" if content.value is None else content.value
            sheet.write_formula(row, column, f"={content.text}", style, value)
        elif isinstance(content, str):
            sheet.write_string(row, column, content, style)
        elif content is None:
            sheet.write_blank(row, column, None, style)
        else:
            sheet.write_number(row, column, content, style)
        if cell.name:
            spot = xl_rowcol_to_cell(row, column, row_abs=True, col_abs=True)
            self.file.define_name(cell.name, f"={quoted(page.name)}!{spot}")
        if cell.rule is not None:
            sheet.data_validation(row, column, row, column, _validation(cell.rule))

    def _view(self, sheet: Any, page: Page) -> None:
        sheet.hide_gridlines(2)
        sheet.set_tab_color(page.tab)
        sheet.protect("", PROTECTED)
        # A first row may differ, and a distribution's text may look like a number.
        sheet.ignore_errors({"formula_differs": EVERYWHERE, "number_stored_as_text": EVERYWHERE})
        rows, columns = page.frozen
        sheet.freeze_panes(rows, columns)
        if rows:
            sheet.repeat_rows(rows - page.titles, rows - 1)
        if columns:
            sheet.repeat_columns(0, columns - 1)
        if page.filtered is not None:
            place, count = page.filtered.place, len(page.filtered.rows)
            last = place.left + len(place.columns) - 1
            sheet.autofilter(place.top, place.left, place.top + count, last)
        if not page.portrait:
            sheet.set_landscape()
        sheet.set_paper(A4)
        sheet.set_margins(0.4, 0.4, 0.6, 0.6)
        if page.printed is not None:
            sheet.print_area(*page.printed)
        if page.breaks:
            sheet.set_print_scale(_scale(page))
            sheet.set_v_pagebreaks(list(page.breaks))
        else:
            sheet.fit_to_pages(1, page.pages)
        sheet.set_footer("&L&8perfmodel plan&C&8&A&R&8&P / &N")

    def _chart(self, spec: Chart) -> Any:
        subtype = {"subtype": "straight_with_markers"} if spec.kind == "scatter" else {}
        chart = self.file.add_chart({"type": spec.kind, **subtype})
        for series in spec.series:
            chart.add_series(_series(series, spec.kind))
        chart.set_title({"name": spec.title, "name_font": {"size": 12, "bold": True},
                         "overlay": False})  # fmt: skip
        chart.set_x_axis(_axis(spec.x))
        chart.set_y_axis(_axis(spec.y))
        if spec.y2 is not None:
            alone = {"major_gridlines": {"visible": False}, "label_position": "next_to"}
            chart.set_y2_axis(_axis(spec.y2) | alone)
        chart.set_legend({"none": True} if spec.legend == "none" else {"position": spec.legend})
        chart.set_size({"width": spec.size[0], "height": spec.size[1]})
        chart.show_blanks_as("gap")
        return chart


def _scale(page: Page) -> int:
    """Per cent at which each part between page breaks fits a page, with the repeated columns."""
    last = max(column for _, column in page.cells) + 1
    ends = [0, *page.breaks, last]
    repeated = sum(page.widths.get(column, 9.0) for column in range(page.frozen[1]))
    parts = [
        sum(page.widths.get(column, 9.0) for column in range(first, end))
        + (repeated if first else 0.0)
        for first, end in pairwise(ends)
    ]
    return max(30, min(100, int(100 * PAGE_CHARACTERS / max(parts))))


def _validation(rule: Rule) -> dict[str, Any]:
    common = {"input_message": rule.message[:255], "ignore_blank": rule.empty,
              "error_title": "Not possible here", "error_message": rule.message[:255]}  # fmt: skip
    if rule.kind == "list":
        return common | {"validate": "list", "source": f"={rule.source}"}
    return common | {
        "validate": rule.kind, "criteria": "between", "minimum": rule.low, "maximum": rule.high,
    }  # fmt: skip


def _series(series: Series, kind: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": f"={series.name}" if "!" in series.name else series.name,
        "categories": f"={series.x}",
        "values": f"={series.y}",
        "y2_axis": series.second,
    }
    if kind != "scatter":
        return made | {"fill": {"color": series.colour}, "gap": 60}
    line = {"color": series.colour, "width": 1.75, "dash_type": series.dash}
    mark = {"type": series.mark, "size": 7, "fill": {"color": series.colour},
            "border": {"color": "#FFFFFF" if series.mark != "none" else series.colour}}  # fmt: skip
    return made | {
        "line": line if series.line else {"none": True},
        "marker": {"type": "none"} if series.mark == "none" else mark,
    }


def _axis(axis: Axis) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": axis.title,
        "name_font": {"size": 10, "bold": False},
        "num_font": {"size": 9},
        "num_format": axis.number,
        "major_gridlines": {"visible": True, "line": {"color": "#D9D9D9", "width": 0.5}},
        "line": {"color": GREY},
        "label_position": "high" if axis.far else "low",
    }
    if axis.log:
        made |= {"log_base": 10}
    if axis.reverse:
        made["reverse"] = True
    for name, value in (("min", axis.low), ("max", axis.high)):
        if value is not None:
            made[name] = value
    if axis.log and axis.low is not None:
        made["crossing"] = axis.low
    return made


def rendered(pages: Sequence[Page], title: str, created: datetime) -> bytes:
    """The file's content."""
    stream = BytesIO()
    book = _Book(stream, title, created)
    for page in pages:
        book.page(page)
    book.file.close()
    return stream.getvalue()
