"""The mean field against closed forms, and against the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.prompt_steps import arriving, meeting, steps_to_first
from perfmodel.serving.simulate import simulate_engines
from tests.serving.mean_field_case import RUNNING, asked, even, fast, run
from tests.serving.toy import REAL, ToyTimes, engine


def test_one_user():
    # A prompt of 100 tokens takes 1 s, and 10 decode steps of 2 s follow: 21 s for 11 tokens.
    state = fast(engine(ToyTimes(base=2.0), "chunked_mixed"), asked(even(100, 0), even(11, 0)), 1)
    assert state.ttft_s[0] == pytest.approx(1.0)
    assert state.tpot_s[0] == pytest.approx(2.0)
    assert state.e2e_s[0] == pytest.approx(21.0)
    assert state.requests_per_s[0] == pytest.approx(1 / 21)
    assert (state.running[0], state.queue_s[0], state.limited_by[0]) == (1, 0, "concurrency")


def test_prompts_of_their_own_stop_the_others():
    # 10 users of 11 tokens: in each of a request's 10 decode steps one of them ends on average;
    # its prompt's 1 s stops all others, but for the step after one's own last.
    made = engine(ToyTimes(base=2.0), "prefill_first")
    state = fast(made, asked(even(100, 0), even(11, 0.9)), 10)
    z = float(even(11, 0.9).quantiles(64).mean()) - 1
    assert state.tpot_s[0] == pytest.approx((2 * z + 9 * (1 - 1 / z)) / z, rel=1e-3)


def test_outputs_of_one_token():
    for policy in RUNNING:
        state = fast(engine(ToyTimes(), policy), asked(even(100, 0), even(1, 0)), 4)
        assert np.isnan(state.tpot_s[0])
        # 4 prompts of 1 s in each step
        assert state.requests_per_s[0] == pytest.approx(1.0, rel=0.02)


def test_one_place_is_a_queue():
    # M/D/1: at ρ = 0.8 a wait of ρ/(2(1 − ρ)) = 2 services, of 21 s.
    made = engine(ToyTimes(base=2.0), "chunked_mixed", seqs=1)
    state = fast(made, asked(even(100, 0), even(11, 0)), rate=0.8 / 21)
    assert state.queue_s[0] == pytest.approx(42.0, rel=1e-5)
    assert state.utilisation[0] == pytest.approx(0.8)
    assert state.limited_by[0] == "rate"
    # M/G/1: no prompts to speak of, outputs from 1 to 99 tokens: E[S²]/2E[S]/(1 − ρ)·λ.
    output = Lengths.parse("uniform:1:99", "output")
    made = engine(ToyTimes(base=1.0, per_prompt=1e-9), "chunked_mixed", seqs=1)
    steps = output.quantiles(64) - 1
    rate = 0.5 / steps.mean()
    wait = rate * np.mean(steps**2) / 2 / (1 - 0.5)
    state = fast(made, asked(even(1, 0), output), rate=rate)
    assert state.queue_s[0] == pytest.approx(wait, rel=0.05)


def test_too_high_a_rate_is_said():
    made = engine(REAL, "chunked_mixed", seqs=16)
    what = asked(even(1000), even(100))
    most = fast(made, what, 1000).requests_per_s[0]
    below, above = fast(made, what, rate=0.99 * most), fast(made, what, rate=1.01 * most)
    assert not below.saturated[0]
    assert np.isfinite(below.ttft_s[0])
    assert above.saturated[0]
    assert above.limited_by[0] == "slots"
    assert above.ttft_s[0] == np.inf
    assert above.requests_per_s[0] == pytest.approx(most)


def test_cache_limits_by_what_a_policy_holds():
    # 4,000 tokens of cache; a request holds 100 + 300 (whole) or on average 100 + 150.
    what = asked(even(100, 0), even(300, 0))
    whole = fast(engine(REAL, "inflight_no_evict", capacity=4000, block=1), what, 100)
    assert (whole.running[0], whole.limited_by[0]) == (10, "kv")
    grown = fast(engine(REAL, "chunked_mixed", capacity=4000, block=1), what, 100)
    # What is left over is half of what the next prompt asks for.
    assert grown.running[0] == pytest.approx((4000 - 100 / 2) / 250)


def test_whole_prompts_that_fill_a_step_come_one_by_one():
    # A prompt of the whole budget fits beside no decoding sequence: one request at a time.
    made = engine(REAL, "inflight_no_evict", budget=2000)
    lengths = even(2000, 0), even(50, 0)
    simulated, state = run(made, *lengths, 10, 10), fast(made, asked(*lengths), 10)
    assert (state.running[0], state.limited_by[0]) == (pytest.approx(1), "budget")
    assert state.requests_per_s[0] == pytest.approx(10 / simulated.e2e_s.mean, rel=0.01)


def test_counts_of_prompts():
    for mean in (1e-9, 0.3, 2.0, 5.0, 100.0):
        count, weights = arriving(np.array([mean]))
        assert weights.sum() == pytest.approx(1.0)
        assert (weights * count).sum() == pytest.approx(mean, rel=0.02)
        assert (weights * (count - mean) ** 2).sum() == pytest.approx(mean, rel=0.1)


def test_waiting_for_a_step():
    load = np.array([0.2, 0.5, 0.8])
    # A prompt a step: 1 + ρ/(2(1 − ρ)) steps.
    told = steps_to_first(np.ones(3), load)
    assert told == pytest.approx(1 + load / (2 * (1 - load)), rel=0.01)
    # Room for a hundred: none waits at a moderate load; alone, a long one takes whole steps.
    assert steps_to_first(np.array([0.01]), np.array([0.5]))[0] == pytest.approx(1.0, abs=1e-3)
    assert steps_to_first(np.array([2.4]), np.zeros(1))[0] == pytest.approx(3.0)


def test_users_drift_apart():
    users, steps, group = np.array([64.0]), np.array([200.0]), np.array([8.0])
    assert meeting(users, steps, group, 1.0, 5)[0] == pytest.approx(8 / 64)
    assert meeting(users, steps, group, 1.01, None)[0] == pytest.approx(1 / 200)
    met = [float(meeting(users, steps, group, 1.01, cycle)[0]) for cycle in (1, 2, 5, 20, 100)]
    assert met == sorted(met, reverse=True)
    assert met[0] < 8 / 64
    assert met[-1] == pytest.approx(1 / 200, rel=1e-3)


@pytest.mark.parametrize("policy", ["static", "decode_first"])
@pytest.mark.parametrize("users", [1, 7, 100])
def test_batches_of_equal_lengths_are_exact(policy, users):
    made = engine(REAL, policy, seqs=40, budget=4000)
    prompt, output = even(1000, 0), even(50, 0)
    state, simulated = (
        fast(made, asked(prompt, output), users),
        run(made, prompt, output, users, 20),
    )
    rel = 1e-6 if users != 100 else 0.08  # 40, 40 and 20 users: no whole batches
    assert state.tpot_s[0] == pytest.approx(simulated.tpot_s.mean, rel=rel)
    if users != 100:
        assert state.ttft_s[0] == pytest.approx(simulated.ttft_s.mean, rel=rel)


@pytest.mark.parametrize("policy", RUNNING)
@pytest.mark.parametrize(
    ("prompt", "output", "users"),
    [(1000, 500, 1), (1000, 500, 8), (200, 200, 64), (1000, 100, 128), (3000, 300, 40)],
)
def test_varying_lengths_agree(policy, prompt, output, users):
    made = engine(REAL, policy)
    lengths = even(prompt), even(output)
    simulated = run(made, *lengths, users)
    state = fast(made, asked(*lengths), users)
    assert state.tpot_s[0] == pytest.approx(simulated.tpot_s.mean, rel=0.02)
    assert state.ttft_s[0] == pytest.approx(simulated.ttft_s.mean, rel=0.06)
    rate = users / simulated.e2e_s.mean
    assert state.requests_per_s[0] == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize("policy", RUNNING)
def test_throughput_at_saturation(policy):
    # Slots, tokens of a step, and cache each limit in turn.
    for limits in ({"seqs": 32}, {"budget": 1500}, {"capacity": 3000}):
        made = engine(REAL, policy, **limits)
        lengths = even(1000), even(100)
        simulated = run(made, *lengths, 200, 30)
        state = fast(made, asked(*lengths), 200)
        rate = 200 / simulated.e2e_s.mean
        assert state.requests_per_s[0] == pytest.approx(rate, rel=0.03)
        assert state.ttft_s[0] == pytest.approx(simulated.ttft_s.mean, rel=0.1)


def test_a_benchmark_from_a_standing_start():
    made = engine(REAL, "chunked_mixed")
    for users in (32, 128):
        lengths = even(1000), even(200)
        simulated = simulate_engines(Demand(ClosedLoop(users), *lengths, 10 * users), made)
        state = fast(made, asked(*lengths), users)
        assert state.bench_ttft_s[0] == pytest.approx(simulated.ttft_s.mean, rel=0.1)
        assert state.bench_tpot_s[0] == pytest.approx(simulated.tpot_s.mean, rel=0.03)
        assert state.bench_ttft_s[0] > 1.1 * state.ttft_s[0]


def test_several_tokens_a_step():
    times = ToyTimes(5e-3, 1e-5, 4e-8, 25e-6, tokens_per_step=2.5, width=4)
    made = engine(times, "chunked_mixed")
    lengths = even(1000), even(400)
    simulated = run(made, *lengths, 50)
    state = fast(made, asked(*lengths), 50)
    assert state.tpot_s[0] == pytest.approx(simulated.tpot_s.mean, rel=0.02)
    assert state.requests_per_s[0] == pytest.approx(50 / simulated.e2e_s.mean, rel=0.02)


@pytest.mark.parametrize("policy", ["chunked_mixed", "prefill_first"])
def test_rates_agree_below_saturation(policy):
    made = engine(REAL, policy)
    lengths = even(500), even(200)
    most = fast(made, asked(*lengths), 2000).requests_per_s[0]
    for share in (0.1, 0.5):
        demand = Demand(OpenLoop(share * most), *lengths, requests=8000)
        simulated = simulate_engines(demand, made, warmup=2000)
        state = fast(made, asked(*lengths), rate=simulated.requests_per_s)
        assert state.running[0] == pytest.approx(simulated.mean_running, rel=0.05)
        assert state.tpot_s[0] == pytest.approx(simulated.tpot_s.mean, rel=0.05)
        assert state.ttft_s[0] == pytest.approx(simulated.ttft_s.mean, rel=0.08)
        assert state.utilisation[0] == pytest.approx(simulated.utilisation, abs=0.03)
