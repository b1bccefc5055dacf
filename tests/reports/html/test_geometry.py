"""Axes and ticks, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.html.geometry import Axis, Tick, path, short, thinned, widened

VALUES = st.floats(1e-9, 1e15)


def test_a_log_axis_is_even_in_decades():
    axis = Axis(1, 10_000, 100, 500)
    assert axis.at(1) == 100
    assert axis.at(100) == pytest.approx(300)  # two of four decades
    assert axis.at(10_000) == pytest.approx(500)
    assert axis.at(1e5) == pytest.approx(600)  # beyond the end


def test_an_upright_axis_begins_below():
    axis = Axis(0, 80, 200, 40, log=False)
    assert axis.at(0) == 200
    assert axis.at(20) == 160  # a quarter of 160 pixels up
    assert axis.at(80) == 40


def test_ticks_of_few_decades_are_ones_twos_and_fives():
    assert [t.label for t in Axis(0.003, 0.06, 0, 1).ticks("s")] == [
        "5 ms",
        "10 ms",
        "20 ms",
        "50 ms",
    ]
    assert [t.label for t in Axis(0.5, 5e4, 0, 1).ticks("")] == ["1", "10", "100", "1k", "10k"]


@given(low=VALUES, factor=st.floats(1.5, 1e9))
def test_ticks_lie_on_their_axis_in_order(low, factor):
    ticks = Axis(low, low * factor, 30, 930).ticks("s")
    at = [tick.at for tick in ticks]
    assert at == sorted(at)
    assert all(29.9 <= x <= 930.1 for x in at)


def test_thinned_ticks_keep_their_distance():
    ticks = [Tick(x, str(x)) for x in (0, 10, 25, 30, 60)]
    assert [tick.at for tick in thinned(ticks, 20)] == [0, 25, 60]


def test_widened_ends_hold_all_values_and_leave_out_what_has_no_logarithm():
    assert widened([2.0, 8.0, 0.0, float("nan")], by=2) == (1.0, 16.0)


def test_short_values_take_the_prefix_that_their_digits_round_to():
    assert short(999.9e9, "B/s") == "1 TB/s"
    assert short(2.5e-6, "s") == "2.5 µs"


def test_a_path_of_no_point_is_empty():
    assert path([]) == ""
    assert path([(0, 0), (1, 0), (1, 1)], closed=True) == "M0 0L1 0L1 1Z"
