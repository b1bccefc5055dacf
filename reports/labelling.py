"""Texts on axes, placed by `reports.labels` in the pixels of the finished layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from reports.labels import GAPS, Box, Label, Page, Points

PAD = 1.5
"""Points of free room around a text."""
FONT = 8.0
BACK = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A text that wants a place at one of its anchors, in data coordinates."""

    text: str
    anchors: Sequence[Point]
    radius: float = 0.0
    """Of the mark that it names, in points."""
    colour: str = "black"
    toward: float | None = None
    farthest: float = GAPS[-1]
    italic: bool = False
    lines: tuple[int, ...] = ()
    """The numbers of the lines that it names, of those to avoid."""


class Placeable(Protocol):
    """A mark with a place."""

    @property
    def at(self) -> Point:
        """In data coordinates."""


Mark = TypeVar("Mark", bound=Placeable)


class Labeller:
    """Places texts on one axes of a figure whose layout is final."""

    def __init__(self, figure: Any, axes: Any) -> None:
        """Lay the figure out, so that data coordinates have their pixels."""
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # texts inside the axes mustn't move them any more
        self._axes = axes
        self._renderer = figure.canvas.get_renderer()
        self._point = figure.dpi / 72
        self._lines: list[Points] = []
        self._marks: list[Box] = []
        self.left_out: list[str] = []
        """Texts that found no room."""

    def pixels(self, points: Sequence[Point]) -> Points:
        """(n, 2) pixels of data coordinates."""
        out: Points = self._axes.transData.transform(np.asarray(points, dtype=np.float64))
        return out

    def avoid(self, lines: Iterable[Sequence[Point]], marks: Iterable[tuple[Point, float]]) -> None:
        """Note lines better not covered, and round marks (radius in points) that no text covers."""
        self._lines += [self.pixels(line) for line in lines]
        for at, radius in marks:
            (x, y), r = self.pixels([at])[0], radius * self._point
            self._marks.append(Box(x - r, y - r, x + r, y + r))

    def groups(self, marks: Sequence[Mark], together: float) -> list[list[Mark]]:
        """Marks that lie within ``together`` points of each other, in the order given."""
        if not marks:
            return []
        at = self.pixels([mark.at for mark in marks])
        near = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1)) <= together * self._point
        left, out = list(range(len(marks))), []
        while left:
            group, grown = {left[0]}, True
            while grown:
                more = {j for i in group for j in left if near[i, j]}
                grown = not more <= group
                group |= more
            out.append([marks[i] for i in sorted(group)])
            left = [i for i in left if i not in group]
        return out

    def write(self, wanted: Sequence[Wanted]) -> None:
        """Write the texts that find room, the first ones first."""
        box = self._axes.get_window_extent()
        inside = Box(box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2)
        page = Page(inside, self._lines, self._marks, self._point)
        for one in wanted:
            self._write(page, one)

    def _write(self, page: Page, wanted: Wanted) -> None:
        style = "italic" if wanted.italic else "normal"
        text = self._axes.text(
            0, 0, wanted.text, fontsize=FONT, color=wanted.colour, style=style, linespacing=1.15,
            ha="left", va="bottom", transform=None, bbox=BACK, zorder=5,
        )  # fmt: skip
        text.set_in_layout(False)
        size, pad = text.get_window_extent(self._renderer), PAD * self._point
        label = Label(
            width=size.width + 2 * pad,
            height=size.height + 2 * pad,
            anchors=tuple((float(x), float(y)) for x, y in self.pixels(wanted.anchors)),
            radius=wanted.radius * self._point,
            lines=wanted.lines,
            toward=wanted.toward,
            farthest=wanted.farthest,
        )
        placed = page.place(label)
        if placed is None:
            text.remove()
            self.left_out.append(wanted.text)
            return
        to_axes = self._axes.transAxes.inverted()
        text.set_transform(self._axes.transAxes)
        text.set_position(to_axes.transform((placed.box.x0 + pad, placed.box.y0 + pad)))
        text.set_gid("label")
        if placed.leader is not None:
            x, y = to_axes.transform(np.asarray(placed.leader)).T
            self._axes.plot(x, y, color="0.35", linewidth=0.6, transform=self._axes.transAxes,
                            zorder=4.5, gid="leader")  # fmt: skip
