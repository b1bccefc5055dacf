"""Number formats in an estimate: fall-backs that are said, costs of widening, and signs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.inference.dequantise import UNPACKED_PER_CLOCK, slower
from perfmodel.inference.engine_kernels import EngineDevice, clocks
from perfmodel.inference.estimate import Estimate, device_model, estimate
from perfmodel.inference.plan import make_plan
from perfmodel.operators.record import Attention, Gemm
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine_timing import Kernels
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.workload import Workload
from tests.operators.support import model


def run(on: str, workload: Workload | None = None, roof: bool = False, **kw: Any) -> Estimate:
    load = workload or Workload(batch=4, prompt=512, output=4)
    return estimate(model("llama-3.1-8b"), on, load, Deployment(**kw), roofline_only=roof)


def priced(on: str, operator: Gemm | Attention, **kernels: Any) -> tuple[Any, Any]:
    """With the cost of widening, and without it."""
    hardware = load_hardware(on)
    plan = make_plan(model("llama-3.1-8b"), hardware, Workload(), Deployment())
    device = device_model(hardware, plan)
    return EngineDevice(device, Kernels(**kernels)).time(operator), device.time(operator)


# --- what a chip lacks is said ------------------------------------------------------------------


def test_a_chip_without_fp8_says_so_of_weights_activations_and_cache():
    result = run("a100-sxm-80gb", weights="fp8", activations="fp8", kv_cache="fp8")
    said = [w for w in result.warnings if "fp8" in w]
    for part in ("weights are widened", "activations stay in 16 bits", "keys and values"):
        assert sum(part in line for line in said) == 1
    formats = result.plan.formats
    assert (formats.linear_arithmetic, formats.inputs.name, formats.cache.bits) == (
        "bf16",
        "bf16",
        8,
    )
    assert result.plan.deployment.activations == "bf16"
    native = run("h100-sxm", weights="fp8", activations="fp8", kv_cache="fp8")
    assert not any("fp8" in w for w in native.warnings)


def test_w8a16_computes_in_bf16():
    plan = run("h100-sxm", weights="w8a16").plan
    assert (plan.deployment.weights, plan.deployment.activations) == ("int8_wo", "bf16")
    assert plan.formats.linear_arithmetic == "bf16"
    same = run("h100-sxm", weights="int8")  # W8A8
    assert same.plan.formats.linear_arithmetic == "int8"
    assert same.memory.weights_bytes == run("h100-sxm", weights="w8a16").memory.weights_bytes


def test_what_communication_is_understood_as():
    assert run("h100-sxm", tp=2).plan.deployment.communication == "bf16"
    again = run("h100-sxm", tp=2, communication="bf16")
    assert again.tpot_s == run("h100-sxm", tp=2).tpot_s
    assert run("h100-sxm", tp=2, communication="fp8").plan.deployment.communication == "fp8"


def test_a_format_of_exchanges_that_there_are_none_of_is_said():
    said = "--comm-dtype changes nothing"
    assert any(said in w for w in run("h100-sxm", communication="fp8").warnings)
    assert not any(said in w for w in run("h100-sxm", communication="fp8", tp=2).warnings)


# --- what widening costs ------------------------------------------------------------------------


def product(m: int, weight_format: str = "int4", bits: float = 4.156) -> Gemm:
    n = k = 8192
    size = n * k * bits / 8
    return Gemm(name="x", m=m, n=n, k=k, weight_bytes=size, weight_format=weight_format)


def test_many_tokens_through_widened_weights_cost_what_the_note_says():
    """On B200 no 4-bit kernel uses the chip's own instructions; on A100 and H100 one does."""
    with_cost, without = priced("b200-sxm", product(8192))
    assert with_cost.time_s == pytest.approx(3.5 * without.time_s, rel=1e-3)
    assert with_cost.low_s < without.time_s < with_cost.time_s < with_cost.high_s
    few, bare = priced("b200-sxm", product(1))  # memory decides
    assert few.time_s == pytest.approx(bare.time_s, rel=1e-12)
    for on in ("a100-sxm-80gb", "h100-sxm"):
        many, bare = priced(on, product(8192))
        assert many.time_s == pytest.approx(bare.time_s, rel=1e-12)
    assert any("3.5 times" in w for w in run("b200-sxm", weights="int4").warnings)
    assert any("Machete" in w for w in run("h100-sxm", weights="int4").warnings)
    assert not any("many tokens" in w for w in run("b200-sxm", weights="fp8").warnings)


def test_engines_that_write_weights_out_multiply_in_16_bits():
    written, bare = priced("b200-sxm", product(8192), dequantise_rows=64)
    inside, _ = priced("b200-sxm", product(8192))
    assert bare.time_s < written.time_s < inside.time_s


def test_measured_sets_of_widened_weights_are_left_alone():
    on = "epyc-zen5-1-thread"
    warnings = run(on, weights="int4").warnings
    assert not any("many tokens" in w for w in warnings)


