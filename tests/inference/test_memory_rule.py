"""Each engine's rule of the memory share: by hand, and its limits one step either side."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel import Deployment, Workload, load_hardware, load_model
from perfmodel.inference.memory import memory_use
from perfmodel.inference.memory_rule import Reserve
from perfmodel.inference.plan import make_plan
from perfmodel.specs.engine import load_engine
from perfmodel.units import GIB

RULES = ("total", "static", "free", "free_after_weights")


@pytest.mark.parametrize(
    ("rule", "room"),
    [
        ("total", 0.8 * 100 - 2 - 30 - 6),  # 42
        ("static", 0.8 * (100 - 2) - 30),  # 48.4; the rest, 19.6, holds the activations
        ("free", 0.8 * (100 - 2 - 30 - 6)),  # 49.6
        ("free_after_weights", 0.8 * (100 - 2 - 30)),  # 54.4; the rest is 13.6
    ],
)
def test_rooms_by_hand(rule, room):
    keeps = Reserve(rule, 0.8, 100.0, 2.0)
    assert keeps.room_bytes(30.0, 6.0) == pytest.approx(room)
    assert keeps.reserved_bytes(30.0, 6.0) == pytest.approx(100 - 30 - 6 - room)


@given(
    st.sampled_from(RULES),
    st.floats(0.05, 1.0),
    st.floats(0, 5),
    st.floats(0, 120),
    st.floats(0, 120),
)
def test_parts_add_up_and_nothing_is_used_twice(rule, share, outside, weights, activation):
    keeps = Reserve(rule, share, 100.0, outside)
    room, reserved = (
        keeps.room_bytes(weights, activation),
        keeps.reserved_bytes(weights, activation),
    )
    assert room + reserved + weights + activation == pytest.approx(100)
    assert reserved >= outside - 1e-9
    assert room <= keeps.ceiling_bytes(weights) + 1e-9


def test_a_share_of_one_keeps_nothing_back():
    rooms = [Reserve(rule, 1.0, 100.0, 2.0).room_bytes(30.0, 6.0) for rule in RULES]
    assert rooms == pytest.approx([62.0] * 4)


def test_activations_that_the_rest_cant_hold_shrink_the_room():
    assert Reserve("static", 0.9, 100.0, 0.0).room_bytes(30.0, 25.0) == pytest.approx(45.0)


def memory(engine, batch=1, **flags):
    model, hardware = load_model("llama-3.1-8b"), load_hardware("h100-sxm")
    load = Workload(batch=batch, prompt=4000, output=96)
    plan = make_plan(model, hardware, load, Deployment(engine=engine, **flags))
    return memory_use(model, hardware, load, plan), plan


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from(["sglang", "lmdeploy", "trtllm-2025", "trtllm", "vllm"]),
    st.floats(0.3, 1.0),
    st.sampled_from([None, 64, 256]),
)
def test_the_largest_batch_fits_and_one_more_does_not(engine, share, limit):
    flags = {"gpu_memory_utilization": share, "max_num_seqs": limit}
    found, _ = memory(engine, **flags)
    most = int(found.max_sequences)
    if most:
        assert memory(engine, most, **flags)[0].fits
    if limit is None or most < limit:
        assert not memory(engine, most + 1, **flags)[0].fits


def test_sglangs_share_follows_from_its_reserve():
    """512 + 1.5·8,192 + 2·256 + 128·1 MiB of 79.18 GiB; tp 4 captures 512, on four GPUs."""
    kept = 512 + 1.5 * 8192 + 2 * 256 + 128
    capacity = load_hardware("h100-sxm").capacity_bytes
    assert memory("sglang")[1].deployment.gpu_memory_utilization == pytest.approx(
        round(1 - kept * 2**20 / capacity, 3)
    )
    four = 512 + 1.5 * 8192 + 2 * 512 + 128 * 4
    assert memory("sglang", tp=4)[1].deployment.gpu_memory_utilization == pytest.approx(
        round(1 - four * 2**20 / capacity, 3)
    )
    # at least 10 GiB on a large device, however small a step is
    small = memory("sglang", max_num_batched_tokens=1024)[1].deployment.gpu_memory_utilization
    assert small == pytest.approx(round(1 - 10 * GIB / capacity, 3))


def test_sglangs_published_room():
    """Qwen3-235B-A22B-FP8 on 4 × H100 at 0.93: 367,404 tokens (vLLM issue 21348)."""
    model, hardware = load_model("qwen3-235b-a22b"), load_hardware("h100-sxm")
    given = Deployment(tp=4, weights="fp8_block", engine="sglang", gpu_memory_utilization=0.93)
    load = Workload()
    room = memory_use(model, hardware, load, make_plan(model, hardware, load, given)).kv_room_bytes
    # 94 layers · 2 · one KV head · 128 · 2 B a token on each of four ranks
    assert room / (94 * 2 * 128 * 2) == pytest.approx(367_404, rel=0.08)


@pytest.mark.parametrize(
    ("engine", "hardware", "tp", "limits", "graph"),
    [
        ("sglang", "h100-sxm", 1, (2048, 8192), 256),
        ("sglang", "h100-sxm", 8, (2048, 8192), 512),
        ("sglang", "b200-sxm", 1, (2048, 16384), 512),
        ("sglang", "l40s", 1, (2048, 4096), 32),
        ("sglang", "rtx-4090", 1, (2048, 2048), 24),
        ("sglang", "t4", 1, (2048, 2048), 8),
        ("lmdeploy", "a100-sxm-80gb", 1, (384, 8192), None),
        ("lmdeploy", "h200-sxm", 1, (1024, 8192), None),
        ("lmdeploy", "l40s", 1, (128, 8192), None),
        ("vllm", "a100-sxm-80gb", 1, (256, 2048), 512),
        ("trtllm-2025", "h100-sxm", 1, (2048, 8192), 128),
    ],
)
def test_defaults_by_device(engine, hardware, tp, limits, graph):
    found, device = load_engine(engine), load_hardware(hardware)
    chosen = found.default_limits(device)
    assert (chosen.max_num_seqs, chosen.max_num_batched_tokens) == limits
    assert found.graph_batch(device, tp) == graph


def test_arrays_of_batches_are_the_loop_over_them():
    many = memory("sglang", np.array([1, 40, 4000]))[0]
    for index, batch in enumerate((1, 40, 4000)):
        one = memory("sglang", batch)[0]
        assert many.fits[index] == one.fits
        assert np.broadcast_to(many.max_sequences, 3)[index] == one.max_sequences or batch == 4000
