"""What is read off curves against `estimate`, setting by setting."""

from dataclasses import fields

import numpy as np
import pytest

from perfmodel import (
    Deployment,
    InputError,
    Speculation,
    Workload,
    estimate,
    fast_estimate,
    load_hardware,
    load_model,
)
from perfmodel.inference.estimate import running
from perfmodel.inference.plan import make_plan
from perfmodel.planning.sweep.decode import DecodePrice
from perfmodel.planning.sweep.fast import FastEstimate
from perfmodel.planning.sweep.prefill import PrefillPrice

NEAR = 5e-3
"""What is promised."""
SETTINGS = 20_000
MTP = Speculation(method="mtp", tokens=2, acceptance=0.8)
DRAFT = Speculation(method="draft", draft_model="llama-3.1-8b", tokens=3, acceptance=0.7)
CASES = {
    "dense": ("llama-3.1-8b", "h100-sxm", {}, {}),
    "fp8, tp and dp": (
        "llama-3.1-70b", "h100-sxm", {"tp": 4, "dp": 2, "weights": "fp8", "kv_cache": "fp8"}, {},
    ),
    "eager": ("qwen3-32b", "a100-sxm-80gb", {"tp": 2, "execution": "eager"}, {}),
    "experts": ("mixtral-8x7b", "h100-sxm", {"tp": 2}, {}),
    "latents": ("deepseek-v3", "h200-sxm", {"tp": 8, "ep": 8}, {}),
    "windows": ("gemma-3-27b-it", "h100-sxm", {"tp": 2, "kv_manager": "hybrid"}, {}),
    "chunked attention": ("llama-4-scout-17b-16e-instruct", "h200-sxm", {"tp": 8}, {}),
    "recurrent": ("qwen3-next-80b-a3b-instruct", "h100-sxm", {"tp": 2, "pp": 2}, {}),
    "hidden exchanges": (
        "llama-3.1-70b", "h100-sxm", {"tp": 8, "comm_overlap": 0.6, "sequence_parallel": True}, {},
    ),
    "mtp": ("deepseek-v3", "h200-sxm", {"tp": 8, "speculation": MTP}, {}),
    "draft": ("llama-3.1-70b", "h100-sxm", {"tp": 4, "speculation": DRAFT}, {}),
    "prefix": ("llama-3.1-8b", "l40s", {"tp": 2}, {"cached_prefix": 64, "prefix_share": 0.5}),
    "unfused": ("llama-3.1-8b", "h100-sxm", {"attention": "unfused", "stack": "generic"}, {}),
    "static cache": ("llama-3.1-8b", "h100-sxm", {"engine": "torch-compile"}, {}),
    "stages at work": (
        "llama-3.1-8b", "h100-sxm", {"pp": 2, "pp_microbatches": 2, "stack": "generic"}, {},
    ),
    "offload": ("llama-3.1-8b", "h100-sxm", {"cpu_offload_gb": 2, "stack": "generic"}, {}),
    "chunks": ("llama-3.1-8b", "h100-sxm", {"stack": "generic"}, {"prefill_chunk": 512}),
    "context parallel": ("llama-3.1-8b", "h100-sxm", {"cp": 2, "stack": "generic"}, {}),
}  # fmt: skip
BY_PAIRS = {"stages at work", "offload", "chunks", "context parallel"}
"""Prefill isn't a sum of groups there: its pairs are priced, of which tests take few."""


def drawn(name, seed=0):
    """Random settings, log-uniform; some of the least and of the most."""
    _, _, deployment, load = CASES[name]
    rng = np.random.default_rng(seed)
    count = 1000 if name in BY_PAIRS else SETTINGS
    dp = deployment.get("dp", 1) * deployment.get("pp_microbatches", 1)
    least = load.get("cached_prefix", 0) + deployment.get("cp", 1)
    batch = np.ceil(np.exp(rng.uniform(np.log(dp), np.log(100), count)))
    prompt = least + np.ceil(np.exp(rng.uniform(0, np.log(8000), count)))
    output = 1 + np.floor(np.exp(rng.uniform(0, np.log(700), count)))
    return Workload(batch=batch, prompt=prompt, output=output, **load)


