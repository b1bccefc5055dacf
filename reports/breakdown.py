"""What prefill and a decode step take their time for, over the batch or another quantity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from perfmodel.inference.breakdown import GROUPS, Breakdown, breakdown
from perfmodel.inference.estimate import Estimate
from perfmodel.inference.roofline import path_of
from perfmodel.text import seconds
from perfmodel.units import MILLISECOND
from reports.case import case_line, header
from reports.figure import COLOURS, save, style

SIZE = (9.0, 5.0)
FILLS = (
    (COLOURS[0], ""), (COLOURS[4], "//"), (COLOURS[2], ""), (COLOURS[1], "\\\\"),
    (COLOURS[3], ""), (COLOURS[5], "xx"), ("0.8", ""), (COLOURS[5], ".."), ("0.35", ""),
)  # fmt: skip
"""Colour and hatch of each group: neighbours differ in both, or in lightness."""
THOUSAND = 1000


def draw_breakdown(result: Estimate, path: Path, size: tuple[float, float] = SIZE) -> None:
    """Draw stacked bars for each phase; the suffix decides the format.

    Raises:
        InputError: the file can't be written, or several quantities vary.
    """
    with style():
        save(breakdown_figure(result, size), path)


def breakdown_figure(result: Estimate, size: tuple[float, float] = SIZE) -> Figure:
    """Stacked bars as a figure of ``size`` inches; call it within `style`."""
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    over = path_of(result.workload) or "batch"
    values = np.ravel(getattr(result.workload, over))
    tokens = np.broadcast_to(result.workload.batch * result.workload.new_tokens, values.shape)
    prefill = breakdown(result, result.prefill)
    _bars(left, prefill, values, THOUSAND / tokens)
    left.set(title="Prefill", ylabel="ms for 1,000 prompt tokens", xlabel=over.replace("_", " "))
    step = "Decode step" if result.speculation is None else "Decode round"
    decode = breakdown(result, result.decode)
    _bars(right, decode, values, np.ones(values.shape))
    right.set(title=step, ylabel="ms", xlabel=over.replace("_", " "))
    for axes in (left, right):
        axes.set_title(axes.get_title(), loc="left", fontsize=9)
        axes.set_title("", loc="center")
    named = {name for phase in (prefill, decode) for name, _ in phase.groups}
    handles = [_patch(name) for name in GROUPS if name in named]
    handles.append(Line2D([], [], color="0.2", marker="|", linewidth=0.8, label="90 % interval"))
    figure.legend(handles=handles, fontsize=8,
                  loc="outside lower center", ncols=max(1, int(size[0] / 1.9)),
                  frameon=False)  # fmt: skip
    head = f"{result.model.name} on {result.hardware.name}: where the time goes"
    header(figure, head, case_line(result, size[0] - 0.2))
    return figure


def _bars(axes: Any, phase: Breakdown, values: Any, scale: Any) -> None:
    """Bars from the bottom up; the whole phase's time stands over each."""
    at = np.arange(len(values))
    foot = np.zeros(len(values))
    for name, times in phase.groups:
        height = times * scale / MILLISECOND
        colour, hatch = FILLS[GROUPS.index(name)]
        axes.bar(at, height, 0.78, bottom=foot, color=colour, hatch=hatch, edgecolor="white",
                 linewidth=0.5, gid=f"group/{name}")  # fmt: skip
        foot = foot + height
    low, high = (end * scale / MILLISECOND for end in (phase.low_s, phase.high_s))
    axes.errorbar(at, foot, yerr=np.stack([foot - low, high - foot]), fmt="none", ecolor="0.2",
                  elinewidth=0.8, capsize=2)  # fmt: skip
    turned = 90 if len(values) > 6 else 0
    for x, top, total in zip(at, high, phase.total_s, strict=True):
        axes.annotate(seconds(float(total)), (x, top), (0, 3), textcoords="offset points",
                      ha="center", va="bottom", fontsize=7.5, rotation=turned,
                      gid="total")  # fmt: skip
    axes.set_xticks(at, [f"{value:,.0f}" for value in values], rotation=45 if turned else 0)
    axes.set_ylim(0, high.max() * (1.3 if turned else 1.12))
    axes.grid(visible=True, axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)


def _patch(name: str) -> Any:

    colour, hatch = FILLS[GROUPS.index(name)]
    return Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name)
