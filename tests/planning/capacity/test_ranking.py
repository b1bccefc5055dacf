"""The bound against the mean field and the simulator, which count otherwise."""

from dataclasses import replace

import numpy as np
import pytest

import perfmodel as api
from perfmodel.planning.capacity.candidates import candidates
from perfmodel.planning.capacity.pools import pooled
from perfmodel.planning.capacity.question import Rules
from perfmodel.planning.capacity.ranking import Predicted, bound, mean_field
from tests.planning.capacity.case import traffic
from tests.planning.capacity.test_candidates import question

CASES = {
    "one GPU": ("llama-3.1-8b", "h100-sxm", {"tp": 1}),
    "two": ("llama-3.1-8b", "l40s", {"tp": 2}),
    "experts": ("mixtral-8x7b", "h100-sxm", {"tp": 4, "ep": 4}),
    "attention DP": ("mixtral-8x7b", "h100-sxm", {"tp": 1, "dp": 4, "ep": 4}),
    "prefill first": ("llama-3.1-8b", "h100-sxm", {"tp": 1, "engine": "sglang"}),
}
OWN = {"weights": "auto", "kv_cache": "auto", "stack": "generic"}


def made(name, asked):
    model, hardware, layout = CASES[name]
    which, kind = question(model, hardware, api.Deployment(**layout, **OWN), asked=asked)
    return candidates(which, kind).fitting[0], which


@pytest.mark.parametrize("name", CASES)
def test_the_bound_is_near_the_steady_state(name):
    asked = traffic(prompt=1000, output=200, ttft=None, tpot=None)
    candidate, which = made(name, asked)
    curve = bound(candidate, which)
    for users in (1, 16, 64):
        state = api.steady_state(
            candidate.case.model, candidate.hardware, concurrency=users, prompt=1000, output=200,
            deployment=candidate.deployment, serving=candidate.serving,
        )  # fmt: skip
        rate = np.interp(users, curve.users, curve.rate)
        assert rate == pytest.approx(state.requests_per_s, rel=0.15)


def test_both_predict_what_the_simulator_serves():
    asked = traffic(prompt=1000, output=200, ttft=2.0, tpot=0.03)
    candidate, which = made("one GPU", asked)
    curve = bound(candidate, which)
    by_bound = Predicted.of(curve, which)
    by_field = Predicted.of(mean_field(candidate, which, curve), which)
    assert by_field.rate == pytest.approx(by_bound.rate, rel=0.2)
    demand = api.Demand(api.ClosedLoop(round(by_bound.users)), 1000, 200, requests=3000)
    result = api.simulate("llama-3.1-8b", "h100-sxm", demand, candidate.deployment,
                          api.Serving(warmup=500))  # fmt: skip
    assert result.requests_per_s == pytest.approx(by_bound.rate, rel=0.1)
    assert result.tpot_s.mean == pytest.approx(by_bound.tpot_s, rel=0.1)
    assert by_bound.tpot_s <= 0.03


def test_a_promise_that_one_request_alone_breaks_leaves_nothing():
    candidate, which = made("one GPU", traffic(prompt=1000, output=200, tpot=1e-4))
    predicted = Predicted.of(bound(candidate, which), which)
    assert predicted.rate == 0.0
    assert predicted.alone_tpot_s > 1e-4
    assert predicted.capacity > 0


def test_tokens_that_are_cached_need_no_prefill():
    kind = api.RequestClass(prompt=2000, output=100, prefix_tokens=1500)
    which, device = question(
        "llama-3.1-8b", "h100-sxm", api.Deployment(tp=1, **OWN),
        asked=api.Traffic(rate=1.0, classes=(kind,)),
    )  # fmt: skip
    (candidate,) = candidates(which, device).fitting
    without = candidate.with_serving(replace(candidate.serving, prefix_caching=False))
    plain = replace(without, case=replace(
        candidate.case, engine=replace(candidate.case.engine, prefixes=None)))  # fmt: skip
    fast, slow = (bound(c, which).prefill_s for c in (candidate, plain))
    assert fast < 0.4 * slow  # a quarter of the tokens


def test_pools_carry_what_the_scarcer_one_does():
    candidate, which = made("one GPU", traffic(prompt=2000, output=50, ttft=2.0, tpot=0.05))
    found, curve = pooled(candidate, which)
    prefill, decode = found.serving.disaggregate
    assert prefill > decode  # long prompts, short answers
    assert found.gpus == prefill + decode
    assert curve.rate.max() <= prefill / curve.prefill_s * (1 + 1e-9)
    alone, _ = made("one GPU", traffic(prompt=100, output=900, ttft=2.0, tpot=0.05))
    other = question("llama-3.1-8b", "h100-sxm", api.Deployment(tp=1, **OWN), rules=Rules(),
                     asked=traffic(prompt=100, output=900, ttft=2.0, tpot=0.05))[0]  # fmt: skip
    prefill, decode = pooled(alone, other)[0].serving.disaggregate
    assert prefill < decode
