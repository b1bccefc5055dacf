"""The search for the largest load that does, on replicas whose latencies are a formula."""

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.planning.capacity.loads import CLOSE, CURVE, Explorer, strain
from perfmodel.planning.capacity.sizing import Level, Seen
from perfmodel.planning.capacity.trial import Run
from perfmodel.specs.traffic import ServiceLevel

LIMIT = ServiceLevel(ttft_s=1.0, tpot_s=0.05)


class Formula:
    """TTFT of a queue of one server, 0.2/(1 − rate/capacity), and a TPOT that grows with it."""

    def __init__(self, capacity, tpot=0.001, alone=0.2):
        self.capacity, self.tpot, self.alone = capacity, tpot, alone
        self.asked = []

    def __call__(self, rate):
        self.asked.append(rate)
        left = 1 - rate / self.capacity
        ttft = self.alone / left if left > 0 else 1e9
        seen = Seen(ttft, self.tpot * (1 + rate), ttft + 1.0)
        return Run(Level(rate, rate, 0.5, 0.1, 0, (seen,)), steady=left > 0, prefill_share=0.3)


@settings(max_examples=150)
@given(st.floats(0.01, 1e4), st.floats(0.02, 3.0), st.sampled_from([0.02, 0.2, 0.9]))
def test_the_boundary_is_found_from_any_guess(capacity, guess, alone):
    at = Formula(capacity, tpot=0.0, alone=alone)
    found = Explorer(at, (LIMIT,), inf).explore(guess * capacity)
    boundary = (1 - alone) * capacity  # alone/(1 − r/c) = 1
    assert boundary / CLOSE <= found.best.level.rate <= boundary * (1 + 1e-9)
    assert found.failed.level.rate <= found.best.level.rate * CLOSE * (1 + 1e-9)
    assert len(at.asked) <= 16


def test_a_good_guess_takes_few_simulations():
    at = Formula(10.0)
    Explorer(at, (LIMIT,), inf).explore(7.0)
    assert len(at.asked) <= 6


def test_the_limit_that_binds_first_counts():
    # TPOT 0.01·(1 + r) reaches 0.05 at 4, before TTFT reaches 1 at 8.
    found = Explorer(Formula(10.0, tpot=0.01), (LIMIT,), inf).explore(6.0)
    assert 4 / CLOSE <= found.best.level.rate <= 4.0
    assert strain(found.failed.level, (LIMIT,))[2] == "tpot"


def test_what_fails_empty_fails_soon():
    at = Formula(10.0, alone=1.5)
    found = Explorer(at, (LIMIT,), inf).explore(8.0)
    assert found.best is None
    assert found.failed is not None
    assert len(at.asked) <= 5
    assert min(at.asked) < 0.1


def test_the_capacity_ends_the_search_where_nothing_is_promised():
    found = Explorer(Formula(10.0), (ServiceLevel(),), 9.5).explore(3.0)
    assert found.best.level.rate == pytest.approx(9.5)
    assert found.failed is None


def test_a_queue_without_end_fails_whatever_is_promised():
    found = Explorer(Formula(10.0), (ServiceLevel(),), 30.0).explore(3.0)
    assert 10 / CLOSE <= found.best.level.rate < 10.0
    assert all(run.level.rate < 10 for run in found.runs)  # only steady states are shown
    assert not found.failed.steady


def test_the_curve_is_ascending_and_holds_loads_below_and_beyond():
    explorer = Explorer(Formula(10.0), (LIMIT,), inf)
    best = explorer.explore(7.0).best.level.rate
    rates = [level.rate for level in explorer.widen(CURVE).levels]
    assert rates == sorted(rates)
    assert rates[0] <= 0.3 * best
    assert rates[-1] > best
    assert all(later / earlier > 1.01 for earlier, later in pairwise(rates))


def test_a_load_between_that_fails_ends_what_does():
    explorer = Explorer(Formula(10.0), (LIMIT,), inf)
    explorer.explore(7.0)
    bad = Run(Level(2.0, 1, 0.5, 0.1, 0, (Seen(5.0, 0.01, 6.0),)), True, 0.3)
    explorer._at = lambda rate: bad
    explorer.at(2.0)
    assert explorer.explored().best is None or explorer.explored().best.level.rate < 2.0


def test_strain_is_the_worst_ratio_over_classes():
    level = Level(1.0, 1, 0.5, 0.1, 0, (Seen(0.5, 0.04, 2.0), Seen(3.0, None, 9.0)))
    promised = (ServiceLevel(ttft_s=1.0, tpot_s=0.05), ServiceLevel(e2e_s=6.0))
    assert strain(level, promised) == (1.5, 1, "e2e")
    assert strain(level, (ServiceLevel(), ServiceLevel())) == (0.0, 0, "")
