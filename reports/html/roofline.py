"""The roofline as a picture of a page: roofs that stay, marks and names that move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.inference.roofline import DeviceRoofline
from reports.html.columns import Columns, placed
from reports.html.geometry import Tick, thinned
from reports.html.grid import Grid
from reports.html.marks import Track, off_roof, said, tracks
from reports.html.names import name_columns
from reports.html.plane import LAYOUTS, Layout, Plane, dots_of, plane_of
from reports.html.roofs import Corner, Roof, corners_of, pixels_of, roof_lines, roof_of


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything of one size that doesn't move; ``slots``: how many labels do."""

    layout: Layout
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    roofs: tuple[Roof, ...]
    corners: tuple[Corner, ...]
    slots: int


@dataclass(frozen=True, slots=True)
class RooflineView:
    """Both sizes, and the operators in them."""

    tracks: tuple[Track, ...]
    pictures: tuple[Picture, ...]
    columns: Columns


def roofline_view(grid: Grid, device: DeviceRoofline, start: int) -> RooflineView | None:
    """The picture over all settings; None where no operator has a place in it."""
    found = tracks(grid, start)
    if not found:
        return None
    columns: Columns = {"off_roof": off_roof(grid)}
    for number, track in enumerate(found):
        columns |= said(number, track)
    corner = max(ridge.flops_per_byte for ridge in device.ridges)
    peak = max(line.points[-1][1] for line in roof_lines(device, 1.0, 2.0))
    pictures = []
    for layout in LAYOUTS:
        plane = plane_of(layout, found, corner=corner, peak=peak)
        picture, own = _picture(plane, device, found, grid.size)
        pictures.append(picture)
        columns |= own
    return RooflineView(found, tuple(pictures), columns)


def _picture(
    plane: Plane, device: DeviceRoofline, found: Sequence[Track], size: int
) -> tuple[Picture, Columns]:
    layout, dots = plane.layout, dots_of(plane, found)
    lines = list(roof_lines(device, plane.x.low, plane.x.high))
    picture = Picture(
        layout=layout,
        x_ticks=thinned(plane.x.ticks(""), layout.x_room),
        y_ticks=thinned(plane.y.ticks(""), layout.text * 2),
        roofs=tuple(roof_of(plane, line, dots) for line in lines),
        corners=tuple(corners_of(device, plane)),
        slots=min(layout.names, len(found)),
    )
    # What kernels reach runs close beside these: names that keep off them keep off both.
    paths = [pixels_of(plane, line) for line in lines if line.kind == "datasheet" or line.text]
    names = name_columns(plane, found, picture.roofs, picture.corners, paths, size)
    return picture, _places(plane, found) | names


def _places(plane: Plane, found: Sequence[Track]) -> Columns:
    columns: Columns = {}
    for number, track in enumerate(found):
        columns[f"mark.{number}.{plane.layout.name}"] = [
            "" if m is None else placed(*plane.spot(m.intensity, m.flops_per_s),
                                        plane.radius(m.share))
            for m in track.marks
        ]  # fmt: skip
    return columns
