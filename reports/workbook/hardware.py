"""The Hardware sheet: the profiles' facts as the formulas use them, and where they were read."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.specs.hardware import Hardware
from perfmodel.specs.hardware_schema import common, group_of, unit, walk
from reports.workbook.case import Case
from reports.workbook.cells import Column, Content, Place, Table, plain
from reports.workbook.page import Page

SHEET = "Hardware"
TOP = 4
PEAK = "peaks_tflops."
BANDWIDTH = "memory.bandwidth_gb_s"
SOURCES = (
    Column("hardware", "Hardware", "wrap", 34),
    Column("group", "Group", "wrap", 16),
    Column("source", "Where its figures were read", "wrap", 52),
    Column("recalled", "Given from memory: verify", "wrap", 30),
)


def _figure(hardware: Hardware, key: str) -> Content:
    """A fact by its dotted key; None where the profile doesn't give it."""
    value: object = hardware
    for part in key.split("."):
        value = None if value is None else getattr(value, part.replace("schema", "schema_"))
    return plain(value)


UNIT_PARTS = {"gb", "gib", "mb", "kb", "mhz", "w", "usd", "s"}
"""Parts of keys that say a unit, which stands in a column of its own."""


def _words(key: str) -> str:
    """``memory.bandwidth_gb_s`` in words."""
    group, _, name = key.rpartition(".")
    parts = [part for part in name.split("_") if part not in UNIT_PARTS]
    words = " ".join(parts)
    return f"{group.replace('_tflops', '').replace('_', ' ')}: {words}" if group else words


def _columns(case: Case) -> tuple[Column, ...]:
    """A row for each fact that a profile gives."""
    columns = []
    for key, field in walk(Hardware):
        if group_of(field) is not None or common(key) or key in {"schema", "notes", "name"}:
            continue
        if any(_figure(hardware, key) is not None for hardware in case.hardware):
            style = "general" if unit(field) else "right"
            columns.append(Column(key, _words(key), style, unit=unit(field)))
    return (Column("name", "Hardware", "right"), *columns)


@dataclass(frozen=True, slots=True)
class HardwareFacts:
    """The table of facts, a column for each accelerator, and the table of their sources."""

    table: Table
    sources: Table
    names: tuple[str, ...]

    def has(self, hardware: Hardware, key: str) -> bool:
        """Whether a profile gives a fact."""
        return key in self.table.keys and _figure(hardware, key) is not None

    def at(self, hardware: Hardware, key: str) -> str:
        """The address of a fact for formulas of any sheet."""
        return self.table.place.away(self.names.index(hardware.name), key)

    def span(self, key: str) -> str:
        """A fact of all accelerators."""
        return self.table.place.span(key, 0, len(self.names) - 1)


def _source_rows(case: Case) -> list[list[Content]]:
    rows: list[list[Content]] = []
    for hardware in case.hardware:
        for name in ("", *type(hardware).model_fields):
            group = hardware if not name else getattr(hardware, name)
            source = getattr(group, "source", None)
            recalled = ", ".join(getattr(group, "recalled", ()))
            if source or recalled:
                rows.append([hardware.name, name or "profile", source, recalled])
        if hardware.notes:
            rows.append([hardware.name, "note", hardware.notes, None])
    return rows


def hardware_facts(case: Case) -> HardwareFacts:
    """Facts and sources of every accelerator among the choices."""
    columns = _columns(case)
    place = Place(SHEET, TOP, 0, columns, across=True)
    rows = [[_figure(hardware, column.key) for column in columns] for hardware in case.hardware]
    below = Place(SHEET, TOP + len(columns) + 3, 0, SOURCES)
    return HardwareFacts(
        Table.of("hardware", place, rows),
        Table.of("hardware_sources", below, _source_rows(case)),
        tuple(hardware.name for hardware in case.hardware),
    )


def hardware_page(facts: HardwareFacts) -> Page:
    """The sheet."""
    page = Page(SHEET)
    page.head(
        "Hardware: the facts that times are computed from",
        "Peak rates are dense. Links are per direction and GPU. GB are 10^9 bytes, GiB 2^30. "
        "Operators take their roofs from these cells.",
    )
    page.put(TOP - 1, 0, "Fact", "head")
    page.put(TOP - 1, 1, "Unit", "head")
    for number, name in enumerate(facts.names):
        page.put(TOP - 1, 2 + number, name, "head")
    page.table(facts.table)
    sources = facts.sources.place
    page.section(sources.top - 1, "Sources", 4)
    page.table(facts.sources)
    page.widths |= {0: 34, 1: 16, 2: 52, 3: 30}
    page.widths |= dict.fromkeys(range(4, 2 + len(facts.names)), 24.0)
    page.frozen = (TOP, 2)
    return page
