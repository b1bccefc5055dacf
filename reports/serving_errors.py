"""Simulated against measured TPOT and TTFT of a table of load tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from calibrate.serving_check import ServingCheck
from calibrate.serving_flags import ttft_flag
from reports.against import MARKERS, against
from reports.figure import COLOURS, LEGEND, save, style


def draw(check: ServingCheck, path: Path) -> None:
    """Draw a panel for each of both times; the suffix decides the format.

    Engines differ by colour and marker. Hollow markers are rows that no goal rests on: those with
    a flag, and in the second panel those whose TTFT makes no claim.

    Raises:
        InputError: the file can't be written.
    """
    apart = np.array([bool(flag) for flag in check.flags])
    unclaimed = apart | [ttft_flag(p.row) is not None for p in check.predicted]
    with style():
        figure = Figure(figsize=(10, 5), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        _panel(left, check, "tpot_ms", "TPOT", apart)
        _panel(right, check, "ttft_ms", "TTFT", unclaimed)
        save(figure, path)


def _panel(axes: Any, check: ServingCheck, field: str, name: str, hollow: Any) -> None:
    measured = np.array([getattr(p.row, field) for p in check.predicted])
    predicted = np.array([getattr(p, field) for p in check.predicted])
    engines = np.array([p.row.engine for p in check.predicted])
    shown = (measured > 0) & (predicted > 0)  # neither is NaN
    title = f"{name}: {shown.sum():,} rows"
    if not against(axes, title, "ms", measured[shown], predicted[shown]):
        return
    for number, engine in enumerate(dict.fromkeys(engines[shown].tolist())):
        look = {
            "marker": MARKERS[number % len(MARKERS)], "linestyle": "none", "markersize": 4,
            "color": COLOURS[number % len(COLOURS)],
        }  # fmt: skip
        for mask, more in (
            (~hollow, {"label": engine, "alpha": 0.6, "markeredgewidth": 0}),
            (hollow, {"markerfacecolor": "none", "alpha": 0.7, "markeredgewidth": 0.7}),
        ):
            at = shown & (engines == engine) & mask
            axes.plot(measured[at], predicted[at], **look, **more)
    if (shown & hollow).any():
        axes.plot([], [], "o", color="0.3", markerfacecolor="none", markersize=4,
                  label="scored apart")  # fmt: skip
    axes.legend(loc="upper left", **LEGEND)
