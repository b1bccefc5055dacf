"""Predicted against measured kernel times, and the error over the size of the work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from calibrate.schema import SCHEMAS, TIME, Mask
from calibrate.table_work import format_column
from calibrate.validate import Validation
from reports.against import MARKERS, against
from reports.figure import COLOURS, LEGEND, save, style

POINTS = 1500
"""Rows drawn of each format: more would only hide each other. Bands use all of them."""
BINS = 14
"""Steps along the axis for the median and the bands."""
ERROR_LIMITS = (-100.0, 300.0)
LINEAR_PERCENT = 30.0
"""Errors up to here are drawn to scale, larger ones by their logarithm."""
AXES = {
    "m": "tokens m", "q_len": "new tokens per sequence", "kv_len": "context (tokens)",
    "tokens": "tokens", "message_bytes": "message (bytes)",
}  # fmt: skip


def draw(validations: Sequence[Validation], path: Path) -> None:
    """Draw a row of two panels for each table; the suffix decides the format.

    Raises:
        InputError: the file can't be written.
    """
    with style():
        figure = Figure(figsize=(10, 4.6 * len(validations)), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(validations), 2, squeeze=False)
        for (left, right), validation in zip(panels, validations, strict=True):
            _against(left, validation)
            _over_size(right, validation)
        save(figure, path)


def _formats(validation: Validation) -> list[tuple[str, Mask, str, str]]:
    """Name, rows, colour and marker of each format with predictions."""
    column = validation.table.rows[format_column(validation.table.family)].to_numpy()
    predicted = validation.predicted
    names = list(dict.fromkeys(column[predicted]))
    return [
        (str(name), predicted & (column == name), COLOURS[i % len(COLOURS)],
         MARKERS[i % len(MARKERS)])
        for i, name in enumerate(names)
    ]  # fmt: skip


def _some(mask: Mask) -> Any:
    """Positions of at most `POINTS` of the rows, always the same ones."""
    at = np.flatnonzero(mask)
    if len(at) <= POINTS:
        return at
    return np.random.default_rng(0).choice(at, POINTS, replace=False)


def _against(axes: Any, validation: Validation) -> None:
    measured = validation.table.rows[TIME].to_numpy()
    predicted = validation.predictions["predicted_us"].to_numpy()
    shown = validation.predicted
    title = f"{validation.table.family} on {validation.hardware}: {shown.sum():,} rows"
    if not against(axes, title, "µs", measured[shown], predicted[shown]):
        return
    for name, mask, colour, marker in _formats(validation):
        at = _some(mask)
        axes.plot(measured[at], predicted[at], marker, color=colour, markersize=3, alpha=0.45,
                  markeredgewidth=0, label=name, rasterized=True)  # fmt: skip
    legend = axes.legend(loc="upper left", markerscale=2, **LEGEND)
    for handle in legend.legend_handles:
        handle.set_alpha(1.0)


def _over_size(axes: Any, validation: Validation) -> None:
    table = validation.table
    axis = SCHEMAS[table.family].axis
    size = table.rows[axis].to_numpy(dtype=np.float64)
    measured = table.rows[TIME].to_numpy()
    out = validation.predictions
    error = 100 * (out["predicted_us"].to_numpy() / measured - 1)
    low = 100 * (out["lower_us"].to_numpy() / out["predicted_us"].to_numpy() - 1)
    high = 100 * (out["upper_us"].to_numpy() / out["predicted_us"].to_numpy() - 1)
    axes.set_yscale("symlog", linthresh=LINEAR_PERCENT)
    axes.set(xscale="log", xlabel=AXES[axis], ylabel="predicted − measured (% of measured)")
    axes.set_title("error over size: median, and where 90 % of rows lie", loc="left")
    axes.axhline(0, color="black", linewidth=1)
    for name, mask, colour, marker in _formats(validation):
        at = _some(mask)
        inside = np.clip(error[at], *ERROR_LIMITS)
        axes.plot(size[at], inside, marker, color=colour, markersize=2.5, alpha=0.2,
                  markeredgewidth=0, rasterized=True)  # fmt: skip
        centre, bands = _bands(size[mask], error[mask], (5.0, 50.0, 95.0))
        axes.plot(centre, bands[1], color=colour, linewidth=1.8, marker=marker, markersize=5,
                  markeredgecolor="white", label=name)  # fmt: skip
        axes.fill_between(centre, np.clip(bands[0], *ERROR_LIMITS),
                          np.clip(bands[2], *ERROR_LIMITS), color=colour, alpha=0.13)  # fmt: skip
        # Seen from the prediction the interval is where errors of the opposite sign end.
        stated = [_bands(size[mask], 1e2 * (1e2 / (1e2 + end[mask]) - 1), (50.0,))[1][0]
                  for end in (low, high)]  # fmt: skip
        for end in stated:
            axes.plot(centre, np.clip(end, *ERROR_LIMITS), color=colour, linewidth=1,
                      linestyle="--")  # fmt: skip
    axes.plot([], [], color="0.3", linewidth=1, linestyle="--", label="stated 90 % interval")
    axes.set_ylim(*ERROR_LIMITS)
    ticks = [-100, -30, -20, -10, 0, 10, 20, 30, 100, 300]
    axes.set_yticks(ticks, [f"{tick:+d}".replace("-", "−") if tick else "0" for tick in ticks])
    axes.minorticks_off()
    axes.grid(visible=True, color="0.9", linewidth=0.6)
    axes.legend(loc="upper right", **LEGEND)


def _bands(size: Any, values: Any, percentiles: tuple[float, ...]) -> tuple[Any, Any]:
    """Percentiles (p, bins) of ``values`` along ``size``, at the middle of each step."""
    if len(size) == 0:
        return np.empty(0), np.empty((len(percentiles), 0))
    edges = np.unique(np.quantile(size, np.linspace(0, 1, BINS + 1)))
    step = np.clip(np.searchsorted(edges, size, side="right") - 1, 0, max(len(edges) - 2, 0))
    kept = [step == i for i in range(max(len(edges) - 1, 1)) if (step == i).any()]
    centre = np.asarray([np.exp(np.log(size[mask]).mean()) for mask in kept])
    return centre, np.stack([np.percentile(values[mask], percentiles) for mask in kept], axis=1)
