"""One sheet being put together: cells at their places, tables, charts, and how it prints."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from xlsxwriter.utility import xl_rowcol_to_cell

from reports.workbook.cells import Cell, Column, Content, Table, as_cell


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis of a chart says; ``log`` in powers of ten."""

    title: str
    log: bool = False
    low: float | None = None
    high: float | None = None
    number: str = "General"
    reverse: bool = False
    """The first one at the top, or right."""
    far: bool = False
    """Numbers on the other side than where the axis begins."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line, cloud of marks or row of bars; ranges are addresses as formulas write them."""

    name: str
    """A range that holds it, or fixed words: never text of a user's."""
    x: str
    y: str
    colour: str
    line: bool = True
    mark: str = "none"
    dash: str = "solid"
    second: bool = False
    """Against a scale of its own on the right."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A native chart."""

    kind: str
    """``scatter``, ``column`` or ``bar``."""
    title: str
    """Fixed words."""
    series: tuple[Series, ...]
    x: Axis
    y: Axis
    spot: tuple[int, int]
    size: tuple[int, int] = (760, 420)
    """Pixels."""
    y2: Axis | None = None
    legend: str = "right"


@dataclass(frozen=True, slots=True)
class Highlight:
    """Cells that look otherwise where a formula of their first one holds."""

    first: tuple[int, int]
    last: tuple[int, int]
    formula: str
    look: dict[str, Any]


LINE, HEAD_LINE = 14.5, 14.0
"""Height of a line in points."""


def _lines(text: str, width: float) -> int:
    """Lines that a text takes when wrapped at so many characters."""
    return max(1, len(textwrap.wrap(text, max(3, int(width)))))


@dataclass(slots=True)
class Page:
    """A sheet. Rows and columns count from 0."""

    name: str
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    widths: dict[int, float] = field(default_factory=dict)
    heights: dict[int, float] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    highlights: list[Highlight] = field(default_factory=list)
    frozen: tuple[int, int] = (0, 0)
    """Rows and columns that stay in sight, and stand on each printed page."""
    filtered: Table | None = None
    breaks: tuple[int, ...] = ()
    """Columns before which a printed page begins; without any, all columns are made to fit one
    page's width."""
    printed: tuple[int, int, int, int] | None = None
    """First row and column, last row and column of what is printed; None: everything."""
    pages: int = 0
    """Pages that it is made to fit in height; 0: as many as there are."""
    titles: int = 1
    """Of the frozen rows, the lowest ones that each printed page repeats."""
    portrait: bool = False
    tab: str = "#1F3864"

    def put(self, row: int, column: int, content: Content, style: str = "text") -> str:
        """A cell, in ``style`` where it has none of its own; its address on this sheet."""
        cell = as_cell(content)
        if not cell.style:
            cell = Cell(cell.content, style, cell.name, cell.rule)
        self.cells[row, column] = cell
        return str(xl_rowcol_to_cell(row, column))

    def head(self, title: str, lead: str) -> None:
        """The sheet's title and a line on what it is."""
        self.put(0, 0, title, "title")
        self.put(1, 0, lead, "lead")
        self.heights[0] = 24

    def section(self, row: int, title: str, columns: int) -> None:
        """A heading over several columns."""
        for column in range(columns):
            self.put(row, column, title if column == 0 else None, "section")
        self.heights[row] = 20

    def table(self, table: Table, *, shown: bool = True) -> None:
        """A table at its place; ``shown`` False leaves the columns' widths as they are."""
        place = table.place
        for column in place.columns:
            spot = place.spot(-1, column.key)
            if place.across:
                style = "bold" if column.strong else "label"
                self.put(spot[0], place.left, column.title, style)
                self.put(spot[0], place.left + 1, column.unit, "unit")
            else:
                self.put(*spot, column.title, "head")
                if shown:
                    self.widths[spot[1]] = max(column.width, self.widths.get(spot[1], 0.0))
        if not place.across:
            self.heights[place.top] = max(
                HEAD_LINE * _lines(column.title, 0.95 * column.width) + 5
                for column in place.columns
            )
        for record, row in enumerate(table.rows):
            for column, cell in zip(place.columns, row, strict=True):
                style = column.style + ("*" if cell.rule is not None else "")
                style = f"strong.{style}" if column.strong else style
                self.put(*place.spot(record, column.key), cell, style)
            if not place.across:
                self._fit(place.top + 1 + record, place.columns, row)
        self.tables.append(table)

    def _fit(self, row: int, columns: Sequence[Column], cells: Sequence[Cell]) -> None:
        """Make a row as high as its longest wrapped text needs."""
        needed = [
            _lines(str(cell.value or ""), column.width)
            for column, cell in zip(columns, cells, strict=True)
            if column.style == "wrap"
        ]
        if needed and max(needed) > 1:
            self.heights[row] = LINE * max(needed)

    def rows(self, row: int, rows: Sequence[Sequence[Content]], styles: Sequence[str]) -> int:
        """Cells below each other, a style for each column; the row after the last."""
        for line in rows:
            for column, (content, style) in enumerate(zip(line, styles, strict=True)):
                self.put(row, column, content, style)
            row += 1
        return row
