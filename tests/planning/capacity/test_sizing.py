"""From the load of one replica to fleets and costs, by hand; and what sizing must never do."""

from dataclasses import replace
from math import inf, isclose

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from perfmodel.planning.capacity.sizing import Level, Needs, Seen, best_level, size_fleet
from perfmodel.specs.traffic import ServiceLevel

NEEDS = Needs(
    rate=20.0, peak=1.5, prompt=2000.0, output=250.0, utilisation_target=0.8, spare=1,
    usd_per_gpu_hour=3.0,
)  # fmt: skip


def level(rate, ttft, tpot, e2e=1.0):
    return Level(rate, 1.0, 0.5, 0.1, 0, (Seen(ttft, tpot, e2e),))


def test_a_fleet_by_hand():
    fleet = size_fleet(5.0, 2, 0.25, NEEDS)
    # Busiest hour 20·1.5 = 30/s; a replica is loaded with 0.8·5 = 4/s: ⌈7.5⌉ = 8, and a spare: 9.
    assert (fleet.replicas, fleet.gpus) == (9, 18)
    assert isclose(fleet.utilisation, 30 / 45)
    assert isclose(fleet.utilisation_degraded, 30 / 40)
    # 18 GPUs · 3 USD = 54 USD/h. 20/s · 3600 s = 72,000 requests/h: 144·10⁶ prompt tokens and
    # 18·10⁶ output tokens; 54·0.25/144 and 54·0.75/18.
    assert isclose(fleet.usd_per_hour, 54.0)
    assert isclose(fleet.usd_per_million_prompt_tokens, 0.09375)
    assert isclose(fleet.usd_per_million_output_tokens, 2.25)


def test_both_parts_of_the_cost_add_up_to_the_rent():
    fleet = size_fleet(1.7, 4, 0.37, NEEDS)
    prompt, output = (20 * 3600 * tokens / 1e6 for tokens in (2000, 250))
    whole = (
        fleet.usd_per_million_prompt_tokens * prompt + fleet.usd_per_million_output_tokens * output
    )
    assert isclose(whole, fleet.usd_per_hour)


def test_a_load_that_divides_evenly_needs_no_further_replica():
    # 30 / (0.8·7.5) = 5 exactly, though the product isn't exact in binary.
    assert size_fleet(7.5, 1, 0.5, replace(NEEDS, spare=0)).replicas == 5


RATES = st.floats(1e-3, 1e4)


@given(RATES, RATES, st.integers(1, 16), st.floats(1.0, 5.0), st.integers(0, 3))
def test_more_requests_never_need_fewer_replicas(one, other, gpus, peak, spare):
    low, high = sorted((one, other))
    fleets = [
        size_fleet(3.0, gpus, 0.4, replace(NEEDS, rate=rate, peak=peak, spare=spare))
        for rate in (low, high)
    ]
    assert fleets[0].replicas <= fleets[1].replicas
    assert fleets[0].usd_per_hour <= fleets[1].usd_per_hour


@given(RATES, st.floats(1e-3, 1e3), st.floats(0.05, 1.0), st.integers(0, 3))
def test_what_is_left_after_failures_keeps_to_the_target(rate, carried, target, spare):
    assume(rate / carried < 1e6)
    needs = replace(NEEDS, rate=rate, peak=1.0, utilisation_target=target, spare=spare)
    fleet = size_fleet(carried, 1, 0.5, needs)
    assert fleet.utilisation_degraded <= target * (1 + 1e-6)
    assert fleet.replicas >= 1 + spare
    one_less = fleet.replicas - spare - 1
    assert one_less == 0 or rate / (one_less * carried) > target * (1 - 1e-6)


def test_the_best_load_is_the_last_below_which_all_do():
    promised = (ServiceLevel(ttft_s=1.0, tpot_s=0.05),)
    levels = [level(1, 0.1, 0.01), level(2, 0.5, 0.05), level(3, 1.1, 0.03), level(4, 0.9, 0.04)]
    assert best_level(levels, promised) is levels[1]  # limits are kept at, the third isn't skipped
    assert best_level(levels[2:], promised) is None


@pytest.mark.parametrize(
    ("seen", "limits", "missed"),
    [
        (Seen(0.5, 0.04, 9.0), ServiceLevel(ttft_s=0.4, tpot_s=0.05, e2e_s=8.0), ("ttft", "e2e")),
        (Seen(0.5, None, 9.0), ServiceLevel(tpot_s=0.001), ()),  # one token has no TPOT
        (Seen(inf, 1.0, inf), ServiceLevel(), ()),
    ],
)
def test_limits_that_are_missed(seen, limits, missed):
    assert seen.missed(limits) == missed
