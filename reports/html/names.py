"""The names of a roofline's largest marks, where they cover nothing, in every setting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from reports.html.columns import Columns, placed
from reports.html.geometry import path
from reports.html.marks import Track
from reports.html.plane import LETTER, Plane
from reports.html.roofs import Corner, Roof
from reports.labels import Box, Label, Page

TOWARD = {"prefill": 90.0, "decode": 60.0}
"""Degrees from the right, downwards: there is room under the flat roof and under the slanted."""
FARTHEST = 54.0
"""Pixels from its mark beyond which a name is rather left out."""
LABELLED = 0.02
"""Share of a phase's time from which an operator is named."""


def name_columns(
    plane: Plane,
    found: Sequence[Track],
    roofs: Sequence[Roof],
    corners: Sequence[Corner],
    lines: Sequence[list[tuple[float, float]]],
    size: int,
) -> Columns:
    """Names of the largest marks in each setting, where they cover nothing."""
    layout = plane.layout
    slots = min(layout.names, len(found))
    columns: Columns = {}
    drawn = [np.asarray(line) for line in lines]
    fixed = [box for roof in roofs for box in _text_boxes(roof, layout.text)]
    fixed += [_foot(corner, layout.text) for corner in corners]
    for setting in range(size):
        names = _placed(plane, found, setting, fixed, drawn)[:slots]
        for slot in range(slots):
            text, at, leader = names[slot] if slot < len(names) else ("", "", "")
            key = f"{layout.name}.{slot}"
            columns.setdefault(f"name.{key}", []).append(text)
            columns.setdefault(f"place.{key}", []).append(at)
            columns.setdefault(f"leader.{key}", []).append(leader)
    return columns


def _placed(
    plane: Plane,
    found: Sequence[Track],
    setting: int,
    fixed: Sequence[Box],
    lines: Sequence[NDArray[np.float64]],
) -> list[tuple[str, str, str]]:
    """Text, place and leader of each name in one setting."""
    layout = plane.layout
    spots = []
    for track in found:
        mark = track.marks[setting]
        if mark is not None:
            x, y = plane.spot(mark.intensity, mark.flops_per_s)
            spots.append((track, x, y, plane.radius(mark.share)))
    inside = Box(layout.left + 2, layout.top, layout.right, layout.bottom - 2)
    marks = [Box(x - r, y - r, x + r, y + r) for _, x, y, r in spots]
    page = Page(inside, lines, [*marks, *fixed], 1.0)
    names: list[tuple[str, str, str]] = []
    for track, x, y, r in sorted(spots, key=lambda spot: -spot[0].share(setting)):
        if track.share(setting) < LABELLED or len(names) == layout.names:
            break
        width = LETTER * layout.text * len(track.name)
        label = Label(
            width, layout.text, ((x, y),), r, toward=TOWARD[track.phase], farthest=FARTHEST
        )
        spot = page.place(label)
        if spot is not None:
            middle = (spot.box.x0 + spot.box.x1) / 2, (spot.box.y0 + spot.box.y1) / 2
            leader = "" if spot.leader is None else path(spot.leader)
            names.append((track.name, placed(*middle), leader))
    return names


def _text_boxes(roof: Roof, text: float) -> Iterator[Box]:
    """Boxes that a roof's text covers, slanted or not."""
    half = LETTER * text * len(roof.text) / 2
    turn = math.radians(roof.angle)
    pieces = max(1, int(2 * half / text)) if roof.angle else 1
    for piece in range(pieces if roof.text else 0):
        along = half * ((2 * piece + 1) / pieces - 1)
        x, y = roof.x + along * math.cos(turn), roof.y + along * math.sin(turn)
        wide = half / pieces + (text / 4 if roof.angle else 0)
        yield Box(x - wide, y - text * 0.6, x + wide, y + text * 0.6)


def _foot(corner: Corner, text: float) -> Box:
    """The box of a ridge point's text, which begins beside its line."""
    wide = LETTER * text * len(corner.text)
    return Box(
        corner.x, corner.text_y - text * 0.6, corner.x + wide + 8, corner.text_y + text * 0.6
    )
