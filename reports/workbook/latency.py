"""The Latency sheet: TTFT and TPOT over batch and prompt, as estimated, and two charts of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.units import KILO
from reports.workbook.case import Case, Facts
from reports.workbook.cells import NONE, Column, Content, Formula, Place, Scalar, Table, plain
from reports.workbook.inputs import InputPlaces
from reports.workbook.page import Page

SHEET = "Latency"
TOP = 3
COLUMNS = (
    Column("choice", "Choice", "int", 8),
    Column("prompt_tokens", "Prompt, tokens", "int", 10),
    Column("batch", "Batch, sequences", "int", 10),
    Column("fits", "Fits in memory", "centre", 9),
    Column("ttft_ms", "TTFT of the batch, ms", "n1", 11),
    Column("ttft_ms_low", "90 % interval from, ms", "n1", 11),
    Column("ttft_ms_high", "to, ms", "n1", 11),
    Column("tpot_ms", "TPOT, ms", "n2", 10),
    Column("tpot_ms_low", "90 % interval from, ms", "n2", 11),
    Column("tpot_ms_high", "to, ms", "n2", 10),
    Column("tokens_per_s_user", "One user's speed, tokens/s", "n1", 11),
    Column("tokens_per_s", "All output, tokens/s", "int", 11),
    Column("within_tpot", "Within the tightest TPOT", "centre", 11),
)


@dataclass(frozen=True, slots=True)
class Latency:
    """The table, and where each choice's prompts begin in it."""

    table: Table
    first: tuple[tuple[int, ...], ...]
    """By choice and prompt: the first row."""
    fitting: tuple[tuple[int, ...], ...]
    """By choice and prompt: rows that fit in memory, of those that follow it; at least one."""


def _number(value: Any, spot: tuple[int, int]) -> float:
    """An element of an estimate's array over prompts × batches."""
    return float(np.asarray(value)[spot])


def _tightest(case: Case) -> float | None:
    limits = [c.level.tpot_s for c in case.plan.traffic.classes if c.level.tpot_s is not None]
    return KILO * min(limits) if limits else None


def _row(case: Case, places: InputPlaces, place: Place, record: int, facts: Facts,
         spot: tuple[int, int]) -> list[Content]:  # fmt: skip
    grid, batch = facts.grid, facts.batches[spot[1]]
    shape = (len(facts.prompts), len(facts.batches))
    fits = bool(np.broadcast_to(np.asarray(grid.memory.fits), shape)[spot])

    def ms(name: str) -> list[Scalar]:
        values = (getattr(grid, name), *grid.interval(name))
        full = (np.broadcast_to(np.asarray(value, dtype=np.float64), shape) for value in values)
        return [plain(KILO * _number(value, spot)) for value in full]

    tpot = ms("tpot_s")
    cell = place.at(record, "tpot_ms")
    known = isinstance(tpot[0], float)
    limits = places.classes.span("tpot_limit_ms", 0, places.class_count - 1)
    tightest = _tightest(case)
    within = NONE if tightest is None or not known else (
        "yes" if isinstance(tpot[0], float) and tpot[0] <= tightest else "no")  # fmt: skip
    speed = KILO / tpot[0] if isinstance(tpot[0], float) else NONE
    return [
        facts.number, facts.prompts[spot[0]], batch, "yes" if fits else "no",
        *ms("ttft_s"), *tpot,
        Formula(f'IF(ISNUMBER({cell}),1000/{cell},"{NONE}")', speed),
        Formula(f'IF(ISNUMBER({cell}),{place.at(record, "batch")}*1000/{cell},"{NONE}")',
                batch * speed if isinstance(speed, float) else NONE),
        Formula(f'IF(AND(COUNT({limits})>0,ISNUMBER({cell})),IF({cell}<=MIN({limits}),"yes","no"),'
                f'"{NONE}")', within),
    ]  # fmt: skip


def latency_table(case: Case, places: InputPlaces) -> Latency:
    """All choices' latencies, batch by batch within each prompt."""
    place = Place(SHEET, TOP, 0, COLUMNS)
    rows: list[list[Content]] = []
    first, fitting = [], []
    for facts in case.facts:
        starts, counts = [], []
        for prompt in range(len(facts.prompts)):
            starts.append(len(rows))
            made = [
                _row(case, places, place, len(rows) + batch, facts, (prompt, batch))
                for batch in range(len(facts.batches))
            ]
            rows += made
            counts.append(max(1, sum(row[3] == "yes" for row in made)))
        first.append(tuple(starts))
        fitting.append(tuple(counts))
    return Latency(Table.of("latency", place, rows), tuple(first), tuple(fitting))


def latency_page(case: Case, latency: Latency) -> Page:
    """The sheet of the table."""
    page = Page(SHEET, tab="#0072B2")
    page.head(
        "Latency: one batch alone, without queueing",
        "TTFT: a batch of such prompts prefilled together. TPOT: the mean step of "
        f"{case.mean_output:,} output tokens. Loads has what users see under traffic.",
    )
    page.table(latency.table)
    page.filtered = latency.table
    page.frozen = (TOP + 1, 1)
    return page
