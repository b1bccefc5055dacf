"""Texts on axes, placed by `reports.labels` in the pixels of the finished layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from reports.labels import GAPS, Box, Label, Page, Placed, Points

PAD = 1.5
"""Points of free room around a text."""
FONT = 8.0
ROUNDS = 5
"""How often texts are placed anew where some find no room."""
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
    weight: float = 1.0
    """How much it matters that it finds room."""
    shorter: str = ""
    """What is written instead where the text finds no room."""
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
        """Write the texts that find room, the first ones first.

        Where some find none, they are placed before the others and all others again: of a few
        rounds, the one that leaves out the least that matters.
        """
        sized = [(one, self._label(one)) for one in wanted]
        order = list(range(len(sized)))
        best: dict[int, tuple[Wanted, Placed]] = {}
        for _ in range(ROUNDS):
            found = self._places(sized, order)
            if _worth(found) > _worth(best):
                best = found
            missing = [number for number in order if number not in found]
            if not missing:
                break
            order = missing + [number for number in order if number in found]
        for one, placed in best.values():
            self._draw(one, placed)
        self.left_out += [one.text for n, (one, _) in enumerate(sized) if n not in best]

    def _places(
        self, sized: Sequence[tuple[Wanted, Label]], order: Sequence[int]
    ) -> dict[int, tuple[Wanted, Placed]]:
        """A place for each text, in that order; without those that find none."""
        box = self._axes.get_window_extent()
        inside = Box(box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2)
        page = Page(inside, self._lines, self._marks, self._point)
        found: dict[int, tuple[Wanted, Placed]] = {}
        for number in order:
            one, label = sized[number]
            placed = page.place(label)
            if placed is None and one.shorter:
                one = replace(one, text=one.shorter, shorter="")
                placed = page.place(self._label(one))
            if placed is not None:
                found[number] = one, placed
        return found

    def _text(self, wanted: Wanted) -> Any:
        style = "italic" if wanted.italic else "normal"
        text = self._axes.text(
            0, 0, wanted.text, fontsize=FONT, color=wanted.colour, style=style, linespacing=1.15,
            ha="left", va="bottom", transform=None, bbox=BACK, zorder=5,
        )  # fmt: skip
        text.set_in_layout(False)
        return text

    def _label(self, wanted: Wanted) -> Label:
        """A text's size as it will be drawn, and its anchors in pixels."""
        text = self._text(wanted)
        size, pad = text.get_window_extent(self._renderer), PAD * self._point
        text.remove()
        return Label(
            width=size.width + 2 * pad,
            height=size.height + 2 * pad,
            anchors=tuple((float(x), float(y)) for x, y in self.pixels(wanted.anchors)),
            radius=wanted.radius * self._point,
            lines=wanted.lines,
            toward=wanted.toward,
            farthest=wanted.farthest,
        )

    def _draw(self, wanted: Wanted, placed: Placed) -> None:
        to_axes = self._axes.transAxes.inverted()
        text, pad = self._text(wanted), PAD * self._point
        text.set_transform(self._axes.transAxes)
        text.set_position(to_axes.transform((placed.box.x0 + pad, placed.box.y0 + pad)))
        text.set_gid("label")
        if placed.leader is not None:
            x, y = to_axes.transform(np.asarray(placed.leader)).T
            self._axes.plot(x, y, color="0.35", linewidth=0.6, transform=self._axes.transAxes,
                            zorder=4.5, gid="leader")  # fmt: skip


def _worth(found: Mapping[int, tuple[Wanted, Placed]]) -> float:
    """What texts that found room are worth together."""
    return sum(one.weight for one, _ in found.values())
