"""The roofline: each operator of prefill and decode under the roofs of one or several devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from perfmodel.inference.roofline import Measured, Roofline
from perfmodel.text import percent, si
from reports.case import case_line, header
from reports.figure import LEGEND, save, style
from reports.labelling import Labeller, Wanted
from reports.roofline_roofs import DASHES, OTHER, Frame, Line, colour_of
from reports.roofline_scene import FILLS, FULL, PHASES, SHAPES, Dot, Scene, scene_of

SIZE = (9.0, 6.5)
CORNER = 4.0
"""Points across a ridge point's mark."""
NAMED = 0.02
"""Share of its phase's time from which an operator is named."""
TOGETHER = 11.0
"""Points between marks up to which one label names them together."""
CALLS = ("x", "+", "1", "2", "3", "4", "|")
"""Measured calls by family."""
SAMPLE = 0.1
"""The share whose mark the legend shows."""
LARGE = 0.08
"""Share from which an operator is named before anything else."""


def draw_roofline(
    result: Roofline,
    path: Path,
    measured: Sequence[Measured] = (),
    size: tuple[float, float] = SIZE,
) -> None:
    """Draw a roofline; the suffix decides the format.

    Raises:
        InputError: the file can't be written.
    """
    with style():
        save(roofline_figure(result, measured, size), path)


def roofline_figure(
    result: Roofline, measured: Sequence[Measured] = (), size: tuple[float, float] = SIZE
) -> Figure:
    """A roofline as a figure of ``size`` inches; call it within `style`."""
    scene = scene_of(result, measured, size)
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    _frame(axes, scene.frame)
    _header(figure, result, size[0])
    for line in scene.lines:
        _line(axes, line)
    for number, (family, points) in enumerate(scene.measured):
        x, y = np.asarray(points).T
        axes.plot(x, y, CALLS[number % len(CALLS)], color="0.45", markersize=4, alpha=0.6,
                  markeredgewidth=0.8, zorder=2.5, gid=f"measured/{family}")  # fmt: skip
    for track in scene.paths:
        if track[-1].mark.share >= NAMED or track[0].mark.share >= NAMED:
            x, y = np.asarray([dot.at for dot in track]).T
            axes.plot(x, y, color=track[0].colour, linewidth=0.8, alpha=0.7, zorder=3)
    for corner in scene.corners:
        axes.plot(corner.x, corner.y, "D", color=corner.colour, markersize=CORNER, zorder=3.5,
                  markerfacecolor="white")  # fmt: skip
    for dot in sorted(scene.dots, key=lambda d: -d.area):
        _dot(axes, dot)
    _legend(figure, result, scene, size)
    _label(figure, axes, result, scene)
    return figure


def _frame(axes: Any, frame: Frame) -> None:
    axes.set(xscale="log", yscale="log", xlim=(frame.left, frame.right),
             ylim=(frame.foot, frame.top))  # fmt: skip
    axes.set_xlabel("arithmetic intensity (FLOP per byte of device memory)")
    axes.set_ylabel("FLOP/s of one device")
    axes.yaxis.set_major_formatter(lambda y, _: _prefix(y))
    powers = range(math.ceil(math.log10(frame.main)), math.floor(math.log10(frame.right)) + 1)
    axes.set_xticks([10.0**power for power in powers], [f"{10.0**power:,g}" for power in powers])
    axes.tick_params(which="minor", length=0)
    axes.grid(visible=True, color="0.92", linewidth=0.6)
    axes.axvspan(frame.left, frame.main, color="0.955", zorder=0)
    middle = float(np.sqrt(frame.left * frame.main))
    axes.annotate("no FLOPs", (middle, 0), (0, -6), xycoords=("data", "axes fraction"),
                  textcoords="offset points", ha="center", va="top", fontsize=8)  # fmt: skip


def _prefix(value: float) -> str:
    number, _, unit = si(value, "").partition(" ")
    return f"{float(number.replace(',', '')):g} {unit}".rstrip()


