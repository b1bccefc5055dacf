"""Placement by itself: what is drawn never overlaps, whatever the page."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.labels import Box, Label, Page, sample

INSIDE = Box(0, 0, 800, 600)
POINT = 2.0
spot = st.tuples(st.floats(20, 780), st.floats(20, 580))


def page(lines=(), marks=()):
    return Page(INSIDE, [np.asarray(line, dtype=float) for line in lines], list(marks), POINT)


def mark(at, radius=6.0):
    return Box(at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius)


@given(
    spots=st.lists(spot, min_size=1, max_size=14),
    sizes=st.lists(st.tuples(st.floats(15, 220), st.floats(10, 60)), min_size=14, max_size=14),
    lines=st.lists(st.lists(spot, min_size=2, max_size=4), max_size=3),
)
@settings(max_examples=40, deadline=None)
def test_what_is_placed_overlaps_nothing_and_stays_inside(spots, sizes, lines):
    marks = [mark(at) for at in spots]
    on = page(lines, marks)
    wanted = [Label(w, h, (at,), radius=6.0) for at, (w, h) in zip(spots, sizes, strict=False)]
    placed = [found for found in map(on.place, wanted) if found is not None]
    for number, one in enumerate(placed):
        assert INSIDE.holds(one.box)
        assert not any(one.box.overlaps(other.box) for other in placed[number + 1 :])
        assert not any(one.box.overlaps(other) for other in marks)
    for number, one in enumerate(placed):
        if one.leader is not None:  # drawn before the later ones, which keep clear of it
            line = sample(np.asarray(one.leader), 1.0)
            for other in placed:
                box = other.box
                inside = (line[:, 0] > box.x0 + 4) & (line[:, 0] < box.x1 - 4)
                inside &= (line[:, 1] > box.y0 + 4) & (line[:, 1] < box.y1 - 4)
                assert not inside.any(), number


def test_the_same_page_gives_the_same_places():
    spots = [(100 + 60 * i, 300 + 20 * i) for i in range(8)]
    runs = []
    for _ in range(2):
        on = page(marks=[mark(at) for at in spots])
        runs.append([on.place(Label(90, 20, (at,), radius=6.0)) for at in spots])
    assert runs[0] == runs[1]
    assert None not in runs[0]


def test_a_lonely_label_stands_beside_its_mark_where_it_would_rather():
    at = (400.0, 300.0)
    for toward, holds in (
        (0, lambda b: b.x0 > at[0]), (180, lambda b: b.x1 < at[0]),
        (90, lambda b: b.y0 > at[1]), (-90, lambda b: b.y1 < at[1]),
    ):  # fmt: skip
        found = page(marks=[mark(at)]).place(Label(80, 20, (at,), radius=6.0, toward=toward))
        assert holds(found.box)
        assert found.leader is None


def test_a_label_doesnt_stand_where_it_would_name_another_mark():
    mine, other = (400.0, 300.0), (450.0, 300.0)
    found = page(marks=[mark(mine), mark(other)]).place(Label(30, 16, (mine,), radius=6.0))
    near = [np.hypot(*np.subtract(found.box.nearest(*at), at)) for at in (mine, other)]
    assert near[0] < near[1]


def test_a_label_leaves_a_line_free_where_it_can():
    at = (400.0, 300.0)
    line = [(0.0, 310.0), (800.0, 310.0)]
    found = page([line], [mark(at)]).place(Label(80, 12, (at,), radius=6.0, toward=90))
    assert found.box.y0 >= 310 or found.box.y1 <= 310


def test_a_line_is_named_where_no_mark_hides_it():
    line = [(0.0, 300.0), (800.0, 300.0)]
    hidden, free = (200.0, 300.0), (600.0, 300.0)
    on = page([line], [mark(hidden, 30.0)])
    found = on.place(Label(60, 12, (hidden, free), lines=(0,), farthest=12))
    assert abs((found.box.x0 + found.box.x1) / 2 - free[0]) < 60


def test_what_finds_no_room_is_left_out():
    full = page(marks=[INSIDE])
    assert full.place(Label(40, 12, ((400.0, 300.0),))) is None
    # Wider than the page.
    assert page().place(Label(900, 12, ((400.0, 300.0),))) is None


@pytest.mark.parametrize("step", [1.0, 5.0])
def test_samples_are_no_farther_apart_than_the_step(step):
    line = sample(np.array([[0.0, 0.0], [30.0, 40.0], [30.0, 90.0]]), step)
    assert tuple(line[0]) == (0, 0)
    assert tuple(line[-1]) == (30, 90)
    gaps = np.hypot(*np.diff(line, axis=0).T)
    assert gaps.max() <= 2 * step
