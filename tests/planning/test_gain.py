"""The ratio of two estimates and its interval."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.planning.gain import Ratio, ratio, touched

SECONDS = st.floats(1e-6, 10.0)
SPREAD = st.floats(1.0, 5.0)
TERM = st.builds(
    lambda name, time, low, high: (name, time, time / low, time * high, "fitted"),
    st.sampled_from("abcdef"), SECONDS, SPREAD, SPREAD,
)  # fmt: skip
TERMS = st.lists(TERM, min_size=1, max_size=6)


def total(terms):
    return math.fsum(term[1] for term in terms)


@given(TERMS)
def test_without_a_change_it_is_exact(terms):
    assert ratio(terms, list(reversed(terms)), 1.0) == Ratio(1.0, 1.0, 1.0)
    assert touched(terms, terms).before == 0


@given(TERMS, TERMS, TERMS)
def test_it_holds_its_value_and_is_no_wider_than_all_ends_at_once(shared, gone, come):
    before, after = shared + gone, shared + come
    value = total(after) / total(before)
    made = ratio(before, after, value)
    assert made.low <= value * (1 + 1e-12)
    assert made.high >= value * (1 - 1e-12)
    widest = math.fsum(t[3] for t in after) / math.fsum(t[2] for t in before)
    narrowest = math.fsum(t[2] for t in after) / math.fsum(t[3] for t in before)
    assert made.high <= widest * (1 + 1e-9)
    assert made.low >= narrowest * (1 - 1e-9)


def test_by_hand():
    # common 1 s ±0; 1 s (0.5 to 2) becomes 0.5 s (0.25 to 1): 1.5 / 2 = 0.75.
    # After alone at its ends: (1 + 1)/2 = 1 and (1 + 0.25)/2 = 0.625; before alone at its ends:
    # 1.5/1.5 = 1 and 1.5/3 = 0.5. Logs over 0.75: up √2·ln(4/3), down √(ln²(0.8333) + ln²(0.6667)).
    same = ("a", 1.0, 1.0, 1.0, "fitted")
    made = ratio(
        [same, ("b", 1.0, 0.5, 2.0, "fitted")], [same, ("b", 0.5, 0.25, 1.0, "fitted")], 0.75
    )
    assert made.value == 0.75
    assert made.high == pytest.approx(0.75 * math.exp(math.sqrt(2) * math.log(4 / 3)))
    down = math.hypot(math.log(0.625 / 0.75), math.log(0.5 / 0.75))
    assert made.low == pytest.approx(0.75 * math.exp(-down))


def test_what_stays_narrows_the_interval():
    gone, come = ("x", 1.0, 0.5, 2.0, "fitted"), ("x", 0.5, 0.25, 1.0, "fitted")
    stays = ("y", 20.0, 10.0, 40.0, "fitted")
    alone = ratio([gone], [come], 0.5)
    beside = ratio([gone, stays], [come, stays], 20.5 / 21)
    assert beside.high / beside.low < 1.2 < alone.high / alone.low


def test_a_ratio_turned_round():
    assert Ratio(2.0, 1.0, 4.0).inverse == Ratio(0.5, 0.25, 1.0)
    assert Ratio(2.0, 1.0, 4.0).times(2) == Ratio(4.0, 2.0, 8.0)


def test_shares_of_what_changes():
    made = touched(
        [("a", 3.0, 3, 3, "fitted"), ("b", 1.0, 1, 1, "fitted")],
        [("a", 3.0, 3, 3, "fitted"), ("b", 0.5, 1, 1, "assumed")],
    )
    assert (made.before, made.after) == (0.25, 0.125)
    assert (made.assumed_before, made.assumed_after) == (0.0, 0.125)
