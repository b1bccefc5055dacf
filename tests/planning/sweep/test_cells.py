"""Cells tile the numbers, and bits find the one that a number lies in."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.planning.sweep.cells import CellOf, Cells, first_cells

ENDS = st.tuples(st.integers(0, 2**22), st.integers(0, 2**22)).map(sorted)


def found_by_search(cells, x):
    return int(np.flatnonzero((cells.first <= x) & (x <= cells.last))[0])


def assert_tiles(cells):
    assert np.all(cells.first <= cells.last)
    assert np.all(cells.first[1:] == cells.last[:-1] + 1)


@given(ENDS)
def test_first_cells_cover_what_is_asked_for_without_gaps(ends):
    low, high = ends
    cells = first_cells(low, high)
    assert_tiles(cells)
    assert cells.first[0] <= low
    assert cells.last[-1] >= high
    # Edges of tiles and blocks (multiples of 128) are edges of cells.
    assert np.all((cells.size < 128) | (cells.first % 128 == 0))


@given(ENDS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_the_cell_of_a_number_whatever_was_split(ends, seed):
    random, cells = np.random.default_rng(seed), first_cells(*ends)
    for _ in range(4):
        which = (random.random(len(cells.first)) < 0.4) & cells.can_split()
        parts = [cells.at(~which), cells.at(which).split()]
        first = np.concatenate([part.first for part in parts])
        last = np.concatenate([part.last for part in parts])
        order = np.argsort(first)
        cells = Cells(first[order], last[order])
        assert_tiles(cells)
    # One more edge anywhere inside a bucket: those of cells that can't be split.
    stuck = ~cells.can_split() & (cells.size > 1)
    inside = cells.first + random.integers(0, np.maximum(cells.size - 1, 1))
    cut = cells.at(stuck).cut_after(inside[stuck])
    first = np.concatenate([cells.first[~stuck], cut.first])
    last = np.concatenate([cells.last[~stuck], cut.last])
    order = np.argsort(first)
    cells = Cells(first[order], last[order])
    assert_tiles(cells)
    cell_of = CellOf(cells)
    edges = np.concatenate([cells.first, cells.last])
    inner = random.integers(ends[0], ends[1] + 1, 50)
    for x in [*edges[:200], *inner]:
        assert cell_of(np.array([float(x)]))[0] == found_by_search(cells, x), x
        if x + 1 <= cells.last[-1]:  # a number between two belongs to the lower one's cell
            assert cell_of(np.array([x + 0.5]))[0] == found_by_search(cells, x), x


def test_outside_is_the_nearest_cell():
    cell_of = CellOf(first_cells(1000, 5000))
    last = len(first_cells(1000, 5000).first) - 1
    assert cell_of(np.array([0.0, -3.0, 1e9])).tolist() == [0, 0, last]
