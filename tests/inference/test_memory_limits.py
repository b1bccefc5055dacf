"""Memory over replicas, stages and ranks, and of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfmodel.inference.estimate import estimate
from perfmodel.specs.deployment import Deployment
from tests.inference.memory_case import LLAMA_TOKEN, memory


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
