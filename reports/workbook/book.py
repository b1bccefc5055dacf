"""The workbook as a whole: every sheet in its order, and every table that files repeat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perfmodel.planning.capacity.answer import Plan
from perfmodel.whole_file import write_whole
from reports.workbook.capacity import answers, capacity_page, capacity_table
from reports.workbook.case import case_of
from reports.workbook.cells import Table
from reports.workbook.cost import cost_page
from reports.workbook.hardware import hardware_facts, hardware_page
from reports.workbook.inputs import input_places, inputs_page
from reports.workbook.latency import latency_page, latency_table
from reports.workbook.latency_chart import latency_chart_page
from reports.workbook.loads import load_table, loads_page
from reports.workbook.model import memory_table, model_page, model_table
from reports.workbook.months import furthest, horizon_cost, month_table, months_page
from reports.workbook.notes import note_table, notes_page, rejected_table
from reports.workbook.operators import operator_table, operators_page
from reports.workbook.page import Page
from reports.workbook.render import rendered
from reports.workbook.roofline import roofline_page, roofline_tables


@dataclass(frozen=True, slots=True)
class Book:
    """Sheets in their order."""

    title: str
    made: datetime
    pages: tuple[Page, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table once, in the order of the sheets."""
        return tuple(table for page in self.pages for table in page.tables)


def book_of(plan: Plan, made: datetime | None = None) -> Book:
    """All sheets of a plan; ``made``: when, now if nothing is said.

    Raises:
        InputError: the plan has no choice.
    """
    made = made or datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    case = case_of(plan, made)
    places = input_places(case)
    hardware = hardware_facts(case)
    loads = load_table(case, places)
    capacity = capacity_table(case, places, loads, hardware)
    months = month_table(case, capacity)
    operators = operator_table(case, hardware)
    roofline = roofline_tables(case, operators, hardware)
    latency = latency_table(case, places)
    model = model_table(case)
    memory = memory_table(case, model)
    notes = note_table(case)
    rejected = rejected_table(case, notes.place.top + len(notes.rows) + 3)
    answered = [*answers(capacity), horizon_cost(case, months)]
    pages = (
        inputs_page(case, places, answered, capacity.labels, furthest(case)),
        capacity_page(case, capacity),
        months_page(case, months),
        cost_page(case, capacity, loads, months),
        loads_page(case, places, loads),
        latency_page(case, latency),
        latency_chart_page(case, latency),
        operators_page(case, operators),
        roofline_page(case, roofline, operators, hardware),
        model_page(case, model, memory),
        hardware_page(hardware),
        notes_page(notes, rejected),
    )
    return Book(f"Capacity plan: {plan.model.name}", made, pages)


def write_workbook(book: Book, path: Path) -> None:
    """Write the file, whole or not at all.

    Raises:
        InputError: it can't be written.
    """
    content = rendered(book.pages, book.title, book.made)
    write_whole(path, lambda part: part.write_bytes(content))
