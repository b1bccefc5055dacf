"""What a larger batch costs each user and gives all of them: TPOT and throughput over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from perfmodel.inference.breakdown import largest_within
from perfmodel.inference.estimate import Estimate
from perfmodel.text import seconds
from perfmodel.units import MILLISECOND
from reports.case import case_line, header
from reports.figure import COLOURS, LEGEND, save, style
from reports.labelling import Labeller, Wanted
from reports.roofline_roofs import DASHES

SIZE = (9.0, 6.0)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def draw_batch(
    results: Sequence[Estimate], path: Path, limit_s: float | None = None,
    size: tuple[float, float] = SIZE,
) -> None:  # fmt: skip
    """Draw TPOT above throughput; the suffix decides the format.

    Args:
        results: one for each device, their workloads with an array of batches.
        path: where to.
        limit_s: the longest TPOT that is promised.
        size: inches.

    Raises:
        InputError: the file can't be written.
    """
    with style():
        save(batch_figure(results, limit_s, size), path)


def batch_figure(
    results: Sequence[Estimate], limit_s: float | None = None, size: tuple[float, float] = SIZE
) -> Figure:
    """TPOT above throughput as a figure of ``size`` inches; call it within `style`."""
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    for number, result in enumerate(results):
        _curve(above, number, result, "tpot_s", 1 / MILLISECOND)
        _curve(below, number, result, "output_tokens_per_s", 1.0)
    above.set(ylabel="TPOT (ms)", xscale="log", ylim=(0, None))
    below.set(ylabel="output tokens per second", xlabel="batch", yscale="log")
    largest = max(float(np.max(result.workload.batch)) for result in results)
    ticks = [2**power for power in range(int(np.log2(largest)) + 1)]
    below.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    below.minorticks_off()
    below.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    for axes in (above, below):
        axes.grid(visible=True, color="0.9", linewidth=0.6)
    single = len(results) == 1
    names = ", ".join(result.hardware.name for result in results)
    head = f"{results[0].model.name} on {names}: TPOT and throughput over the batch"
    header(figure, head, case_line(results[0], size[0] - 0.2, source=single))
    if limit_s is not None:
        above.axhline(limit_s / MILLISECOND, color="black", linewidth=1.2, dashes=(1.5, 1.5))
    handles = above.get_legend_handles_labels()[0]
    figure.legend(handles=handles, loc="outside lower center", ncols=max(1, int(size[0] / 3.0)),
                  fontsize=8, **LEGEND)  # fmt: skip
    _label(figure, above, results, limit_s)
    return figure


def _curve(axes: Any, number: int, result: Estimate, name: str, scale: float) -> None:
    """One device's curve with its 90 % interval, up to the largest batch that fits."""
    fits = np.ravel(result.memory.fits)
    batch = np.ravel(result.workload.batch)[fits]
    low, high = (scale * np.ravel(end)[fits] for end in result.interval(name))
    middle = scale * np.ravel(getattr(result, name))[fits]
    colour = COLOURS[number % len(COLOURS)]
    axes.fill_between(batch, low, high, color=colour, alpha=0.15, linewidth=0, gid="interval")
    for end in (low, high):
        axes.plot(batch, end, color=colour, linewidth=0.5)
    label = f"{result.hardware.name} and its 90 % interval"
    (line,) = axes.plot(batch, middle, color=colour, linewidth=1.8, label=label,
                        marker=MARKERS[number % len(MARKERS)], markersize=3.5,
                        gid=f"curve/{number}/{name}")  # fmt: skip
    dashes = DASHES[number % len(DASHES)]
    if dashes:
        line.set_dashes(dashes)


def _label(figure: Any, axes: Any, results: Sequence[Estimate], limit_s: float | None) -> None:
    labeller = Labeller(figure, axes)
    wanted: list[Wanted] = []
    lines, marks = [], []
    for result in results:
        fits = np.ravel(result.memory.fits)
        batch = np.ravel(result.workload.batch)
        tpot = np.ravel(result.tpot_s) / MILLISECOND
        lines.append(list(zip(batch[fits], tpot[fits], strict=True)))
        if not fits.all() and fits.any():
            last = int(np.flatnonzero(fits)[-1])
            most = int(np.broadcast_to(result.memory.max_sequences, fits.shape)[last])
            end = (batch[last], tpot[last])
            marks.append((end, 2.0))
            wanted.append(Wanted(f"memory is full at {most:,}", [end], radius=2, toward=120))
        kept = None if limit_s is None else largest_within(result, limit_s)
        if kept is not None and kept < batch[fits].max():
            at = (float(kept), float(tpot[batch == kept][0]))
            marks.append((at, 2.0))
            wanted.append(Wanted(f"batch {kept:,} keeps it", [at], radius=2, toward=-45))
    if limit_s is not None:
        value = limit_s / MILLISECOND
        ends = tuple(float(end) for end in axes.get_xlim())
        lines.append([(ends[0], value), (ends[1], value)])
        across = np.geomspace(ends[0], ends[1], 12)[1:-1]
        wanted.insert(0, Wanted(f"promised TPOT {seconds(limit_s)}", [(x, value) for x in across],
                                toward=90, farthest=24, lines=(len(lines) - 1,)))  # fmt: skip
    labeller.avoid(lines, marks)
    labeller.write(wanted)
