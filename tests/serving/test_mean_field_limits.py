"""The mean field where a step's tokens or the cache limit: closed forms, and the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop
from perfmodel.serving.asked import Asked, Bounds
from perfmodel.serving.eviction import recomputed
from perfmodel.serving.head_of_line import falls, highest, waiting
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.mean_field import MeanField
from perfmodel.serving.simulate import simulate_engines
from perfmodel.serving.whole import whole
from tests.serving.mean_field_case import RUNNING, ToyArrays, asked, even, fast, run
from tests.serving.toy import REAL, engine, lengths

EVICTING = ["chunked_mixed", "prefill_first", "inflight_max_utilisation"]


def packed(sizes: np.ndarray, room: float) -> float:
    """Things per room, by next-fit packing; one that is larger than a room has one of its own."""
    rooms, count, filled = 0, 0, 0.0
    for size in sizes.tolist():
        if count and filled + size > room:
            rooms, count, filled = rooms + 1, 0, 0.0
        count, filled = count + 1, filled + size
    return len(sizes) / max(rooms, 1)


def bounds_of(made) -> Bounds:
    limits = made.max_num_seqs, made.max_num_batched_tokens
    return Bounds(made.policy, *limits, made.blocks(), made.times.width)


def test_whole_things_without_spread_are_a_floor():
    fit = np.array([0.3, 1.0, 1.99, 2.0, 7.5, 1000.0])
    assert whole(fit, 0.0).tolist() == [1, 1, 1, 2, 7, 1000]
    assert whole(fit, np.full(6, 1e-9)).tolist() == [1, 1, 1, 2, 7, 1000]


@pytest.mark.parametrize("low", [0.2, 0.8])
def test_whole_things_are_packed(low):
    sizes = np.random.default_rng(0).uniform(low, 1.0, 20_000)
    spread = float(sizes.std() / sizes.mean())
    for room in (0.5, 1.0, 1.5, 1.8, 2.0, 2.2, 3.0, 3.5, 6.0, 8.3, 40.0):
        told = float(whole(np.array([room]), spread)[0])
        assert told == pytest.approx(packed(sizes / sizes.mean(), room), abs=0.2)
        assert told >= 1
    # Many: what a renewal process leaves over is (1 + s²)/2 on average.
    assert whole(np.array([50.0]), spread)[0] == pytest.approx(50 - (1 + spread**2) / 2, abs=1e-3)


def test_a_prompt_waits_for_the_batch_to_shrink():
    # Equal prompts of 1,900 in steps of 2,000: beside 100 at most, so that 101 are the most, and
    # each that comes waits for one end.
    bounds = bounds_of(engine(REAL, "inflight_no_evict", budget=2000))
    equal = asked(even(1900, 0), even(50, 0))
    most = np.array([256.0])
    assert highest(equal, bounds, most)[0] == pytest.approx(101)
    assert waiting(equal, bounds, np.array([101.0]))[0] == pytest.approx(0, abs=1e-4)
    assert highest(asked(even(100, 0), even(50, 0)), bounds, most)[0] == 256
    # Even from 1 to 3,999: of b sequences b²/2 of 3,998 possible lengths on average.
    wide = asked(Lengths.parse("uniform:1:3999", "prompt"), even(50, 0))
    mean, square = falls(wide, bounds, np.array([60.0]))
    assert mean[0] == pytest.approx(60**2 / 2 / 3998, rel=0.02)
    assert square[0] == pytest.approx(60**3 / 3 / 3998, rel=0.02)
    assert highest(wide, bounds, most)[0] == pytest.approx((2 * 3998) ** 0.5, rel=0.02)


@pytest.mark.parametrize(
    ("prompt", "output", "users"),
    [
        ("uniform:957:4785", "uniform:119:597", 167),
        ("uniform:1600:2000", "uniform:80:100", 120),
        ("uniform:206:1030", "uniform:23:29", 149),
        ("uniform:500:2500", "uniform:100:300", 60),
    ],
)
@pytest.mark.parametrize("policy", ["inflight_no_evict", "inflight_max_utilisation"])
def test_whole_prompts_about_a_step(policy, prompt, output, users):
    made = engine(REAL, policy, budget=2048)
    what = lengths(prompt), lengths(output)
    simulated, state = run(made, *what, users, 40), fast(made, asked(*what), users)
    assert state.ttft_s[0] == pytest.approx(simulated.ttft_s.mean, rel=0.2)
    assert state.tpot_s[0] == pytest.approx(simulated.tpot_s.mean, rel=0.2)
    rate = users / simulated.e2e_s.mean
    assert state.requests_per_s[0] == pytest.approx(rate, rel=0.08)


@pytest.mark.parametrize(
    ("prompt", "output", "users", "budget"),
    [
        ("uniform:6554:8192", "uniform:819:1024", 16, 8192),
        ("uniform:591:2957", "uniform:500:900", 18, 2048),
        ("uniform:619:3093", "lognormal:162:0.5:486", 40, 2048),
    ],
)
def test_rare_waits_for_the_batch_to_shrink(prompt, output, users, budget):
    # One prompt in a hundred waits, half a cycle: few requests don't show it.
    made = engine(REAL, "inflight_no_evict", budget=budget)
    what = lengths(prompt), lengths(output)
    simulated = simulate_engines(Demand(ClosedLoop(users), *what, 40_000), made, warmup=10_000)
    state = fast(made, asked(*what), users)
    rate = users / simulated.e2e_s.mean
    waits = rate * simulated.queue_s.mean
    assert state.requests_per_s[0] * state.queue_s[0] == pytest.approx(waits, rel=0.3)
    assert state.requests_per_s[0] == pytest.approx(rate, rel=0.03)
    assert state.near_limit[0]


@pytest.mark.parametrize("policy", RUNNING)
@pytest.mark.parametrize(("prompt", "users"), [(1000, 40), (3000, 20), (300, 5), (100, 1)])
def test_one_token_each(policy, prompt, users):
    # Nothing decodes: users go round through steps of prompts alone.
    made = engine(REAL, policy, budget=2000)
    what = even(prompt, 0.6), even(1, 0)
    simulated, state = run(made, *what, users), fast(made, asked(*what), users)
    rate = users / simulated.e2e_s.mean
    assert state.requests_per_s[0] == pytest.approx(rate, rel=0.06)
    assert state.ttft_s[0] == pytest.approx(simulated.ttft_s.mean, rel=0.06)
    assert state.running[0] <= users


def test_equal_prompts_of_one_token_are_exact():
    # 40 users, two whole prompts a step: 20 steps of 2 · 1,000 · 25 µs.
    for policy in RUNNING:
        state = fast(engine(REAL, policy, budget=2000), asked(even(1000, 0), even(1, 0)), 40)
        assert state.ttft_s[0] == pytest.approx(20 * 2000 * 25e-6)
        assert state.requests_per_s[0] == pytest.approx(40.0)
        assert state.limited_by[0] == "budget"


@pytest.mark.parametrize("policy", ["prefill_first", "prefill_first_chunked"])
def test_what_prompts_of_their_own_use_of_the_budget(policy):
    made = engine(REAL, policy, budget=2000)
    use = []
    for output in (500, 50, 5, 1):
        what = asked(even(1000, 0), even(output, 0))
        field = MeanField(what, bounds_of(made), ToyArrays(REAL), np.array([40.0]))
        use.append(float(field.steps.budget_use[0]))
    assert use == sorted(use)
    assert use[-1] == 1
    # 40 users of 50 tokens: 40/49 prompts come in a decode step, of two that a step holds; with
    # chance 1 − e^(−40/49) a step of prompts follows a decode step.
    ends = 40 / 49
    assert use[1] == pytest.approx(ends / 2 / (2 - np.exp(-ends)))


@pytest.mark.parametrize(
    ("prompt", "output", "held"),
    [(256, 1024, 32), (128, 128, 32), (512, 512, 100), (1024, 256, 100), (1024, 64, 100)],
)
@pytest.mark.parametrize("policy", EVICTING)
def test_what_a_full_cache_computes_again(policy, prompt, output, held):
    # O·e^−λ tokens for each request, with λ ends in a step.
    what = even(round(prompt * 1.1)), even(round(output * 1.1))
    need = prompt + output / 2 + 8
    made = engine(REAL, policy, capacity=held * need / 16)
    users, number = 2 * held + 8, 30 * (2 * held + 8)
    simulated = simulate_engines(Demand(ClosedLoop(users), *what, number), made, warmup=number // 2)
    mine = asked(*what)
    told = recomputed(mine, bounds_of(made), np.array([held / output]))[0] * mine.prompt[0]
    again = simulated.pools[0].prefill_tokens / number - mine.prompt[0]
    assert told == pytest.approx(again, abs=0.15 * output)


@pytest.mark.parametrize("policy", EVICTING)
@pytest.mark.parametrize(("prompt", "output", "held"), [(1000, 300, 40), (500, 500, 60)])
def test_a_cache_that_evicts(policy, prompt, output, held):
    made = engine(REAL, policy, capacity=held * (prompt + output / 2) / 16)
    what = even(prompt), even(output)
    simulated, state = run(made, *what, 2 * held), fast(made, asked(*what), 2 * held)
    assert state.requests_per_s[0] == pytest.approx(2 * held / simulated.e2e_s.mean, rel=0.04)
    assert state.tpot_s[0] == pytest.approx(simulated.tpot_s.mean, rel=0.1)
    assert state.ttft_s[0] == pytest.approx(simulated.ttft_s.mean, rel=0.12)


def test_room_that_is_held_is_whole_blocks():
    # 83 + 818 tokens are 57 blocks of 16: five of them are 285, six are more than 341.
    made = engine(REAL, "inflight_no_evict", capacity=341)
    what = even(83, 0), even(818, 0)
    simulated, state = run(made, *what, 7, 20), fast(made, asked(*what), 7)
    assert state.requests_per_s[0] == pytest.approx(7 / simulated.e2e_s.mean, rel=0.01)


def test_where_it_is_rough_is_said():
    made = engine(REAL, "chunked_mixed", capacity=40 * (1000 + 150) / 16)
    what = asked(even(1000), even(300))
    said = [bool(fast(made, what, users).near_limit[0]) for users in (4, 20, 32, 40, 48, 80, 200)]
    assert said == [False, False, True, True, True, False, False]
    # Where a cache evicts, outputs longer than prompts wait in ways that aren't known well.
    assert fast(made, asked(even(300), even(1000)), 200).near_limit[0]
    whole_prompts = engine(REAL, "inflight_no_evict", budget=2000)
    assert fast(whole_prompts, asked(even(2000), even(100)), 60).near_limit[0]
    assert not fast(whole_prompts, asked(even(1000), even(100)), 60).near_limit[0]
    most = fast(made, what, 200).requests_per_s[0]
    rates = [bool(fast(made, what, rate=share * most).near_limit[0]) for share in (0.5, 0.9)]
    assert rates == [False, True]


@pytest.mark.parametrize(
    ("policy", "output"), [("chunked_mixed", 1), ("chunked_mixed", 4), ("prefill_first", 1)]
)
def test_rates_of_prompts_that_hardly_decode(policy, output):
    # What is left of a step delays a prompt, and slows nobody: the queue is that of a server of
    # prompts, far below 1/(1 - 3/2·use).
    made, what = engine(REAL, policy), (even(1000), even(output, 0))
    most = fast(made, asked(*what), 2000).requests_per_s[0]
    for share in (0.2, 0.4, 0.6):
        demand = Demand(OpenLoop(share * most), *what, requests=8000)
        simulated = simulate_engines(demand, made, warmup=2000)
        state = fast(made, asked(*what), rate=simulated.requests_per_s)
        assert state.ttft_s[0] == pytest.approx(simulated.ttft_s.mean, rel=0.3)
        # Who waits for the end of a step isn't running.
        assert state.running[0] == pytest.approx(simulated.mean_running, rel=0.1)
        assert state.near_limit[0] == (share > 0.3)


def test_one_setting_of_lengths():
    made = Asked.of(Lengths.parse("lognormal:1000:0.5:3000", "prompt"), even(100, 0))
    assert made.prompt[0] * made.few_prompts.mean() == pytest.approx(made.prompt[0])
    assert len(made.few_prompts) == 5
    assert len(made.outputs) == len(made.few_outputs) == 1
    # √(e^σ² − 1) without the cut at 3,000.
    assert made.spread == pytest.approx(0.53, abs=0.03)
    assert made.per_token[0] == pytest.approx(1 / 99)
