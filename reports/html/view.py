"""A page before it is markup: every text, table and picture that the template writes."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.text import binary
from reports.html.breakdown import Breakdown, breakdown
from reports.html.columns import Columns
from reports.html.curves import Curve, curves
from reports.html.figures import figure_columns
from reports.html.grid import Grid
from reports.html.notes import case_facts, headline, times_rest_on
from reports.html.plan_tables import plan_tables
from reports.html.record import Report
from reports.html.roofline import RooflineView, roofline_view
from reports.html.tables import (
    Table,
    error_table,
    fact_table,
    grid_table,
    memory_table,
    operator_table,
    phase_table,
    roof_table,
    setting_table,
    speculation_table,
)


@dataclass(frozen=True, slots=True)
class PageView:
    """What the template writes; it computes nothing."""

    report: Report
    title: str
    facts: tuple[str, ...]
    headline: str
    fits: bool
    uncertain: bool
    """Whether there are intervals."""
    columns: Columns
    start: int | None
    """The setting that sliders start at; None where nothing fits."""
    breakdown: Breakdown | None
    roofline: RooflineView | None
    curves: tuple[Curve, ...]
    capacity: str
    times: str
    notes: tuple[str, ...]
    answer_tables: tuple[Table, ...]
    grid_tables: tuple[Table, ...]
    operator_tables: tuple[Table, ...]
    plan_tables: tuple[Table, ...]
    source_tables: tuple[Table, ...]

    @property
    def step(self) -> str:
        """What decoding repeats: a step, or a round where tokens are drafted."""
        return "step" if self.report.answer.speculation is None else "round"

    @property
    def asked(self) -> int:
        """The setting that the answer is of."""
        return self.report.grid.asked


def page_view(report: Report) -> PageView:
    """Everything that a report's page shows."""
    answer, grid = report.answer, report.grid
    uncertain = answer.calibration != "datasheet roof"
    columns = figure_columns(grid, uncertain=uncertain)
    line = headline(columns, grid.asked, answer, report.remedy)
    start = _start(grid)
    parts = roof = None
    pictures: tuple[Curve, ...] = ()
    if start is not None:
        parts = breakdown(grid)
        roof = roofline_view(grid, report.roofline, start)
        pictures, own = curves(grid, uncertain=uncertain)
        columns |= parts.columns | own | ({} if roof is None else roof.columns)
    return PageView(
        report=report,
        title=f"{answer.model.name} on {answer.plan.parallel.gpus} × {answer.hardware.name}",
        facts=tuple(case_facts(answer)),
        headline=line,
        fits=bool(answer.memory.fits),
        uncertain=uncertain,
        columns=columns,
        start=start,
        breakdown=parts,
        roofline=roof,
        curves=pictures,
        capacity=binary(answer.memory.capacity_bytes),
        times=times_rest_on(report),
        notes=tuple(answer.warnings),
        answer_tables=_answer_tables(report),
        grid_tables=_grid_tables(grid, columns),
        operator_tables=_operator_tables(report),
        plan_tables=() if report.plan is None else plan_tables(report.plan),
        source_tables=_source_tables(report),
    )


def _start(grid: Grid) -> int | None:
    """The setting that was asked for if it fits, else the nearest that does."""
    fits = grid.fits()
    for among in (range(grid.asked, grid.asked + 1), grid.line(grid.asked, "batch"),
                  grid.line(grid.asked, "prompt"), range(grid.size)):  # fmt: skip
        there = [setting for setting in among if fits[setting]]
        if there:
            return there[-1]
    return None


def _answer_tables(report: Report) -> tuple[Table, ...]:
    answer = report.answer
    tables = [memory_table(answer), roof_table(report.roofline)]
    if answer.memory.fits:
        tables.insert(0, phase_table(answer))
        tables += [made] if (made := speculation_table(answer)) is not None else []
    return tuple(tables)


def _grid_tables(grid: Grid, columns: Columns) -> tuple[Table, ...]:
    if grid.size == 1 or not grid.fits().any():
        return ()
    asked = (
        ("tpot_s", "Time per output token over batch and prompt"),
        ("ttft_s", "Time to first token over batch and prompt"),
    )
    return tuple(grid_table(grid, columns, name, caption) for name, caption in asked)


def _operator_tables(report: Report) -> tuple[Table, ...]:
    answer = report.answer
    if not answer.memory.fits:
        return ()
    step = "step" if answer.speculation is None else "round"
    return (
        operator_table(answer.prefill, "prefill", "Prefill: every operator of one GPU"),
        operator_table(answer.decode, "decode", f"Decode {step}: every operator of one GPU"),
    )


def _source_tables(report: Report) -> tuple[Table, ...]:
    found = report.provenance
    errors = () if found.calibration is None else (error_table(found.calibration),)
    return (setting_table(report.answer), fact_table(found), *errors)
