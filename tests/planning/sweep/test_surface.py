"""Lines in cells against the functions that they stand for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.planning.sweep.surface import Surface

ROWS = np.array([1.0, 3.0, 8.0])


def stairs(n, x):
    """A fixed part, a slope, and a step of 3 % of the whole for each 128 tokens."""
    return 1.0 + 0.001 * n * x + 0.03 * np.floor(x / 128)


def read(surface, n, x):
    n, x = np.broadcast_arrays(np.asarray(n, float), np.asarray(x, float))
    n, x = np.ascontiguousarray(n), np.ascontiguousarray(x)
    return surface.values(surface.rows(n), x)


def summed(surface, n, start, stop):
    """Over the whole numbers start … stop."""
    rows = surface.rows(np.array([float(n)]))
    return surface.sums(rows, np.array([start - 0.5]), np.array([stop + 0.5]))[0]


def test_a_line_is_itself_and_its_sums_are_exact():
    surface = Surface(lambda n, x: 2 * n + 3 * x, ROWS, 1, 5000, tolerance=1e-3)
    x = np.arange(1, 5001)
    for n in ROWS:
        assert read(surface, n, x) == pytest.approx(2 * n + 3 * x, rel=1e-12)
    # 17 … 4,000: 3,984 numbers; their sum is 3,984·(17 + 4,000)/2
    assert summed(surface, 8, 17, 4000) == pytest.approx(3984 * 16 + 3 * 3984 * 4017 / 2, rel=1e-12)


def test_stairs_whose_edges_are_those_of_blocks():
    surface = Surface(stairs, ROWS, 1, 20_000, tolerance=1e-3)
    x = np.arange(1, 20_001, 7)
    for n in ROWS:
        assert read(surface, n, x) == pytest.approx(stairs(n, x), rel=3e-3)


@given(st.integers(2, 200_000), st.floats(0.02, 2.0))
@settings(max_examples=30, deadline=None)
def test_one_jump_anywhere_is_found(edge, height):
    def price(n, x):
        return 1.0 + 1e-5 * x + np.where(x >= edge, height, 0.0) + 0.0 * n

    surface = Surface(price, np.ones(1), 1, 250_000, tolerance=1e-3)
    x = np.unique(np.clip(np.array([1, edge - 2, edge - 1, edge, edge + 1, 250_000]), 1, 250_000))
    assert read(surface, 1, x) == pytest.approx(price(1, x), rel=1e-3)


def test_sums_of_a_curve_are_near_the_sums_of_its_numbers():
    def price(n, x):
        return np.sqrt(x) * n + 5

    surface = Surface(price, ROWS, 1, 100_000, tolerance=1e-3)
    for start, stop in ((1, 1), (5, 9), (100, 3000), (777, 99_999)):
        exact = price(3.0, np.arange(start, stop + 1)).sum()
        assert summed(surface, 3, start, stop) == pytest.approx(exact, rel=1e-3)


def test_what_is_compared_with_the_whole_may_be_coarser():
    def wavy(n, x):
        return 1 + 0.01 * np.sin(x / 50) + 0 * n

    alone = Surface(wavy, np.ones(1), 1, 4000, tolerance=1e-3)
    part = Surface(wavy, np.ones(1), 1, 4000, lambda n, x: 99.0 + 0 * n * x, tolerance=1e-3)
    assert part._cells < alone._cells


def test_many_sequences_lie_between_chosen_rows():
    rows = np.arange(1.0, 3001.0)

    def price(n, x):
        return 0.1 + n**0.9 * (1 + 0.01 * x)

    surface = Surface(price, rows, 1, 2000, tolerance=1e-3, exact_to=64)
    n = np.array([1.0, 63, 64, 65, 700, 1234, 2999, 3000])[:, None]
    x = np.array([1.0, 100, 2000])
    assert read(surface, n, x) == pytest.approx(price(n, x), rel=3e-3)
    assert read(surface, n[:3], x) == pytest.approx(price(n[:3], x), rel=1e-3)
    assert len(surface._places.values) < 300


@pytest.mark.parametrize("width", [48, 64, 128])
@pytest.mark.parametrize("offset", [0, 1, 2])
def test_even_stairs_are_not_taken_for_a_line(width, offset):
    """Two equal steps in a cell put its middle on the line between its ends."""

    def price(n, x):
        return 1.0 + 0.006 * np.floor((x + offset) / width) + 0 * n

    surface = Surface(price, np.ones(1), 1, 5000, tolerance=2e-3)
    x = np.arange(1, 5001)
    assert read(surface, 1, x) == pytest.approx(price(1, x), rel=5e-3)  # steps are of 6e-3
