"""The blocks of a plan against memory's own account of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfmodel.errors import CapacityError, InputError
from perfmodel.inference.kv_store import stated_length
from perfmodel.inference.memory import memory_use
from perfmodel.inference.plan import Plan, make_plan
from perfmodel.serving.kv_room import KvRoom, kv_room
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload
from tests.operators.strategies import models
from tests.operators.support import model

H100 = load_hardware("h100-sxm")


def planned(m: Model, deployment: Deployment, hardware: Hardware = H100) -> Plan:
    smallest = Workload(batch=deployment.dp, prompt=1, output=1)
    return make_plan(m, hardware, smallest, deployment)


def room(name: str, **settings: Any) -> KvRoom:
    m = model(name)
    return kv_room(m, H100, planned(m, Deployment(**settings)))


def test_llama_8b_on_an_h100():
    # A token takes 131,072 bytes, a block of 16 2 MiB; vLLM 0.11 logs 51.38 GiB for the cache.
    llama = room("llama-3.1-8b")
    assert llama.block_bytes == 16 * 131_072
    assert llama.capacity == pytest.approx(51.38 * 512, rel=0.01)
    assert (llama.fixed, llama.grows) == ((), True)


def test_a_reserved_length():
    # 8192 tokens of 131,072 bytes are 1 GiB for each sequence, whatever it needs.
    llama = room("llama-3.1-8b", kv_layout="contiguous", max_model_len=8192)
    assert llama.capacity == pytest.approx(51.38, rel=0.01)
    assert (llama.block_bytes, llama.fixed, llama.grows) == (2**30, (1.0,), False)
    assert llama.blocks().longest() == 8192


def test_windows_are_fixed_up_to_their_length():
    # gpt-oss-20b: 12 of 24 layers keep 128 tokens, which are 8 blocks of 16; a block counts the
    # other 12, so that a sequence of i blocks takes min(i, 8) of the same size beside them.
    oss = room("gpt-oss-20b")
    assert oss.fixed == (1.0, *(float(i) for i in range(1, 9)))
    assert oss.blocks().fixed_of(20) == 2
    assert oss.blocks().fixed_of(5000) == 8


def test_the_fullest_stage_counts():
    # Llama-3.1-8B has as many layers in each of two stages: a block takes half of it on each.
    llama = room("llama-3.1-8b", pp=2)
    assert llama.block_bytes == 8 * 131_072
    m = model("llama-3.1-8b")
    sequences = int(llama.capacity / llama.blocks().of(160_000))
    plan = planned(m, Deployment(pp=2))
    for count, fits in ((sequences, True), (sequences + 1, False)):
        asked = Workload(batch=count, prompt=159_999, output=1)
        assert memory_use(m, H100, asked, plan).fits == fits


def test_no_room_is_said():
    m = model("llama-3.1-70b")
    with pytest.raises(CapacityError, match="no room for a KV cache"):
        kv_room(m, H100, planned(m, Deployment()))


@given(
    models(),
    st.sampled_from(["paged", "flat", "contiguous"]),
    st.sampled_from([1, 16, 64]),
    st.sampled_from([None, 2, 40, 700]),
    st.lists(st.integers(2, 3000), min_size=1, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_blocks_are_memorys_bytes(
    m: Model, layout: Any, block: int, stated: int | None, lengths: list[int]
):
    deployment = Deployment(kv_layout=layout, block_size=block, max_model_len=stated)
    try:
        plan = planned(m, deployment)
        cache = kv_room(m, H100, plan)
    except InputError:
        assume(False)
    blocks = cache.blocks()
    asked = np.minimum(np.array(lengths), stated_length(plan, m) or 3000)
    workload = Workload(batch=1, prompt=asked - 1, output=1)
    needs = np.broadcast_to(memory_use(m, H100, workload, plan).kv_bytes, asked.shape)
    for length, need in zip(asked, needs, strict=True):
        counted = blocks.of(int(length)) + blocks.fixed_of(int(length))
        assert counted * cache.block_bytes == pytest.approx(need, rel=1e-6)
    longest = blocks.longest()
    if longest:
        assert longest <= (stated or 2**31)
