"""Memory per GPU: against vLLM's start-up logs, by hand, and its limits one step either side."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.inference.estimate import estimate
from perfmodel.inference.memory import Memory, memory_use
from perfmodel.inference.plan import make_plan
from perfmodel.operators.sharding import Parallel, possible_tp
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.specs.workload import LARGEST, Workload
from perfmodel.units import GIB
from tests.operators.strategies import models
from tests.operators.support import model

LLAMA_TOKEN = 131_072  # Llama-3.1-8B: 2·32 layers·8 KV heads·128·2 B


def memory(
    name: Any, deployment: Deployment | None = None, on: Any = "h100-sxm", **workload: Any
) -> Memory:
    m = model(name) if isinstance(name, str) else name
    hardware = load_hardware(on) if isinstance(on, str) else on
    asked = Workload(**workload)
    return memory_use(m, hardware, asked, make_plan(m, hardware, asked, deployment or Deployment()))


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


# --- vLLM 0.11 on an H100 of 79.18 GiB at 0.9 --------------------------------------------------


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


# --- layouts of the cache ----------------------------------------------------------------------


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


# --- what fits ---------------------------------------------------------------------------------

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


@cache
def layouts(name: str) -> list[int]:
    return [tp for tp in possible_tp(model(name), Parallel()) if tp <= 16]


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


def test_replicas_multiply_the_sequences():
    two, six = (memory("llama-3.1-8b", Deployment(dp=dp), batch=6) for dp in (2, 6))
    assert six.max_sequences == 3 * two.max_sequences
    assert two.kv_bytes == 3 * six.kv_bytes  # three sequences each, or one
    assert two.weights_bytes == six.weights_bytes


def test_an_uneven_batch_counts_the_fullest_replica():
    assert memory("llama-3.1-8b", Deployment(dp=4), batch=5).kv_bytes == 2 * 1280 * LLAMA_TOKEN


def test_the_tightest_stage_decides():
    """Llama-3.1-8B over three stages: 11 + 11 + 10 layers. The first holds 11 and the table, the
    last 10 and the head with its norm: the first has less room.
    """
    m = memory("llama-3.1-8b", Deployment(pp=3), batch=64, prompt=2000, output=48)
    layer = 2 * (218_103_808 + 2 * 4096)
    assert m.stage == 0
    assert m.weights_bytes == 11 * layer + 2 * 128_256 * 4096
    assert m.kv_bytes == 64 * 2048 * LLAMA_TOKEN * 11 / 32
    assert m.max_sequences == int(m.kv_room_bytes // (2048 * LLAMA_TOKEN * 11 / 32))


def test_the_vision_tower_stands_on_the_first_stage():
    one, two = (memory("gemma-3-27b", Deployment(pp=pp)) for pp in (1, 2))
    assert one.weights_bytes == 2 * (27_009_346_304 + 423_060_336)
    assert two.stage == 0
    assert two.weights_bytes > one.weights_bytes / 2 + 423_060_336


@pytest.mark.parametrize("name", ["llama-3.1-70b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b"])
def test_more_gpus_never_hold_more_each(name):
    """Tensor ranks, stages and expert ranks; the cache too, until its heads are replicated."""
    for layouts in ([Deployment(tp=n) for n in (2, 4, 8)], [Deployment(pp=n) for n in (2, 4, 8)]):
        found: list[Any] = [memory(name, layout) for layout in layouts]
        weights = [f.weights_bytes for f in found]
        assert weights == sorted(weights, reverse=True)
        assert weights[0] > 1.5 * weights[2]
        kv = [f.kv_bytes for f in found]
        assert kv == sorted(kv, reverse=True)


def test_expert_parallel_ranks_hold_their_experts():
    """Qwen3-30B-A3B: 48 layers of 128 experts of 3·2048·768; attention whole on each replica,
    the router's scores for all.
    """
    one, four = (
        memory("qwen3-30b-a3b", Deployment(dp=4, ep=ep), batch=4).weights_bytes for ep in (1, 4)
    )
    assert one == 2 * 30_532_122_624
    assert one - four == 2 * 48 * 96 * 3 * 2048 * 768


# --- arrays ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b", "qwen3-next-80b-a3b"])
@pytest.mark.parametrize("layout", ["paged", "flat", "contiguous"])
def test_arrays_are_the_loop_over_their_numbers(name, layout):
    batch = np.array([[1], [30], [900]])
    prompt = np.array([10, 1000, 8000, 100_000])
    deployment = Deployment(kv_layout=layout, dp=1, max_num_seqs=1000)
    together = memory(name, deployment, batch=batch, prompt=prompt, output=5)
    for i, j in np.ndindex(3, 4):
        one = memory(name, deployment, batch=int(batch[i, 0]), prompt=int(prompt[j]), output=5)
        for field in ("kv_bytes", "kv_stored_bytes", "max_sequences", "max_context", "fits"):
            value = np.broadcast_to(getattr(together, field), (3, 4))[i, j]
            assert value == getattr(one, field), field
    assert np.shape(together.fits) == (3, 4)


def test_warning_where_it_does_not_fit():
    assert not estimate("llama-3.1-70b", "h100-sxm").memory.fits
    assert estimate("llama-3.1-70b", "h100-sxm").warnings
    assert estimate("llama-3.1-8b", "h100-sxm").memory.fits
    assert not estimate("llama-3.1-8b", "h100-sxm").warnings