def _header(figure: Any, result: Roofline, width: float) -> None:
    names = ", ".join(device.hardware.name for device in result.devices)
    single = len(result.devices) == 1
    case = case_line(result.devices[0].estimate, width - 0.2, source=single)
    header(figure, f"{result.model.name} on {names}: operators under the roof", case)


def _line(axes: Any, line: Line) -> None:
    if line.width:
        x, y = np.asarray(line.points).T
        (drawn,) = axes.plot(x, y, color=line.colour, linewidth=line.width, zorder=2,
                             gid=line.name, solid_joinstyle="miter")  # fmt: skip
        if line.dashes:
            drawn.set_dashes(line.dashes)


def _dot(axes: Any, dot: Dot) -> None:
    x, y = dot.at
    axes.plot(x, y, dot.shape, gid=dot.name, zorder=4, clip_on=False, **_look(dot.colour, dot.fill),
              markersize=dot.size)  # fmt: skip


def _look(colour: str, fill: str) -> dict[str, Any]:
    """A mark that shows what lies under it, with an edge that shows it on anything."""
    hollow = fill == "none"
    return {
        "color": colour,
        "fillstyle": "full" if hollow else fill,
        "markerfacecolor": "white" if hollow else colour,
        "markerfacecoloralt": "white",
        "markeredgecolor": colour if hollow or fill != "full" else "white",
        "markeredgewidth": 1.0 if hollow else 0.6,
        "alpha": 0.85,
    }


def _legend(figure: Any, result: Roofline, scene: Scene, size: tuple[float, float]) -> None:
    single = len(result.devices) == 1
    handles = []
    for number, phase in enumerate(PHASES):
        colour = colour_of(number) if single else "black"
        name = phase if phase == "prefill" else "decode step"
        handles.append(_sample(SHAPES[phase], colour, 7, name))
    full = FULL * size[0] * size[1] * 72**2
    diameter = float(np.sqrt(SAMPLE * full * 4 / np.pi))
    text = f"area: {percent(SAMPLE)} of its phase's time"
    handles.append(_sample("o", "0.6", diameter, text))
    if not single:
        for number, device in enumerate(result.devices):
            line = _sample(SHAPES["prefill"], colour_of(number), 7, device.hardware.name,
                           FILLS[number % len(FILLS)])  # fmt: skip
            line.set(linestyle=(0, DASHES[number]) if DASHES[number] else "-", linewidth=1.5)
            handles.append(line)
    grey = "black" if single else "0.3"
    handles.append(Line2D([], [], color=grey, linewidth=2, label="roof of the datasheet"))
    if any(line.name.startswith("other") for line in scene.lines):
        handles.append(Line2D([], [], color=OTHER, linewidth=1, label="formats not used here"))
    if any(c.attained is not None for d in result.devices for c in d.ceilings if c.used):
        handles.append(Line2D([], [], color=grey, linewidth=0.9, label="attainable roof"))
    for number, (family, _) in enumerate(scene.measured):
        marker = CALLS[number % len(CALLS)]
        handles.append(Line2D([], [], color="0.45", marker=marker, linestyle="", markersize=5,
                              label=f"measured {family}"))  # fmt: skip
    columns = max(2, int(size[0] / 2.1))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8,
                  **LEGEND)  # fmt: skip


def _sample(shape: str, colour: str, size: float, label: str, fill: str = "full") -> Line2D:
    return Line2D([], [], marker=shape, linestyle="", markersize=size, label=label,
                  **_look(colour, fill))  # fmt: skip


def _label(figure: Any, axes: Any, result: Roofline, scene: Scene) -> None:
    labeller = Labeller(figure, axes)
    lines: list[Sequence[tuple[float, float]]] = [line.points for line in scene.lines if line.width]
    lines += [(point, point) for _, points in scene.measured for point in points]
    labeller.avoid(lines,
                   [(dot.at, dot.size / 2) for dot in scene.dots]
                   + [((corner.x, corner.y), CORNER / 2) for corner in scene.corners])  # fmt: skip
    operators = _operator_texts(labeller, result, scene)
    first = [text for share, text in operators if share >= LARGE]
    then = [text for share, text in operators if share < LARGE]
    paths = _path_texts(result, scene)
    # What has the fewest places to stand comes before what has more.
    labeller.write([*first, *paths, *_corner_texts(scene), *_roof_texts(scene), *then])


