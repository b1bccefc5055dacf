"""What sheets are made of: values, formulas with what they give, tables and where they lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from xlsxwriter.utility import xl_rowcol_to_cell

Scalar = str | int | float | None
"""What a cell shows. None: nothing."""
NONE = "–"
"""What a formula gives where there is nothing to compute: text, which counts as no number."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula without its equals sign, and what it gives for the inputs as written."""

    text: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Rule:
    """What may be typed into an input; an empty cell always may where ``empty`` says so."""

    kind: Literal["decimal", "integer", "list"]
    message: str
    """Unit and meaning, shown where the cell is entered."""
    low: float = 0.0
    high: float = 0.0
    source: str = ""
    """For a list: the range that holds it."""
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A value or formula with what distinguishes it from its neighbours."""

    content: Scalar | Formula
    style: str = ""
    """Name of a style; the column's where empty."""
    name: str = ""
    """Name by which formulas call it."""
    rule: Rule | None = None
    """Makes it an input."""

    @property
    def value(self) -> Scalar:
        """What it shows."""
        return self.content.value if isinstance(self.content, Formula) else self.content


Content = Scalar | Formula | Cell


def quoted(sheet: str) -> str:
    """A sheet's name as formulas write it."""
    return f"'{sheet}'" if " " in sheet else sheet


def fixed_row(row: int, column: int) -> str:
    """An address whose row stays where a formula is copied downwards: ``H$4``."""
    return str(xl_rowcol_to_cell(row, column, row_abs=True))


def as_cell(content: Content) -> Cell:
    """``content`` as a cell."""
    return content if isinstance(content, Cell) else Cell(content)


def plain(value: Any) -> Scalar:
    """A number of the model as a cell holds it: NaN and infinity as nothing, a truth as a word."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One quantity of a table: the name that files give it, and how a sheet shows it."""

    key: str
    """Name in CSV and Parquet, its unit as the last part."""
    title: str
    style: str = "text"
    width: float = 10.0
    """In characters."""
    unit: str = ""
    """Beside the title, where records stand side by side."""
    strong: bool = False
    """Stands out among its neighbours."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table lies: records below each other, or side by side (``across``).

    Below each other, row ``top`` holds titles. Side by side, column ``left`` holds titles, the next
    one units, and ``gap`` further columns are left free before the first record.
    """

    sheet: str
    top: int
    left: int
    columns: tuple[Column, ...]
    across: bool = False
    gap: int = 0

    def index(self, key: str) -> int:
        """The position of a quantity.

        Raises:
            ValueError: the table has none of that name.
        """
        return [column.key for column in self.columns].index(key)

    def spot(self, record: int, key: str) -> tuple[int, int]:
        """Row and column, from 0."""
        if self.across:
            return self.top + self.index(key), self.left + 2 + self.gap + record
        return self.top + 1 + record, self.left + self.index(key)

    def at(self, record: int, key: str) -> str:
        """The address of a cell for a formula of the same table: ``D7``."""
        return str(xl_rowcol_to_cell(*self.spot(record, key)))

    def away(self, record: int, key: str) -> str:
        """The address for a formula of any sheet: ``Loads!$D$7``."""
        return f"{quoted(self.sheet)}!{self._fixed(record, key)}"

    def span(self, key: str, first: int, last: int) -> str:
        """A quantity of several records for a formula of any sheet: ``Loads!$D$7:$D$12``."""
        return f"{quoted(self.sheet)}!{self._fixed(first, key)}:{self._fixed(last, key)}"

    def _fixed(self, record: int, key: str) -> str:
        return str(xl_rowcol_to_cell(*self.spot(record, key), row_abs=True, col_abs=True))


@dataclass(frozen=True, slots=True)
class Table:
    """Records that a sheet shows and that files repeat."""

    name: str
    """Of its file."""
    place: Place
    rows: tuple[tuple[Cell, ...], ...]
    kept: int | None = None
    """Records that files repeat: the first ones. None: all."""

    @classmethod
    def of(
        cls, name: str, place: Place, rows: Sequence[Sequence[Content]], kept: int | None = None
    ) -> Table:
        """A table of rows in the order of the place's columns.

        Raises:
            ValueError: a row has more or fewer cells than columns.
        """
        made = tuple(tuple(as_cell(content) for content in row) for row in rows)
        if any(len(row) != len(place.columns) for row in made):
            raise ValueError(f"{name}: a row doesn't have {len(place.columns)} cells")
        return cls(name, place, made, kept)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its quantities."""
        return tuple(column.key for column in self.place.columns)

    def values(self, key: str) -> list[Scalar]:
        """One quantity of all records."""
        index = self.place.index(key)
        return [row[index].value for row in self.rows]
