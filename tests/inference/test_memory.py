"""Memory per GPU: against vLLM's start-up logs, by hand, and its limits one step either side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.inference.memory import Memory
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.workload import LARGEST
from perfmodel.units import GIB
from tests.inference.memory_case import LLAMA_TOKEN, layouts, memory
from tests.operators.strategies import models
from tests.operators.support import model


def device(gib: float) -> Hardware:
    return Hardware.parse(
        {
            "schema": 1,
            "name": "made-up",
            "peaks_tflops": {"bf16": 100.0},
            "memory": {"capacity_gb": 1.0, "usable_gib": gib, "bandwidth_gb_s": 1000.0},
        },
        "made-up",
    )


@pytest.mark.parametrize(
    ("name", "deployment", "kv_gib"),
    [
        ("llama-3.1-8b", Deployment(), 51.38),
        ("qwen3-32b", Deployment(), 4.45),
        ("qwen3-32b", Deployment(tp=2), 34.49),
        ("llama-3.3-70b", Deployment(tp=2, weights="fp8"), 32.00),
        ("qwen3-0.6b", Deployment(), 64.45),
        ("gpt-oss-20b", Deployment(), 50.28),
    ],
)
def test_measured_room_for_the_cache(name, deployment, kv_gib):
    assert memory(name, deployment).kv_room_bytes / GIB == pytest.approx(kv_gib, rel=0.005)


@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-20b", 13.47), ("gpt-oss-120b", 64.38)])
def test_measured_weights_of_padded_mxfp4_experts(name, gib):
    assert memory(name).weights_bytes / GIB == pytest.approx(gib, rel=0.005)


@pytest.mark.parametrize(
    ("name", "tp", "gib"),
    [
        ("llama-3.1-8b", 1, 4.76),
        ("qwen3-32b", 1, 5.64),
        ("qwen3-32b", 2, 5.64),  # the sampler's, not split
        ("qwen3-0.6b", 1, 5.56),
        ("gpt-oss-20b", 1, 7.38),
    ],
)
def test_measured_activation_peak(name, tp, gib):
    peak = memory(name, Deployment(tp=tp)).activation_bytes / GIB
    assert peak == pytest.approx(gib, rel=0.005)


def test_the_parts_by_hand():
    """Llama-3.1-8B: weights 2 B·8,030,261,248; peak 38.04·1024·128,256 + 2.56·8192·4096 B +
    0.025 GiB; reserved a tenth of 79.18 GiB and 0.13 GiB of context.
    """
    m = memory("llama-3.1-8b", batch=4, prompt=1000, output=24)
    capacity = int(79.18 * GIB)
    assert m.capacity_bytes == capacity
    assert m.weights_bytes == 2 * 8_030_261_248
    peak = 38.04 * 1024 * 128_256 + 2.56 * 8192 * 4096 + 0.025 * GIB
    assert m.activation_bytes == pytest.approx(peak, rel=1e-12)
    assert m.reserved_bytes == pytest.approx(0.1 * capacity + 0.13 * GIB, rel=1e-12)
    assert m.kv_bytes == m.kv_stored_bytes == 4 * 1024 * LLAMA_TOKEN
    parts = m.weights_bytes + m.kv_bytes + m.activation_bytes + m.reserved_bytes
    assert m.required_bytes == pytest.approx(parts)
    assert m.kv_room_bytes == pytest.approx(capacity - (parts - m.kv_bytes))
    assert m.max_sequences == int(m.kv_room_bytes // (1024 * LLAMA_TOKEN))


@pytest.mark.parametrize(
    ("layout", "set_aside"),
    [
        ({"kv_layout": "paged"}, 112),  # 7 blocks of 16 for 101 tokens
        ({"kv_layout": "paged", "block_size": 64}, 128),
        ({"kv_layout": "paged", "block_size": 101}, 101),
        ({"kv_layout": "contiguous", "max_model_len": 4096}, 4096),
        ({"kv_layout": "contiguous"}, 131_072),  # the model's own length
        ({"kv_layout": "flat"}, 101),
    ],
)
def test_tokens_set_aside(layout, set_aside):
    m = memory("llama-3.1-8b", Deployment(**layout), batch=3, prompt=100, output=1)
    assert m.kv_bytes == 3 * set_aside * LLAMA_TOKEN
    assert m.kv_stored_bytes == 3 * 101 * LLAMA_TOKEN


GPT_OSS_LAYER = 2 * 8 * 64 * 2  # bytes a token; 12 layers see all, 12 the last 128


@pytest.mark.parametrize(
    ("layout", "tokens", "full", "windowed"),
    [
        ({"kv_layout": "flat"}, 1001, 1001, 128),
        ({"kv_layout": "flat"}, 101, 101, 101),
        ({"kv_layout": "paged", "block_size": 48}, 1001, 1008, 144),  # 21 blocks; 3 for the window
        ({"kv_layout": "contiguous", "max_model_len": 4096}, 1001, 4096, 128),
        ({"kv_layout": "contiguous", "max_model_len": 4096}, 128, 4096, 128),
        ({"kv_layout": "contiguous", "max_model_len": 4096}, 101, 4096, 128),
        ({"kv_layout": "contiguous", "max_model_len": 120}, 101, 120, 120),
    ],
)
def test_tokens_set_aside_under_a_window(layout, tokens, full, windowed):
    m = memory("gpt-oss-20b", Deployment(**layout), batch=2, prompt=tokens - 1, output=1)
    assert m.kv_bytes == 2 * 12 * GPT_OSS_LAYER * (full + windowed)


@pytest.mark.parametrize(
    ("kv_cache", "per_head"),
    [
        ("bf16", 256),  # 128 × 2 B
        ("fp8", 128),  # one scale per tensor: nothing per token
        ("int8", 130),  # and a 16-bit scale per token and head
        ("int4", 66.5),  # 64 B, a 16-bit scale and a 4-bit zero point per 128
        ("nvfp4", 72),  # 64 B, eight scales of 8 bits
        ("mxfp4", 68),
    ],
)
def test_quantised_caches_store_their_scales(kv_cache, per_head):
    m = memory("llama-3.1-8b", Deployment(kv_cache=kv_cache), prompt=1000, output=24)
    assert m.kv_bytes_per_token == 2 * 32 * 8 * per_head
    assert m.kv_bytes == 1024 * 2 * 32 * 8 * per_head


def test_a_reserved_length_must_hold_the_sequence():
    short = Deployment(kv_layout="contiguous", max_model_len=1000)
    with pytest.raises(InputError) as error:
        memory("llama-3.1-8b", short, prompt=1000, output=1)
    assert "\n" not in str(error.value)


def test_states_do_not_grow():
    """Codestral-Mamba: 64·(128·64·128 state + 10,240·3 convolution) × 2 B whatever the length."""
    for length in (1, 100_000):
        m = memory("mamba-codestral-7b", prompt=length, output=1)
        assert m.kv_bytes == 2 * 64 * (128 * 64 * 128 + 3 * (8192 + 2 * 8 * 128))
        assert m.kv_bytes_per_token == 0
        assert m.max_context == np.inf


def test_states_in_fp32_take_four_bytes():
    """Qwen3.5-27B: 48 delta layers, 48 value heads × 128 × 128 in fp32, convolution in 16 bits;
    16 attention layers of 4 KV heads × 256, for 16 tokens.
    """
    m = memory("qwen3.5-27b", prompt=15, output=1)
    state = 48 * (48 * 128 * 128 * 4 + (2 * 16 * 128 + 48 * 128) * 3 * 2)
    assert m.kv_bytes == state + 16 * (16 * 2 * 4 * 256 * 2)


DEPLOYMENTS = st.builds(
    Deployment,
    weights=st.sampled_from(["auto", "fp8", "int4"]),
    kv_cache=st.sampled_from(["bf16", "fp8", "int8"]),
    kv_layout=st.sampled_from([None, "flat"]),
    block_size=st.sampled_from([None, 1, 7, 64]),
    pp=st.integers(1, 2),
    dp=st.integers(1, 3),
    gpu_memory_utilization=st.sampled_from([None, 0.5, 0.95]),
)


NAMES = st.sampled_from(
    [
        "llama-3.1-8b", "qwen3-0.6b", "qwen2.5-0.5b", "gpt-oss-20b", "gemma-3-1b", "gemma-2b",
        "deepseek-v2-lite", "qwen3-next-80b-a3b", "mamba-codestral-7b", "nemotron-nano-9b-v2",
        "llama-3.1-70b",
    ]
)  # fmt: skip


@st.composite
def cases(draw: Any) -> tuple[Any, Deployment, Hardware]:
    name = draw(NAMES)
    tp = draw(st.sampled_from(layouts(name)))
    return (
        model(name),
        draw(DEPLOYMENTS).model_copy(update={"tp": tp}),
        device(draw(st.floats(8, 300))),
    )


@settings(max_examples=120, deadline=None)
@given(cases(), st.integers(1, 20_000), st.integers(1, 50))
def test_max_sequences_fit_and_one_more_does_not(case, prompt, output):
    m, deployment, on = case
    dp = deployment.dp

    def at(batch: Any) -> Memory:
        return memory(m, deployment, on, batch=batch, prompt=prompt, output=output)

    most: Any = at(dp).max_sequences
    assert most % dp == 0
    if most == 0:
        assert not at(dp).fits
        return
    assume(most < 2**20)
    assert at(most).fits
    assert at(most).required_bytes <= at(most).capacity_bytes * (1 + 1e-12)
    assert not at(most + 1).fits
    for batch in (most, most + 1):  # and says the same whatever batch was asked about
        assert at(batch).max_sequences == most


def test_max_sequences_beyond_the_engines_limit():
    """Qwen2.5-0.5B at 16 tokens: 16·12,288 B of cache a sequence, and beyond vLLM's 1,024 sequences
    38.04 B for each of 151,936 logits.
    """
    m = memory("qwen2.5-0.5b", prompt=15, output=1)
    own = 1024
    logits, kv = 38.04 * 151_936, 16 * 2 * 24 * 2 * 64 * 2
    room = m.kv_room_bytes
    within = room / kv
    assert within > own
    assert m.max_sequences == int((room + own * logits) / (kv + logits))


@settings(max_examples=80, deadline=None)
@given(cases(), st.integers(1, 300))
def test_max_context_fits_and_one_more_does_not(case, batch):
    m, deployment, on = case
    batch *= deployment.dp

    def at(length: Any) -> Memory:
        return memory(m, deployment, on, batch=batch, prompt=length - 1, output=1)

    longest: Any = at(2).max_context
    if longest < 2:
        assert not at(2).fits
        return
    if longest >= LARGEST:  # no layer's cache grows
        return
    assert at(longest).fits
    assert not at(longest + 1).fits


@settings(max_examples=60, deadline=None)
@given(models(), st.integers(1, 40), st.integers(1, 3000))
def test_limits_of_random_models(m, batch, length):
    assume(not m.position_rows)
    found = memory(m, Deployment(), device(8), batch=batch, prompt=length, output=1)
    assert found.fits == (found.required_bytes <= found.capacity_bytes)
    if found.max_sequences:
        assert found.fits == (batch <= found.max_sequences)
