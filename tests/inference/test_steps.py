"""Prefill, decode and their sums; what parallel ranks exchange; arrays against loops."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.inference import steps
from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.inference.phase import Cost
from perfmodel.inference.plan import make_plan
from perfmodel.kernels.calibration import load_calibration
from perfmodel.kernels.timing import DeviceModel
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.loading import load_model, model_names
from perfmodel.specs.workload import Workload
from tests.operators.support import model

FAMILIES = [
    "llama-3.1-8b",  # GQA
    "gpt-oss-20b",  # windows, experts
    "deepseek-v2-lite",  # MLA
    "deepseek-v3.2",  # an indexer
    "qwen3-next-80b-a3b",  # linear attention
    "nemotron-nano-9b-v2",  # Mamba-2
    "llama-4-scout-17b-16e",  # chunked attention
]


def parts(name: str, **workload: Any) -> tuple[Any, ...]:
    """What the functions of `steps` take."""
    m, hardware, asked = model(name), load_hardware("h100-sxm"), Workload(**workload)
    plan = make_plan(m, hardware, asked, Deployment())
    return (
        m,
        asked,
        plan,
        DeviceModel(hardware, load_calibration(), plan.deployment.execution or "graph"),
    )


def assert_costs(a: Cost, b: Cost, rel: float = 1e-12) -> None:
    for field in fields(Cost):
        ours, theirs = getattr(a, field.name), getattr(b, field.name)
        assert np.allclose(ours, theirs, rtol=rel, atol=0), field.name


@pytest.mark.parametrize("name", FAMILIES)
def test_all_decode_steps_are_the_loop_over_them(name):
    """Step t of 1 … 9 finds 130 + t − 1 tokens; the first token came out of the prefill."""
    m, asked, plan, device = parts(name, batch=3, prompt=130, output=10)
    loop = Cost()
    for cached in range(130, 139):
        one = parts(name, batch=3, prompt=cached, output=2)  # one step, at its own context
        loop = loop + steps.decode_step(one[0], one[1], plan, device).total
    assert_costs(steps.decode_all(m, asked, plan, device), loop)


def test_one_output_token_needs_no_decode_step():
    result = estimate("llama-3.1-8b", "h100-sxm", Workload(prompt=100, output=1))
    assert result.decode_total.time_s == result.decode_total.flops == 0
    assert result.total_s == result.ttft_s
    assert np.isnan(result.tpot_s)
    assert result.decode.time_s > 0  # the step that would follow


def test_steps_grow_with_their_context():
    """FLOPs of O − 1 steps: each the body and head, and 4·32·128 per key in 32 layers.

    Keys of steps 1 … 99 after 1,000 tokens: 1,001 + … + 1,099 = 99·1,050.
    """
    result = estimate("llama-3.1-8b", "h100-sxm", Workload(prompt=1000, output=100))
    linear = 13_958_643_712 + 1_050_673_152
    assert result.decode_total.flops == 99 * linear + 4 * 32 * 128 * 32 * 99 * 1050
    # The step at the mean context, 1,049 cached tokens, is a 99th.
    assert result.decode.cost.total.flops == linear + 4 * 32 * 128 * 32 * 1050


@given(st.integers(1, 5000), st.integers(2, 300))
def test_mean_context(prompt, output):
    cached = [prompt + t - 1 for t in range(1, output)]
    assert steps.mean_cached(Workload(prompt=prompt, output=output)) == np.mean(cached)


@pytest.mark.parametrize("slab", [1, 7, 100, 10**6])
def test_slabs_leave_the_sum_as_it_is(monkeypatch, slab):
    workload = {"batch": np.array([1, 8]), "prompt": 130, "output": np.array([[1], [2], [61]])}
    whole = steps.decode_all(*parts("gpt-oss-20b", **workload))
    monkeypatch.setattr(steps, "SLAB", slab)
    assert_costs(steps.decode_all(*parts("gpt-oss-20b", **workload)), whole)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("chunk", [500, 10_000])
def test_a_chunk_as_long_as_the_prompt_is_none(name, chunk):
    workload = {"batch": 2, "prompt": 500, "output": 1}
    whole = steps.prefill(*parts(name, **workload))
    chunked = steps.prefill(*parts(name, **workload, prefill_chunk=chunk))
    assert_costs(chunked.total, whole.total, 1e-15)


@pytest.mark.parametrize("name", FAMILIES)
def test_chunks_are_steps_after_one_another(name):
    """300 tokens after 100 cached ones in chunks of 128: 128, 128 and 44; the head runs once.

    The final norm is left out: it takes all 300 tokens at once, with the head.
    """
    chunks = {"batch": 2, "prompt": 400, "cached_prefix": 100, "output": 1, "prefill_chunk": 128}
    together = steps.prefill(*parts(name, **chunks))
    body = [row for row in together.operators if row.name != "final_norm"]
    loop, cached = Cost(), 100
    for new in (128, 128, 44):
        alone = {"batch": 2, "prompt": cached + new, "cached_prefix": cached, "output": 1}
        head = {"final_norm", "lm_head", "sampling"} if cached + new < 400 else {"final_norm"}
        rows = steps.prefill(*parts(name, **alone)).operators
        assert head <= {row.name for row in rows}
        loop = sum((row.cost for row in rows if row.name not in head), loop)
        cached += new
    assert_costs(sum((row.cost for row in body), Cost()), loop)


def test_chunks_read_the_weights_again():
    """Each of four chunks reads all layers: 13.96 GB for Llama-3.1-8B, the head once."""
    whole, chunked = (
        estimate(
            "llama-3.1-8b", "h100-sxm", Workload(prompt=2048, output=1, prefill_chunk=chunk)
        ).prefill.cost.total
        for chunk in (None, 512)
    )
    layers = 2 * 32 * (218_103_808 + 2 * 4096)
    assert chunked.flops == whole.flops
    assert chunked.weight_bytes - whole.weight_bytes == 3 * layers


def test_a_cached_prefix_leaves_the_rest_to_compute():
    """100 tokens after 900: the linear part of 100, and 100·900 + 100·101/2 pairs."""
    result = estimate(
        "llama-3.1-8b", "h100-sxm", Workload(prompt=1000, cached_prefix=900, output=10)
    )
    pairs = 100 * 900 + 100 * 101 // 2
    flops = 100 * 13_958_643_712 + 1_050_673_152 + 4 * 32 * 128 * 32 * pairs
    assert result.prefill.cost.total.flops == flops
    assert result.prefill.cost.total.cache_bytes == 1000 * 131_072
    whole = estimate("llama-3.1-8b", "h100-sxm", Workload(prompt=1000, output=10))
    assert result.ttft_s < whole.ttft_s
    assert result.tpot_s == whole.tpot_s
    assert result.memory.kv_bytes == whole.memory.kv_bytes


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(model_names()),
    st.sampled_from(["h100-sxm", "a100-sxm-40gb", "l40s", "v100-sxm-32gb", "mi300x"]),
    st.integers(1, 64),
    st.integers(1, 3000),
    st.integers(1, 30),
    st.sampled_from(["graph", "eager"]),
)
def test_totals_and_intervals(name, on, batch, prompt, output, execution):
    if load_model(name).position_rows:  # a table of positions: the shortest has 1,024
        prompt = min(prompt, 1000 - output)
    result = estimate(
        name,
        on,
        Workload(batch=batch, prompt=prompt, output=output),
        Deployment(execution=execution),
    )
    decode = result.decode_total
    assert result.total_s == pytest.approx(result.ttft_s + decode.time_s)
    assert result.output_tokens_per_s == pytest.approx(batch * output / result.total_s)
    names = ["ttft_s", "total_s", "output_tokens_per_s"]
    if output > 1:
        assert result.tpot_s * (output - 1) == pytest.approx(decode.time_s)
        names.append("tpot_s")
    for quantity in names:
        low, high = result.interval(quantity)
        assert 0 < low <= getattr(result, quantity) <= high
    for phase in (result.prefill.cost, result.decode.cost):
        whole = phase.total
        assert whole.roof_s <= whole.low_s * (1 + 1e-12)
        assert sum(row.cost.time_s for row in phase.operators) == pytest.approx(whole.time_s)
        bounds = (
            whole.compute_bound_s, whole.memory_bound_s, whole.network_bound_s,
            whole.launch_bound_s,
        )  # fmt: skip
        assert sum(bounds) == pytest.approx(whole.time_s)


@pytest.mark.parametrize("name", model_names())
def test_no_estimate_beats_the_bare_roof(name):
    workload = Workload(batch=4, prompt=500, output=4)
    real = estimate(name, "h100-sxm", workload)
    roof = estimate(name, "h100-sxm", workload, roofline_only=True)
    # A measured kernel that does its neighbours' work in one pass moves fewer bytes than they do.
    assert 0.9 * roof.ttft_s < real.prefill.cost.total.roof_s <= roof.ttft_s * (1 + 1e-12)
    assert roof.interval("ttft_s") == (roof.ttft_s, roof.ttft_s)
    for quantity in ("ttft_s", "tpot_s", "total_s"):
        assert getattr(roof, quantity) <= real.interval(quantity)[0]


QUANTITIES = ("ttft_s", "tpot_s", "total_s", "output_tokens_per_s")


COSTS = ("flops", "weight_bytes", "cache_bytes", "activation_bytes", "wire_bytes", "roof_s")


MEMORY = ("kv_bytes", "kv_stored_bytes", "max_sequences", "max_context", "fits", "kv_room_bytes")


def values(result: Estimate, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    found: dict[str, Any] = {name: getattr(result, name) for name in QUANTITIES}
    for name in QUANTITIES:
        found[f"{name}_low"], found[f"{name}_high"] = result.interval(name)
    for phase in ("prefill", "decode"):
        cost = getattr(result, phase).cost.total
        found |= {f"{phase}_{name}": getattr(cost, name) for name in (*COSTS, "time_s")}
        found[f"{phase}_bound"] = cost.bound
        found[f"{phase}_tokens_per_s"] = getattr(result, phase).tokens_per_s
    found |= {f"memory_{name}": getattr(result.memory, name) for name in MEMORY}
    return {name: np.broadcast_to(np.asarray(value), shape) for name, value in found.items()}


def assert_arrays_are_loops(name: str, deployment: Deployment, **axes: Any) -> None:
    chunk = axes.pop("prefill_chunk", None)
    shape = np.broadcast_shapes(*(np.shape(axis) for axis in axes.values()))
    result = estimate(name, "h100-sxm", Workload(**axes, prefill_chunk=chunk), deployment)
    assert np.shape(result.tpot_s) == np.shape(result.total_s) == shape
    together = values(result, shape)
    spread = {key: np.broadcast_to(axis, shape) for key, axis in axes.items()}
    for index in np.ndindex(shape):
        one = Workload(**{key: int(v[index]) for key, v in spread.items()}, prefill_chunk=chunk)
        for key, value in values(estimate(name, "h100-sxm", one, deployment), ()).items():
            got = together[key][index]
            if value.dtype.kind in "Ub":
                assert got == value, key
            else:
                assert got == pytest.approx(value, rel=1e-12, abs=0, nan_ok=True), key


@pytest.mark.parametrize("name", FAMILIES)
def test_arrays_are_the_loop_over_their_numbers(name):
    assert_arrays_are_loops(
        name,
        Deployment(max_num_seqs=512),
        batch=np.array([[1], [17], [300]]),
        prompt=np.array([100, 999, 4096, 20_000]),
        output=np.array([1, 2, 40, 7]),
        cached_prefix=np.array([0, 64, 4000, 5]),
    )


@pytest.mark.parametrize(
    ("name", "deployment"),
    [
        ("qwen3-30b-a3b", Deployment(ep=4, dp=4, weights="fp8", max_num_seqs=512)),
        ("llama-3.1-8b", Deployment(tp=4, pp=2, kv_cache="int8", max_num_seqs=512)),
        ("deepseek-v2-lite", Deployment(tp=2, attention="unfused", max_num_seqs=512)),
    ],
)
def test_arrays_under_parallel_layouts_and_chunks(name, deployment):
    assert_arrays_are_loops(
        name,
        deployment,
        batch=np.array([[[5]], [[64]]]),
        prompt=np.array([[100], [3000]]),
        output=np.array([3, 20]),
        prefill_chunk=1024,
    )


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(FAMILIES),
    st.sampled_from(["batch", "prompt", "output", "cached_prefix"]),
    st.lists(st.integers(1, 90), min_size=1, max_size=3),
)
def test_any_one_axis(name, axis, numbers):
    axes: dict[str, Any] = {"batch": 3, "prompt": 100, "output": 5, "cached_prefix": 0}
    if axis == "cached_prefix":  # no axis of tpot_s: the steps behind it are the same
        axes["batch"] = np.full(len(numbers), 3)
    axes[axis] = np.array(numbers)
    assert_arrays_are_loops(name, Deployment(max_num_seqs=100), **axes)


@pytest.mark.parametrize("name", ["mamba-codestral-7b", "llama-3.1-8b"])
def test_time_per_token_has_the_workloads_shape(name):
    """Where the steps depend on neither prompt nor batch too."""
    workload = Workload(batch=np.array([[1], [2]]), prompt=np.array([5, 6, 7]), output=1)
    assert np.shape(estimate(name, "h100-sxm", workload).tpot_s) == (2, 3)
    ones = estimate(name, "h100-sxm", Workload(output=np.array([1, 1])))
    for quantity in ("tpot_s", "total_s", "output_tokens_per_s"):
        assert np.shape(getattr(ones, quantity)) == (2,)
        assert [np.shape(end) for end in ones.interval(quantity)] == [(2,), (2,)]
    prompts = Workload(prompt=np.array([5, 6, 7]), output=4)
    assert np.shape(estimate(name, "h100-sxm", prompts).tpot_s) == (3,)
