"""User speed against cost: every simulated load of a plan's choices as a fleet, and the front."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from perfmodel.errors import InputError
from perfmodel.planning.capacity.answer import Plan
from perfmodel.planning.capacity.front import Point, front_points
from reports.case import header
from reports.figure import COLOURS, LEGEND, save, style
from reports.labelling import Labeller, Wanted

SIZE = (9.0, 6.0)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h")
AREA = 4.0
"""Radius of a mark in points."""


def draw_front(plan: Plan, path: Path, size: tuple[float, float] = SIZE) -> None:
    """Draw the front of a plan; the suffix decides the format.

    Raises:
        InputError: the plan has no priced choice, or the file can't be written.
    """
    with style():
        save(front_figure(plan, size), path)


def front_figure(plan: Plan, size: tuple[float, float] = SIZE) -> Figure:
    """The front as a figure of ``size`` inches; call it within `style`.

    A choice has a colour and a shape; its loads are joined, the ones on the front filled. A step
    line bounds what can be had: below and to the right of it nothing lies.

    Raises:
        InputError: no choice has a price and a TPOT.
    """
    points = front_points(plan)
    if not points:
        raise InputError(
            "--plot: no choice has both a rent and a TPOT; give --price, or ask for more than one "
            "token"
        )
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    ordered = sorted(points, key=lambda p: (p.choice, p.usd_per_million_output_tokens))
    for choice, group in groupby(ordered, key=lambda p: p.choice):
        _loads(axes, choice, list(group), plan)
    front = sorted((p for p in points if p.front), key=lambda p: p.tokens_per_s)
    axes.step([_x(p) for p in front], [_y(p) for p in front], where="pre", color="0.2",
              linewidth=1.0, linestyle=(0, (4, 2)), zorder=1, label="the front",
              gid="front")  # fmt: skip
    axes.set(xlabel="tokens per second of one user (1/TPOT in the busiest hour)",
             ylabel="rent per 10⁶ output tokens (USD)", xlim=(0, None), ylim=(0, None))  # fmt: skip
    axes.margins(0.08)
    axes.grid(visible=True, color="0.9", linewidth=0.6)
    traffic = plan.traffic
    facts = (
        f"{traffic.rate:g} requests/s, p{traffic.percentile:g}; each mark is a fleet that keeps "
        "the promises; filled: on the front, with its GPUs"
    )
    header(figure, f"{plan.model.name}: what speed for a user costs", facts)
    figure.legend(
        loc="outside lower center", ncols=max(1, int(size[0] / 4.4)), fontsize=8, **LEGEND
    )
    _label(figure, axes, points, front)
    return figure


def _x(point: Point) -> float:
    return point.tokens_per_s


def _y(point: Point) -> float:
    return point.usd_per_million_output_tokens


def _loads(axes: Any, choice: int, points: Sequence[Point], plan: Plan) -> None:
    colour, marker = COLOURS[choice % len(COLOURS)], MARKERS[choice % len(MARKERS)]
    made = plan.choices[choice]
    name = f"{choice + 1}: {made.gpus_per_replica} × {made.hardware.name} a replica, {made.label}"
    axes.plot([_x(p) for p in points], [_y(p) for p in points], color=colour, linewidth=0.8,
              alpha=0.6, zorder=2)  # fmt: skip
    axes.plot([], [], marker=marker, color=colour, linewidth=0.8, label=name)
    for point in points:
        axes.plot([_x(point)], [_y(point)], marker=marker, markersize=2 * AREA - 1,
                  color=colour, markerfacecolor=colour if point.front else "white",
                  zorder=4 if point.front else 3,  # others may be as dear and as fast
                  gid=f"fleet/{choice}/{point.gpus}")  # fmt: skip


def _label(figure: Any, axes: Any, points: Sequence[Point], front: Sequence[Point]) -> None:
    labeller = Labeller(figure, axes)
    marks = [((_x(p), _y(p)), AREA) for p in points]
    joined = [[(_x(p), _y(p)) for p in front]]
    labeller.avoid(joined, marks)
    labeller.write([
        Wanted(f"{p.gpus}", [(_x(p), _y(p))], radius=AREA, toward=-45, farthest=16) for p in front
    ])  # fmt: skip