def _roof_texts(scene: Scene) -> Iterable[Wanted]:
    drawn = [line.name for line in scene.lines if line.width]
    for line in scene.lines:
        if line.text:
            start, end = (np.log(np.asarray(line.points[i])) for i in line.along)
            shares = np.linspace(0.04, 0.96, 16)[:, None]
            anchors = [tuple(p) for p in np.exp(start + shares * (end - start))]
            flat = line.points[line.along[0]][1] == line.points[line.along[1]][1]
            own = tuple(i for i, name in enumerate(drawn) if name.startswith(line.of))
            toward = 90 if flat else 135 if line.name.endswith("L2") else -45
            yield Wanted(line.text, anchors, colour=_ink(line.colour), toward=toward, farthest=85,
                         lines=own, shorter=line.text.partition(" (")[0],
                         weight=4)  # fmt: skip


def _corner_texts(scene: Scene) -> Iterable[Wanted]:
    for corner in scene.corners:
        if corner.text:
            yield Wanted(corner.text, [(corner.x, corner.y)], radius=CORNER / 2, toward=150,
                         colour=_ink(corner.colour), farthest=68, weight=2)  # fmt: skip


def _ink(colour: str) -> str:
    """A colour dark enough for small text on white."""
    red, green, blue = to_rgb(colour)
    return str(to_hex((0.7 * red, 0.7 * green, 0.7 * blue)))


def _operator_texts(
    labeller: Labeller, result: Roofline, scene: Scene
) -> list[tuple[float, Wanted]]:
    """Texts with their operators' share, the largest first.

    One for marks that lie together, of the first device and the last setting.
    """
    last = len(result.settings) - 1
    plain = len(result.devices) == 1 and not last
    wanted = []
    for phase in PHASES:
        own = [d for d in scene.dots if d.device == 0 and d.mark.phase == phase
               and d.mark.setting == last and d.mark.share >= NAMED]  # fmt: skip
        own.sort(key=lambda dot: -dot.mark.share)
        for group in labeller.groups(own, TOGETHER):
            head = group[0]
            lines = [f"{d.mark.name} {percent(d.mark.share)}" if plain else d.mark.name
                     for d in group]  # fmt: skip
            share = sum(d.mark.share for d in group)
            names = list(dict.fromkeys(lines))
            shorter = f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else ""
            wanted.append((share, Wanted(
                "\n".join(names), [head.at], radius=head.size / 2, shorter=shorter,
                toward=-60 if phase == "decode" else 200, weight=1 + 10 * share,
            )))  # fmt: skip
    return sorted(wanted, key=lambda pair: -pair[0])


def _path_texts(result: Roofline, scene: Scene) -> Iterable[Wanted]:
    """The path's values along an operator of each phase that moves far and takes time."""
    if result.path is None:
        return
    name = result.path.replace("_", " ")
    for phase in PHASES:
        tracks = [t for t in scene.paths if t[0].device == 0 and t[0].mark.phase == phase
                  and t[0].mark.on_roof]  # fmt: skip
        if tracks:
            track = max(tracks, key=_journey)
            for dot, value in zip(track, result.settings, strict=True):
                yield Wanted(f"{name} {value:,}", [dot.at], radius=dot.size / 2, toward=135,
                             colour="0.3", italic=True, farthest=36)  # fmt: skip


def _journey(track: tuple[Dot, ...]) -> float:
    """How far an operator moves along the roofs, for its share of the time."""
    x = np.log([dot.at[0] for dot in track])
    return float(np.ptp(x)) * max(dot.mark.share for dot in track)
