"""What a sweep shows on screen: its axes, how many settings there were, the selected ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perfmodel.cli.output import table
from perfmodel.cli.text import digits, whole
from perfmodel.planning.sweep.columns import RESULTS, wanted_end
from perfmodel.planning.sweep.table import Table as Rows
from perfmodel.specs.sweep import SweepSpec
from perfmodel.units import GIB

if TYPE_CHECKING:
    from rich.table import Table

    from perfmodel.planning.sweep.answer import Sweep, Swept

SHOWN = 20
"""Rows of a Pareto front that are shown."""
GAP = 2
HEADINGS = {
    "ttft_ms": "TTFT ms",
    "tpot_ms": "TPOT ms",
    "total_s": "total s",
    "output_tokens_per_s": "tok/s",
    "output_tokens_per_s_per_gpu": "tok/s/GPU",
    "tokens_per_s_per_user": "tok/s/user",
    "kv_bytes": "KV GiB",
    "required_bytes": "used GiB",
    "max_sequences": "most seqs",
    "gpus": "GPUs",
    "hardware": "hardware",
    "kv_cache": "cache",
}
ORDER = ("tpot_ms", "ttft_ms", "output_tokens_per_s_per_gpu", "tokens_per_s_per_user",
         "required_bytes", "max_sequences", "output_tokens_per_s", "total_s")  # fmt: skip
"""Results as they are shown, those first that are missed most on a narrow screen."""


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON takes it."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def _few(values: tuple[Any, ...]) -> str:
    """Values in a few words."""
    said = ["none" if v is None else f"{v:,}" if isinstance(v, int) else str(v) for v in values]
    if len(said) <= 4:
        return ", ".join(said)
    return f"{said[0]} … {said[-1]} ({len(said)} values)"


def head_lines(spec: SweepSpec) -> list[str]:
    """Models and hardware, and the other axes."""
    said = dict(spec.axes)
    models, hardware = said.pop("model"), said.pop("hardware")
    facts = [f"{name} {_few(values)}" for name, values in said.items()]
    return [f"{', '.join(models)} on {', '.join(hardware)}", " · ".join(facts)]


def count_table(spec: SweepSpec, result: Swept) -> Table:
    """How many settings there were, and what became of them."""
    made = table(None, [("Settings", "left"), ("", "right")])
    refused = sum(each.settings for each in result.refused)
    rows = [("All combinations", result.settings), ("Refused", refused), ("Fit", result.fits)]
    if spec.where is not None:
        rows.append((f"Kept: {spec.where}", result.rows))
    for name, count in rows:
        made.add_row(name, whole(count))
    return made


def row_tables(sweep: Sweep, result: Swept, width: int) -> Iterator[Table]:
    """The best settings and the Pareto front."""
    spec = sweep.spec
    if spec.best_by is not None and result.best.rows:
        column, high = wanted_end(spec.best_by)
        per = f" for each {', '.join(spec.per)}" if spec.per else ""
        title = f"{'Highest' if high else 'Lowest'} {column}{per}"
        yield _row_table(title, result.best, _names(spec, [column]), width)
    if spec.pareto and result.pareto.rows:
        names = [wanted_end(name)[0] for name in spec.pareto]
        more = result.pareto.rows - SHOWN
        title = f"Pareto front of {', '.join(names)}: {result.pareto.rows:,} settings"
        title += f", the first {SHOWN}" if more > 0 else ""
        shown = result.pareto.taken(slice(0, SHOWN))
        yield _row_table(title, shown, _names(spec, names), width)


def origin_lines(result: Swept) -> Iterator[str]:
    """What the times of the rows shown rest on."""
    origins: dict[str, list[str]] = {}
    for row in [*result.best.records(), *result.pareto.records()]:
        names = origins.setdefault(row["calibration"], [])
        if row["hardware"] not in names:
            names.append(row["hardware"])
    for origin, names in origins.items():
        yield f"Times on {', '.join(names)}: {origin} calibration, read off within 0.5 %."


def _names(spec: SweepSpec, first: list[str]) -> list[str]:
    """Columns of a table: the axes that vary, what it is sorted by, and other results."""
    varied = [name for name, values in spec.axes if len(values) > 1]
    results = [name for name in first if name not in varied]
    return [*varied, *results, *(name for name in ORDER if name not in results)]


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes"):
        return digits(value / GIB)
    if isinstance(value, int):
        return f"{value:,}"
    if name not in RESULTS and math.isfinite(value) and value == int(value):
        return f"{value:,.0f}"
    return whole(value) if name == "max_sequences" else digits(value)


def _heading(name: str) -> str:
    return HEADINGS.get(name, name.replace("_", " "))


def _row_table(title: str, rows: Rows, names: list[str], width: int) -> Table:
    """As many of the columns as have room."""
    records = rows.records()
    columns: list[tuple[str, list[str], bool]] = []
    left = width
    for name in names:
        values = [row[name] if name in row else _derived(rows, name, i)
                  for i, row in enumerate(records)]  # fmt: skip
        cells = [_cell(name, value) for value in values]
        left -= max(len(text) for text in [_heading(name), *cells]) + (GAP if columns else 0)
        if left < 0 and columns:
            break
        columns.append((_heading(name), cells, isinstance(values[0], str)))
    made = table(title, [(heading, "left" if text else "right") for heading, _, text in columns])
    for row in zip(*(cells for _, cells, _ in columns), strict=True):
        made.add_row(*row)
    return made


def _derived(rows: Rows, name: str, place: int) -> float:
    return float(rows.values(name)[place])
