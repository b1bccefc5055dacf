"""A simulation over time: sequences that run and wait, and the KV cache in use."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from perfmodel.serving.occupancy import Timeline
from reports.figure import COLOURS, LEGEND, save, style


def draw_timeline(timeline: Timeline, path: Path, title: str) -> None:
    """Draw two panels over the same time; the suffix decides the format.

    Raises:
        InputError: the file can't be written.
    """
    with style():
        figure = Figure(figsize=(9, 5), layout="constrained")
        FigureCanvasAgg(figure)
        above, below = figure.subplots(2, 1, sharex=True)
        time = timeline.time_s
        above.set_title(title, loc="left")
        above.step(time, timeline.running, where="post", color=COLOURS[0], label="running")
        above.step(
            time, timeline.waiting, where="post", color=COLOURS[1], linestyle="--", label="waiting"
        )
        above.set(ylabel="requests", ylim=(0, None))
        above.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, **LEGEND)
        below.step(time, 100 * timeline.kv_utilisation, where="post", color=COLOURS[2])
        below.set(xlabel="time (s)", ylabel="KV cache in use (%)", ylim=(0, 100))
        for axes in (above, below):
            axes.grid(visible=True, color="0.9", linewidth=0.6)
        save(figure, path)