def one(load, place):
    """One of the settings."""
    given = dict(load) | {n: int(getattr(load, n)[place]) for n in ("batch", "prompt", "output")}
    return Workload(**given)


@pytest.mark.parametrize("name", CASES)
def test_settings_are_those_of_estimate(name):
    model, hardware, given, _ = CASES[name]
    model, hardware, deployment = load_model(model), load_hardware(hardware), Deployment(**given)
    load = drawn(name)
    fast = fast_estimate(model, hardware, load, deployment)
    for place in range(0, 6):
        exact = estimate(model, hardware, one(load, place), deployment)
        for quantity in ("ttft_s", "tpot_s", "total_s", "output_tokens_per_s"):
            value = getattr(exact, quantity)
            assert getattr(fast, quantity)[place] == pytest.approx(value, rel=NEAR, nan_ok=True)
        for quantity in ("weights_bytes", "kv_bytes", "required_bytes", "max_sequences", "fits"):
            value = getattr(exact.memory, quantity)
            assert getattr(fast, quantity)[place] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in CASES if name not in BY_PAIRS])
def test_the_worst_of_many_settings_is_near(name):
    """Prefills, and single decode steps: sums over steps are nearer than those."""
    model, hardware, given, load = CASES[name]
    model, hardware, deployment = load_model(model), load_hardware(hardware), Deployment(**given)
    many = drawn(name, seed=1).model_copy(update={"output": 2})
    fast = fast_estimate(model, hardware, many, deployment)
    plan = make_plan(model, hardware, many, deployment)
    _, device, host = running(hardware, plan)
    some = slice(0, 300)
    sequences = np.ceil(many.batch[some] / deployment.dp)
    step = DecodePrice(plan, device, host)
    seconds = np.asarray(step(sequences, many.prompt[some])) / step.tokens
    assert fast.tpot_s[some] == pytest.approx(seconds, rel=1.2 * NEAR)
    if not load:
        seconds = PrefillPrice(plan, device, host)(sequences, many.prompt[some])
        assert fast.ttft_s[some] == pytest.approx(seconds, rel=NEAR)


def test_axes_broadcast_and_numbers_are_welcome():
    batch, prompt = np.array([[1], [8]]), np.array([100, 5000, 70])
    load = Workload(batch=batch, prompt=prompt, output=5)
    fast = fast_estimate("llama-3.1-8b", "h100-sxm", load)
    assert {getattr(fast, f.name).shape for f in fields(FastEstimate)} == {(2, 3)}
    alone = fast_estimate("llama-3.1-8b", "h100-sxm", Workload(batch=8, prompt=5000, output=5))
    assert fast.total_s[1, 1] == pytest.approx(float(alone.total_s), rel=NEAR)
    assert alone.total_s.shape == ()


def test_prefixes_of_several_lengths_are_cases_of_their_own():
    cached = np.array([0, 64, 64, 512])
    share = np.array([1.0, 1.0, 0.25, 0.5])
    load = Workload(batch=4, prompt=1000, output=10, cached_prefix=cached, prefix_share=share)
    fast = fast_estimate("llama-3.1-8b", "h100-sxm", load)
    exact = estimate("llama-3.1-8b", "h100-sxm", load)
    assert fast.ttft_s == pytest.approx(exact.ttft_s, rel=NEAR)
    assert fast.kv_bytes == pytest.approx(exact.memory.kv_bytes, rel=1e-12)


def test_a_setting_that_estimate_refuses_is_refused():
    load = Workload(batch=np.array([1, 8]), prompt=100)
    with pytest.raises(InputError, match="--dp"):
        fast_estimate("llama-3.1-8b", "h100-sxm", load, Deployment(dp=2))


def test_the_order_of_settings_changes_nothing():
    load = drawn("dense")
    turned = load.model_copy(
        update={name: getattr(load, name)[::-1] for name in ("batch", "prompt", "output")}
    )
    one_way, other = (fast_estimate("llama-3.1-8b", "h100-sxm", x) for x in (load, turned))
    assert np.array_equal(one_way.total_s, other.total_s[::-1])
