"""Memory per GPU over the context, and where it is full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from perfmodel.inference.estimate import Estimate
from perfmodel.text import whole
from perfmodel.units import GIB
from reports.case import case_line, header
from reports.figure import COLOURS, save, style
from reports.labelling import Labeller, Wanted
from reports.roofline_roofs import DASHES

SIZE = (9.0, 5.5)
PARTS = (
    ("weights", COLOURS[0], ""), ("reserved", "0.75", ""), ("activations", COLOURS[4], "//"),
    ("kv", COLOURS[5], "\\\\"),
)  # fmt: skip
NAMES = {"weights": "weights", "reserved": "reserved by engine and driver",
         "activations": "activation peak", "kv": "KV cache"}  # fmt: skip


def draw_memory(result: Estimate, path: Path, size: tuple[float, float] = SIZE) -> None:
    """Draw memory over the context; the suffix decides the format.

    ``result``'s workload holds an array of prompts (…, contexts), and perhaps a column of batches.

    Raises:
        InputError: the file can't be written.
    """
    with style():
        save(memory_figure(result, size), path)


def memory_figure(result: Estimate, size: tuple[float, float] = SIZE) -> Figure:
    """Memory over the context as a figure of ``size`` inches; call it within `style`."""
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    context, parts = parts_of(result)
    batches = np.broadcast_to(result.workload.batch, context.shape)[:, 0]
    foot = np.zeros(context.shape[1])
    names = dict(NAMES)
    if len(batches) > 1:
        names["kv"] += f" of batch {whole(float(batches[0]))}"
    for name, colour, hatch in PARTS:
        top = foot + parts[name][0] / GIB
        axes.fill_between(context[0], foot, top, facecolor=colour, hatch=hatch, edgecolor="white",
                          linewidth=0.5, label=names[name], gid=f"part/{name}")  # fmt: skip
        foot = top
    totals = sum(parts.values()) / GIB
    for number, total in enumerate(totals):
        label = f"all, batch {whole(float(batches[number]))}"
        (line,) = axes.plot(context[number], total, color="black", linewidth=1.6, label=label,
                            gid=f"total/{number}")  # fmt: skip
        if DASHES[number % len(DASHES)]:
            line.set_dashes(DASHES[number % len(DASHES)])
    capacity = result.memory.capacity_bytes / GIB
    axes.axhline(capacity, color=COLOURS[1], linewidth=2, gid="capacity")
    axes.set(xlabel="context: prompt and output tokens of a sequence", ylabel="GiB of one GPU")
    axes.set(xscale="log", xlim=(context.min(), context.max()), ylim=(0, 1.35 * capacity))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.grid(visible=True, color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    head = f"{result.model.name} on {result.hardware.name}: memory over the context"
    header(figure, head, case_line(result, size[0] - 0.2, source=False))
    figure.legend(loc="outside lower center", ncols=max(1, int(size[0] / 2.2)), fontsize=8,
                  frameon=False)  # fmt: skip
    _label(figure, axes, result, context, totals)
    return figure


def parts_of(result: Estimate) -> tuple[Any, dict[str, Any]]:
    """Context (batches, contexts), and the bytes of each part in the same shape."""
    load, memory = result.workload, result.memory
    shape = np.broadcast_shapes(np.shape(load.batch), np.shape(load.prompt))
    shape = (1, *shape)[-2:]

    def table(value: Any) -> Any:
        return np.broadcast_to(value, shape).astype(np.float64)

    parts = {
        "weights": table(memory.weights_bytes),
        "reserved": table(memory.reserved_bytes),
        "activations": table(memory.activation_bytes),
        "kv": table(memory.kv_bytes),
    }
    return table(load.prompt + load.output), parts


def _label(figure: Any, axes: Any, result: Estimate, context: Any, totals: Any) -> None:
    labeller = Labeller(figure, axes)
    capacity = result.memory.capacity_bytes / GIB
    ends = tuple(float(end) for end in axes.get_xlim())
    lines = [list(zip(x, y, strict=True)) for x, y in zip(context, totals, strict=True)]
    lines.append([(ends[0], capacity), (ends[1], capacity)])
    longest = np.broadcast_to(result.memory.max_context, context.shape)[:, 0]
    crossings = [(float(x), capacity) for x in longest if ends[0] <= x <= ends[1]]
    labeller.avoid(lines, [(at, 3.0) for at in crossings])
    for x, y in crossings:
        axes.plot(x, y, "o", color=COLOURS[1], markersize=6, markerfacecolor="white", zorder=4,
                  gid="full")  # fmt: skip
    across = np.geomspace(ends[0], ends[1], 14)[1:-1]
    wanted = [Wanted(f"capacity {capacity:.1f} GiB", [(x, capacity) for x in across], toward=90,
                     farthest=24, lines=(len(lines) - 1,))]  # fmt: skip
    wanted += [Wanted(f"{whole(x)} tokens", [(x, y)], radius=3, toward=135) for x, y in crossings]
    labeller.write(wanted)
