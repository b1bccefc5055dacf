"""Small pictures over batch or prompt: latency, throughput, memory, each with the setting's dot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from perfmodel.units import GIB
from reports.html.columns import Columns, placed
from reports.html.geometry import Axis, Tick, linear_ticks, path, thinned, widened
from reports.html.grid import Grid, Over

WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 58.0, 386.0, 12.0, 206.0
ROOM = 36.0
"""Pixels between two ticks of a batch or prompt."""
BEYOND = 1.25
"""Of the capacity, up to which memory is drawn."""
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Asked:
    """A quantity that gets a picture."""

    name: str
    title: str
    over: Over
    unit: str


LATENCIES = (
    Asked("tpot_s", "Time per output token", "batch", "s"),
    Asked("output_tokens_per_s", "Output tokens per second", "batch", ""),
    Asked("ttft_s", "Time to first token", "prompt", "s"),
)
MEMORY = Asked("memory", "Memory per GPU", "prompt", "GiB")


@dataclass(frozen=True, slots=True)
class Curve:
    """One picture; its line, band and dot are columns called ``line.NAME`` and so on."""

    name: str
    title: str
    over: Over
    x: Axis
    y: Axis
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    band: bool
    capacity: Tick | None
    """The capacity line, where the picture has one."""


def curves(grid: Grid, *, uncertain: bool) -> tuple[tuple[Curve, ...], Columns]:
    """The pictures and their columns; those over a single batch or prompt are left out."""
    made: list[Curve] = []
    columns: Columns = {}
    for asked in LATENCIES:
        values = grid.values(attrgetter(asked.name))
        ends = grid.interval(asked.name) if uncertain else (values, values)
        there = grid.fits() & np.isfinite(values)
        if there.any() and _several(grid, asked.over):
            shown = np.concatenate([end[there] for end in ends])
            made.append(_latency(grid, asked, shown, band=uncertain))
            columns |= _drawn(grid, made[-1], values, ends, grid.fits())
    if _several(grid, MEMORY.over):
        made.append(_memory(grid))
        taken = grid.values(attrgetter("memory.required_bytes")) / GIB
        columns |= _drawn(grid, made[-1], taken, (taken, taken), taken <= made[-1].y.high)
    return tuple(made), columns


def _several(grid: Grid, over: Over) -> bool:
    return len(_stops(grid, over)) > 1


def _stops(grid: Grid, over: Over) -> tuple[int, ...]:
    return grid.batches if over == "batch" else grid.prompts


def _x(grid: Grid, over: Over) -> tuple[Axis, tuple[Tick, ...]]:
    stops = _stops(grid, over)
    axis = Axis(stops[0], stops[-1], LEFT, RIGHT)
    powers = [stop for stop in stops if stop & (stop - 1) == 0] or list(stops)
    ticks = [Tick(axis.at(stop), _tokens(stop)) for stop in powers]
    return axis, thinned(ticks, ROOM)


def _tokens(stop: int) -> str:
    """A count in powers of two as people say it.

    >>> _tokens(512), _tokens(131072), _tokens(1000)
    ('512', '128k', '1000')
    """
    return f"{stop // 1024}k" if stop >= 1024 and stop % 1024 == 0 else str(stop)


def _latency(grid: Grid, asked: Asked, shown: Values, *, band: bool) -> Curve:
    x, x_ticks = _x(grid, asked.over)
    y = Axis(*widened(shown), BOTTOM, TOP)
    return Curve(
        asked.name, asked.title, asked.over, x, y, x_ticks, y.ticks(asked.unit), band, None
    )


def _memory(grid: Grid) -> Curve:
    x, x_ticks = _x(grid, MEMORY.over)
    capacity = float(grid.parts[0].roofline.estimate.memory.capacity_bytes) / GIB
    y = Axis(0.0, BEYOND * capacity, BOTTOM, TOP, log=False)
    ticks = y.ticks_at(linear_ticks(BEYOND * capacity), MEMORY.unit)
    line = Tick(y.at(capacity), f"capacity {capacity:.3g} GiB")
    return Curve(
        MEMORY.name, MEMORY.title, MEMORY.over, x, y, x_ticks, ticks, band=False, capacity=line
    )


def _drawn(
    grid: Grid,
    curve: Curve,
    values: Values,
    ends: tuple[Values, Values],
    shown: NDArray[np.bool_],
) -> Columns:
    """Line, band and dot in each setting; settings that aren't ``shown`` have none."""
    x = np.asarray([curve.x.at(grid.at(s)[curve.over == "prompt"]) for s in range(grid.size)])
    there = shown & np.isfinite(values)

    def line(setting: int, of: Values) -> list[tuple[float, float]]:
        along = [s for s in grid.line(setting, curve.over) if there[s]]
        return [(x[s], min(max(curve.y.at(of[s]), TOP), BOTTOM)) for s in along]

    def bands() -> Iterator[str]:
        for s in range(grid.size):
            yield path([*line(s, ends[0]), *reversed(line(s, ends[1]))], closed=True)

    columns = {
        f"line.{curve.name}": [path(line(s, values)) for s in range(grid.size)],
        f"dot.{curve.name}": [
            placed(x[s], curve.y.at(values[s])) if there[s] else "" for s in range(grid.size)
        ],
    }
    if curve.band:
        columns[f"band.{curve.name}"] = list(bands())
    return columns
