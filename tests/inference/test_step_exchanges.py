"""Which exchanges a step has, of which sizes."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.inference.estimate import estimate
from perfmodel.operators.context import Step
from perfmodel.operators.record import Collective
from perfmodel.operators.sharding import Parallel
from perfmodel.operators.step import step_operators
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.workload import Workload
from tests.operators.support import model


def exchanges(name: str, parallel: Parallel, step: Step) -> dict[str, tuple[Any, ...]]:
    operators = step_operators(model(name), step, parallel=parallel)
    return {
        o.name: (o.count, o.kind, o.message_bytes, o.ranks)
        for o in operators
        if isinstance(o, Collective)
    }


def test_two_all_reduces_a_layer_and_one_behind_the_embedding():
    """Each of 8 tokens × 4096 × 2 B; the logits of 8 rows × 128,256 × 2 B are gathered."""
    found = exchanges("llama-3.1-8b", Parallel(tp=2), Step("decode", 8, 1, 100))
    message = 8 * 4096 * 2
    assert found == {
        "embedding.all_reduce": (1, "all_reduce", message, 2),
        "mixer.all_reduce": (32, "all_reduce", message, 2),
        "ffn.all_reduce": (32, "all_reduce", message, 2),
        "lm_head.all_gather": (1, "all_gather", 8 * 128_256 * 2, 2),
    }


def test_parallel_blocks_are_reduced_once():
    """Falcon-180B and Command-R add mixer and feed-forward before the exchange."""
    for name, layers in (("falcon-180b", 80), ("command-r-35b", 40)):
        found = exchanges(name, Parallel(tp=4), Step("prefill", 1, 10, 0))
        reduced = [o for o in found if o.endswith("all_reduce") and "embedding" not in o]
        assert [found[o][0] for o in reduced] == [layers]


def test_prefill_reduces_every_token_and_gathers_one_row():
    found = exchanges("llama-3.1-8b", Parallel(tp=8), Step("prefill", 2, 500, 100))
    assert found["mixer.all_reduce"][2] == 1000 * 4096 * 2
    assert found["lm_head.all_gather"][2] == 2 * 128_256 * 2


def test_one_gpu_exchanges_nothing():
    assert exchanges("qwen3-30b-a3b", Parallel(), Step("decode", 8, 1, 100)) == {}
    assert exchanges("qwen3-30b-a3b", Parallel(dp=4), Step("decode", 8, 1, 100)) == {}


def test_stages_hand_over_the_hidden_state():
    found = exchanges("llama-3.1-8b", Parallel(pp=4), Step("decode", 8, 1, 100))
    assert found == {"stage.send_recv": (3, "send_recv", 8 * 4096 * 2, 2)}


def test_experts_across_replicas_are_reached_by_all_to_all():
    """8 tokens a rank × 4·(1 − 0.75⁸) = 3.5995 ranks each × 2048 × 2 B, there and back; 48
    layers. A quarter stays: 3/4 crosses the wire.
    """
    parallel = Parallel(ep=4, dp=4)
    found = exchanges("qwen3-30b-a3b", parallel, Step("decode", 8, 1, 100))
    message = 8 * 4 * (1 - 0.75**8) * 2048 * 2
    assert found == {
        "experts.dispatch": (48, "all_to_all", pytest.approx(message), 4),
        "experts.combine": (48, "all_to_all", pytest.approx(message), 4),
    }
    result = estimate("qwen3-30b-a3b", "h100-sxm", Workload(batch=32), Deployment(ep=4, dp=4))
    assert result.decode.cost.total.wire_bytes == pytest.approx(2 * 48 * 0.75 * message)


def test_quantised_tokens_are_dispatched_in_eight_bits_and_come_back_in_sixteen():
    deployment = Deployment(ep=4, dp=4, weights="fp8")
    result = estimate("qwen3-30b-a3b", "h100-sxm", Workload(batch=32), deployment)
    wire = {row.name: row.cost.wire_bytes for row in result.decode.cost.operators}
    assert wire["experts.combine"] == pytest.approx(2 * wire["experts.dispatch"])


def test_experts_inside_the_tensor_parallel_group_need_no_exchange_of_their_own():
    found = exchanges("qwen3-30b-a3b", Parallel(tp=4, ep=4), Step("decode", 8, 1, 100))
    assert not any("experts" in name for name in found)


def test_an_uneven_batch_is_as_slow_as_its_fullest_replica():
    """Five sequences on two replicas: three on one. Throughput counts all five."""
    five = estimate("llama-3.1-8b", "h100-sxm", Workload(batch=5), Deployment(dp=2))
    three = estimate("llama-3.1-8b", "h100-sxm", Workload(batch=3))
    assert five.ttft_s == three.ttft_s
    assert five.tpot_s == three.tpot_s
    assert five.output_tokens_per_s == pytest.approx(5 / 3 * three.output_tokens_per_s)


def test_more_ranks_share_the_work_of_a_step():
    """Weights and cache read by a rank: a half; compute-bound prefill too, beside the exchange."""
    one, two = (
        estimate("llama-3.1-8b", "h100-sxm", Workload(batch=8, prompt=4096), Deployment(tp=tp))
        for tp in (1, 2)
    )
    norms = 2 * 4096 * 65  # held by both
    a, b = one.decode.cost.total, two.decode.cost.total
    assert 2 * b.weight_bytes - norms == a.weight_bytes
    assert 2 * b.cache_bytes == a.cache_bytes
    assert 2 * b.flops == a.flops
    assert one.ttft_s / 2 < two.ttft_s < one.ttft_s
