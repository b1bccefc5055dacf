"""Rows of the chosen deployment, point by point: what charts of fixed ranges are drawn from.

Points beyond the chosen deployment's last row repeat that one, so that a chart shows no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.workbook.cells import Column, Formula, Place, Scalar
from reports.workbook.inputs import CHOICE
from reports.workbook.page import Page


@dataclass(frozen=True, slots=True)
class PickedColumn:
    """One quantity: the range to pick from, and which rows are each choice's."""

    key: str
    title: str
    style: str
    source: str
    values: Sequence[Scalar]
    """What the range holds."""
    starts: tuple[int, ...]
    """By choice: its first row in the range, from 1."""
    counts: tuple[int, ...]
    """By choice: its rows; at least one."""

    def at(self, point: int, address: str) -> Formula:
        """The chosen deployment's row for a point; ``address`` holds the point's number."""
        start, count = chosen(self.starts), chosen(self.counts)
        text = f"INDEX({self.source},{start}+MIN({address},{count})-1)"
        return Formula(text, self.values[self.starts[0] + min(point, self.counts[0]) - 2])


def chosen(numbers: tuple[int, ...]) -> str:
    """The chosen deployment's of some numbers."""
    if len(set(numbers)) == 1:
        return str(numbers[0])
    return f"CHOOSE({CHOICE},{','.join(str(number) for number in numbers)})"


@dataclass(frozen=True, slots=True)
class Picked:
    """A block of such columns, numbered by point."""

    sheet: str
    top: int
    """The row of the titles; a note stands above."""
    left: int
    points: int
    columns: tuple[PickedColumn, ...]

    @property
    def place(self) -> Place:
        """Where the block lies."""
        shown = (Column(c.key, c.title, c.style) for c in self.columns)
        return Place(self.sheet, self.top, self.left, (Column("point", "Point", "int"), *shown))

    def span(self, key: str) -> str:
        """All points of a quantity."""
        return self.place.span(key, 0, self.points - 1)

    def write(self, page: Page) -> None:
        """The block on its page."""
        place = self.place
        page.put(self.top - 1, self.left, "Data of the charts: it follows the chosen deployment",
                 "note")  # fmt: skip
        for shown in place.columns:
            page.put(*place.spot(-1, shown.key), shown.title, "head")
        for point in range(self.points):
            page.put(*place.spot(point, "point"), point + 1, "int")
            for column in self.columns:
                made = column.at(point + 1, place.at(point, "point"))
                page.put(*place.spot(point, column.key), made, column.style)
