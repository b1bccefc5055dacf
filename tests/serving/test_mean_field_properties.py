"""What always holds of the mean field, and the steady state of deployments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel
from perfmodel.errors import InputError
from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop
from perfmodel.serving.asked import Bounds
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.serve import Serving, served, simulate
from perfmodel.serving.simulate import simulate_engines
from perfmodel.serving.steady import closed_loop
from perfmodel.serving.steady_state import FastEngine, steady_state_of
from perfmodel.serving.step_arrays import LockstepArrays
from perfmodel.specs.deployment import Deployment
from tests.serving.mean_field_case import RUNNING, ToyArrays, asked, even, fast, run
from tests.serving.toy import REAL, engine


@given(
    st.sampled_from([*RUNNING, "static", "decode_first"]),
    st.integers(1, 8192),
    st.integers(1, 2000),
    st.integers(1, 1000),
    st.sampled_from([0.0, 0.2, 0.9]),
)
@settings(max_examples=60, deadline=None)
def test_closed_loops_keep_littles_law(policy, prompt, output, users, spread):
    made = engine(REAL, policy, capacity=4000)
    state = fast(made, asked(even(prompt, spread), even(output, spread)), users)
    assert state.requests_per_s[0] * state.e2e_s[0] == pytest.approx(users, rel=1e-6)
    assert 0 <= state.queue_s[0] <= state.ttft_s[0] * (1 + 1e-9)
    assert state.ttft_s[0] <= state.e2e_s[0] * (1 + 1e-9)
    assert state.running[0] <= users * (1 + 1e-9)
    assert 0 <= state.kv_utilisation[0] <= 1
    assert np.isfinite(state.bench_ttft_s[0])


@pytest.mark.parametrize("users", [4, 30, 100])
def test_equal_lengths_stay_together_where_prompts_go_first(users):
    made = engine(REAL, "prefill_first", budget=10_000)
    lengths = even(1000, 0), even(100, 0)
    simulated, state = run(made, *lengths, users, 20), fast(made, asked(*lengths), users)
    assert state.tpot_s[0] == pytest.approx(simulated.tpot_s.mean, rel=0.02)
    assert state.ttft_s[0] == pytest.approx(simulated.ttft_s.mean, rel=0.02)


@given(
    st.sampled_from(RUNNING),
    st.integers(10, 4000),
    st.integers(16, 1000),  # of fewer tokens a crowded engine serves up to 4 % less, simulated too
    st.integers(1, 400),
    st.integers(1, 400),
)
@settings(max_examples=40, deadline=None)
def test_more_users_wait_no_less(policy, prompt, output, users, more):
    made = engine(REAL, policy, seqs=128)
    what = asked(even(prompt), even(output))
    few, many = fast(made, what, users), fast(made, what, users + more)
    assert many.ttft_s[0] >= few.ttft_s[0] * 0.99
    assert many.requests_per_s[0] >= few.requests_per_s[0] * 0.99
    slow, quick = (fast(made, what, rate=share * many.requests_per_s[0]) for share in (0.3, 0.6))
    assert quick.ttft_s[0] > slow.ttft_s[0]
    # The wait for a step's end may fall by 2 %, as below: steps that are alike end sooner.
    assert quick.queue_s[0] >= slow.queue_s[0] * 0.97
    assert quick.running[0] >= slow.running[0]


def test_the_wait_for_a_steps_end_hardly_grows_with_the_rate():
    made = engine(REAL, "prefill_first", seqs=128)
    lengths = even(16), even(16)
    most = fast(made, asked(*lengths), 23).requests_per_s[0]
    for share in (0.3, 0.6, 0.9):
        demand = Demand(OpenLoop(share * most), *lengths, requests=20_000)
        simulated = simulate_engines(demand, made)
        told = fast(made, asked(*lengths), rate=share * most)
        assert told.queue_s[0] == pytest.approx(simulated.queue_s.mean, rel=0.03)


@pytest.mark.parametrize("users", [11, 120])
def test_short_outputs_of_many_users_are_served_as_simulated(users):
    """A crowded engine serves 3 % less: prompts find less room beside sequences that decode."""
    made = engine(REAL, "inflight_no_evict", seqs=128)
    lengths = even(1343), even(2)
    simulated, state = run(made, *lengths, users, 20), fast(made, asked(*lengths), users)
    assert state.requests_per_s[0] == pytest.approx(simulated.requests_per_s, rel=0.025)


def test_a_deployment_agrees_with_its_simulation():
    lengths = even(1024), even(256)
    told = perfmodel.steady_state(
        "llama-3.1-8b", "h100-sxm", concurrency=32, prompt=lengths[0], output=lengths[1]
    )
    demand = Demand(ClosedLoop(32), *lengths, requests=1600)
    simulated = simulate("llama-3.1-8b", "h100-sxm", demand, serving=Serving(warmup=800))
    assert told.tpot_s == pytest.approx(simulated.tpot_s.mean, rel=0.015)
    assert told.ttft_s == pytest.approx(simulated.ttft_s.mean, rel=0.05)
    assert told.gpus == simulated.gpus


def test_arrays_are_their_settings():
    made = FastEngine.of(served("llama-3.1-8b", "h100-sxm"))
    users = np.array([[1.0], [40.0], [3000.0]])
    prompt = np.array([100.0, 20_000.0])
    whole = steady_state_of(made, concurrency=users, prompt=prompt, output=100)
    assert whole.tpot_s.shape == whole.limited_by.shape == (3, 2)
    for i, n in enumerate(users.ravel().tolist()):
        for j, tokens in enumerate(prompt.tolist()):
            one = steady_state_of(made, concurrency=n, prompt=int(tokens), output=100)
            assert isinstance(one.tpot_s, float)
            for name in ("ttft_s", "tpot_s", "requests_per_s", "bench_ttft_s"):
                assert getattr(whole, name)[i, j] == pytest.approx(getattr(one, name), rel=1e-9)
            assert whole.limited_by[i, j] == one.limited_by
    many = steady_state_of(made, concurrency=np.full(2500, 40.0), prompt=100, output=100)
    assert np.all(many.tpot_s == many.tpot_s[0])


def test_replicas_share_the_load():
    one = perfmodel.steady_state("llama-3.1-8b", "h100-sxm", rate=2.0)
    two = perfmodel.steady_state("llama-3.1-8b", "h100-sxm", rate=4.0, deployment=Deployment(dp=2))
    assert two.ttft_s == pytest.approx(one.ttft_s)
    assert (two.requests_per_s, two.gpus) == (pytest.approx(4.0), 2)


def test_lockstep_of_one_is_alone():
    made = engine(REAL, "chunked_mixed")
    what = asked(even(1000), even(100))
    bounds = Bounds(made.policy, made.max_num_seqs, made.max_num_batched_tokens, made.blocks())
    users = np.array([20.0])
    alone = closed_loop(what, bounds, ToyArrays(REAL), users, 10)
    one = closed_loop(what, bounds, LockstepArrays(ToyArrays(REAL), 1), users, 10)
    assert one.ttft_s == pytest.approx(alone.ttft_s)
    assert one.tpot_s == pytest.approx(alone.tpot_s)


def test_quantiles_are_the_lengths_drawn():
    generator = np.random.default_rng(0)
    for spec in ("7", "uniform:10:90", "normal:100:30", "lognormal:100:0.8:400", "exponential:50"):
        lengths = Lengths.parse(spec, "length")
        quantiles, values = lengths.quantiles(400), np.array(lengths.draw(generator, 20_000))
        assert quantiles.mean() == pytest.approx(values.mean(), rel=0.03)
        assert np.all(np.diff(quantiles) >= 0)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "one of concurrency and rate"),
        ({"concurrency": 4, "rate": 1.0}, "one of concurrency and rate"),
        ({"concurrency": 0}, "concurrency: must be at least 1"),
        ({"rate": float("nan")}, "rate: must be above 0"),
        ({"concurrency": 4, "prompt": np.array([0.0])}, "prompt: a length"),
        ({"concurrency": 4, "prompt": 10_000_000}, "one sequence has room for"),
        ({"concurrency": 4, "requests_per_user": -1}, "requests_per_user"),
        ({"concurrency": 4, "requests_per_user": 2.5}, "requests_per_user"),
        ({"concurrency": "many"}, r"concurrency: a number .*'many'"),
        ({"concurrency": []}, "without settings"),
        ({"concurrency": [1, -2]}, r"concurrency: .*got -2"),
        ({"concurrency": [1, 2, 3], "prompt": np.array([1, 2])}, "don't broadcast"),
    ],
)
def test_what_is_wrong_is_said(given, match):
    with pytest.raises(InputError, match=match):
        perfmodel.steady_state("llama-3.1-8b", "h100-sxm", **given)


def test_fewer_users_than_replicas():
    case = ("llama-3.1-8b", "h100-sxm")
    alone = perfmodel.steady_state(*case, concurrency=1)
    few = perfmodel.steady_state(*case, concurrency=[4, 16], deployment=Deployment(dp=8))
    assert few.requests_per_s[0] == pytest.approx(4 * alone.requests_per_s)
    assert few.e2e_s[0] == pytest.approx(alone.e2e_s)
    assert few.utilisation[0] == pytest.approx(0.5)
    assert few.kv_utilisation[0] == pytest.approx(alone.kv_utilisation / 2)
    assert few.running == pytest.approx([4, 16])


def test_batches_know_no_rate():
    with pytest.raises(InputError, match=r"rate: .* simulate them"):
        perfmodel.steady_state(
            "llama-3.1-8b", "h100-sxm", rate=1.0, serving=Serving(scheduler="static")
        )


@pytest.mark.parametrize(
    "serving",
    [Serving(prefix_caching=True), Serving(disaggregate=(1, 1)), Serving(warmup=5)],
)
def test_what_only_a_simulation_knows_is_refused(serving):
    with pytest.raises(InputError, match="simulate instead"):
        perfmodel.steady_state("llama-3.1-8b", "h100-sxm", concurrency=4, serving=serving)


def test_split_prompts_are_refused_under_load():
    with pytest.raises(InputError, match="--cp"):
        served("llama-3.1-70b", "h200-sxm", Deployment(tp=4, cp=2))