def decode(kv_len: int, cache: str, bits: float) -> Attention:
    return Attention(
        name="attention", phase="decode", sequences=32, queries=1, keys=kv_len, pairs=kv_len,
        context=kv_len, heads=32, kv_heads=8, qk_dim=128, value_dim=128,
        key_bytes=2 * 8 * 128 * bits / 8, cache_format=cache,
    )  # fmt: skip


def test_unpacking_a_4_bit_cache_is_limited_by_hand():
    """t³ = work³ + limit³, limit = 32 · 8,192 · 2,048 values at 16 per clock of 132 SMs."""
    with_cost, without = priced("h100-sxm", decode(8192, "int4", 4.156))
    rate = UNPACKED_PER_CLOCK * clocks(load_hardware("h100-sxm"))
    limit = 32 * 8192 * 2 * 8 * 128 / rate
    assert with_cost.time_s == pytest.approx((without.time_s**3 + limit**3) ** (1 / 3), rel=1e-6)
    assert with_cost.low_s < without.time_s
    for name, bits in (("fp8", 8), ("bf16", 16)):
        same, bare = priced("h100-sxm", decode(8192, name, bits))
        assert same.time_s == pytest.approx(bare.time_s, rel=1e-12)
    half, _ = priced("h100-sxm", decode(8192, "q8_0/q4_0", 6.5))
    assert half.time_s < with_cost.time_s * 1.5
    assert any("per clock" in w for w in run("h100-sxm", kv_cache="int4").warnings)


@pytest.mark.parametrize(
    ("on", "name", "factor"),
    [
        ("a100-sxm-80gb", "int4", 1.0),
        ("h100-sxm", "int4_g32", 1.0),
        ("h100-sxm", "nvfp4", 1.5),
        ("b200-sxm", "int4", 3.5),
        ("mi300x", "int4", 1.0),
    ],
)
def test_the_factor_follows_the_generation(on, name, factor):
    assert slower(load_hardware(on), name).factor == factor


# --- signs --------------------------------------------------------------------------------------

WEIGHTS = ["bf16", "q8_0", "int8", "w8a16", "fp8", "fp8_block", "q4_k_m", "int4", "nvfp4", "mxfp4"]
CACHES = ["bf16", "q8_0", "int8", "fp8", "int4_g32_z16", "int4", "kivi4", "kivi2", "q8_0/q4_0"]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(WEIGHTS),
    st.sampled_from(CACHES),
    st.sampled_from(["a100-sxm-80gb", "h100-sxm", "b200-sxm", "rtx-4090", "mi300x"]),
    st.integers(1, 16),
    st.integers(64, 4096),
)
def test_memory_bound_decode_is_never_slower_in_fewer_bits(weights, cache, on, batch, prompt):
    """On the roof, where nothing but bytes and arithmetic counts."""
    load = Workload(batch=batch, prompt=prompt, output=2)
    wide = run(on, load, roof=True, weights="bf16", kv_cache="bf16")
    narrow = run(on, load, roof=True, weights=weights, kv_cache=cache)
    assert narrow.decode.time_s <= wide.decode.time_s * (1 + 1e-3)  # passes over inputs
    assert narrow.memory.weights_bytes <= wide.memory.weights_bytes
    assert narrow.memory.kv_bytes <= wide.memory.kv_bytes


@pytest.mark.parametrize("on", ["a100-sxm-80gb", "h100-sxm", "b200-sxm"])
def test_long_decode_gains_by_fewer_bits_on_measured_kernels(on):
    load = Workload(batch=16, prompt=8192, output=2)
    wide = run(on, load, kv_cache="bf16").decode.time_s
    for cache in ("fp8", "int8", "int4", "kivi4"):
        assert run(on, load, kv_cache=cache).decode.time_s < 1.05 * wide
    for weights in ("fp8", "int8", "int4", "q4_k_m"):
        assert run(on, Workload(batch=1, output=2), weights=weights).decode.time_s < wide


@pytest.mark.parametrize("sent", ["fp8", "int8_g128"])
def test_a_slow_link_gains_by_fewer_bits(sent):
    load = Workload(batch=4, prompt=4096, output=2)
    wide, narrow = (run("l40s", load, tp=4, communication=c) for c in ("auto", sent))
    assert narrow.ttft_s < wide.ttft_s
    assert narrow.prefill.cost.total.wire_bytes < wide.prefill.cost.total.wire_bytes


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deployment", "named"),
    [
        ({"communication": "q4_k_m"}, "--comm-dtype"),
        ({"communication": "nvfp4"}, "--comm-dtype"),
        ({"communication": "fp7"}, "communication"),
        ({"kv_cache": "q4_k_m"}, "kv_cache"),
        ({"kv_cache": "fp8/fp8/fp8"}, "kv_cache"),
        ({"kv_cache": "int4_channel_g0"}, "kv_cache"),
        ({"weights": "int8_token"}, "weights"),
        ({"weights": "int4_channel_g32"}, "weights"),
        ({"weights": "fp8", "activations": "q4_k_m"}, "--activations"),
    ],
)
def test_formats_that_cannot_be(deployment, named):
    with pytest.raises(InputError, match=named) as refused:
        run("h100-sxm", **deployment)
    assert "\n" not in str(refused.value)
