"""Formats resolved against model and chip; layouts and workloads that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from perfmodel.errors import InputError
from perfmodel.inference.estimate import estimate
from perfmodel.inference.plan import Plan, make_plan
from perfmodel.operators.sharding import Parallel, local_layer, possible_tp
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.workload import LARGEST, Workload
from tests.operators.support import model


def plan(name: str, on: str, **deployment: Any) -> Plan:
    return make_plan(model(name), load_hardware(on), Workload(batch=64), Deployment(**deployment))


@pytest.mark.parametrize(
    ("on", "weights", "inputs", "arithmetic", "noted"),
    [
        ("h100-sxm", "auto", "bf16", "bf16", False),
        ("h100-sxm", "fp8", "fp8", "fp8", False),
        ("h100-sxm", "fp8_block", "fp8", "fp8", False),
        ("a100-sxm-80gb", "fp8", "bf16", "bf16", True),  # no FP8 units: widened
        ("a100-sxm-80gb", "int8", "int8", "int8", False),
        ("h100-sxm", "int4", "bf16", "bf16", True),  # weight-only
        ("b200-sxm", "nvfp4", "nvfp4", "fp4", False),
        ("h100-sxm", "nvfp4", "bf16", "bf16", True),
        ("v100-sxm-32gb", "auto", "bf16", "fp16", True),  # no bf16 multiply-add
        ("v100-sxm-32gb", "int4", "bf16", "fp16", True),
    ],
)
def test_formats_follow_the_chip(on, weights, inputs, arithmetic, noted):
    found = plan("llama-3.1-8b", on, weights=weights)
    assert found.formats.linear.name == (weights if weights != "auto" else "bf16")
    assert found.formats.inputs.name == inputs
    assert found.formats.linear_arithmetic == found.formats.expert_arithmetic == arithmetic
    assert bool(found.notes) == noted
    assert found.formats.head.name == "bf16"
    estimate("llama-3.1-8b", on, deployment=Deployment(weights=weights))  # and has peaks for all


def test_wider_inputs_decide_the_arithmetic():
    found = plan("llama-3.1-8b", "h100-sxm", weights="fp8", activations="bf16")
    assert found.formats.linear_arithmetic == "bf16"
    assert not found.formats.main.quantises_inputs
    mixed = plan("llama-3.1-8b", "b200-sxm", weights="nvfp4", activations="fp8")
    assert mixed.formats.linear_arithmetic == "fp8"


def test_only_the_experts_of_gpt_oss_are_in_mxfp4():
    """By default, as its checkpoint says; attention and head stay in 16 bits."""
    formats = plan("gpt-oss-120b", "h100-sxm").formats
    named = (formats.linear.name, formats.expert.name, formats.head.name)
    assert named == ("bf16", "mxfp4", "bf16")
    assert formats.of_role("router").name == formats.of_role("vector").name == "bf16"


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-r1", "kimi-k2-instruct", "minimax-m2"])
def test_checkpoints_in_fp8_blocks(name):
    formats = plan(name, "h100-sxm").formats
    named = (formats.linear.name, formats.expert.name, formats.head.name)
    assert named == ("fp8_block", "fp8_block", "bf16")
    assert formats.linear_arithmetic == "fp8"
    understood = plan(name, "h100-sxm").deployment
    assert (understood.weights, understood.activations) == ("fp8_block", "fp8")
    assert plan(name, "h100-sxm", weights="bf16").formats.linear.name == "bf16"


def test_quantised_weights_are_read_in_their_bytes():
    """Llama-3.1-8B: the head of 128,256·4096 and 65 norms in 16 bits; each matrix of the layers
    in one byte and one fp32 scale, or four bits with 20 for each 128.
    """
    layers = 32 * 218_103_808
    rest = 2 * (128_256 * 4096 + 65 * 4096)
    for weights, expected in (
        ("bf16", 2 * layers),
        ("fp8", layers + 4 * 4 * 32),
        ("int4", layers * 4.15625 / 8),
    ):
        result = estimate("llama-3.1-8b", "h100-sxm", deployment=Deployment(weights=weights))
        assert result.decode.cost.total.weight_bytes == expected + rest


def test_two_bytes_a_key_become_one():
    bf16, fp8 = (
        estimate("llama-3.1-8b", "h100-sxm", deployment=Deployment(kv_cache=kv)).decode.cost.total
        for kv in ("bf16", "fp8")
    )
    assert bf16.cache_bytes == 2 * fp8.cache_bytes
    assert bf16.weight_bytes == fp8.weight_bytes


def test_defaults_are_filled_in():
    understood = plan("llama-3.1-8b", "h100-sxm").deployment
    assert understood.max_num_seqs == 1024
    assert understood.max_num_batched_tokens == 8192
    assert (understood.kv_layout, understood.block_size) == ("paged", 16)
    assert understood.gpu_memory_utilization == 0.9
    assert plan("llama-3.1-8b", "a100-sxm-80gb").deployment.max_num_seqs == 256


def test_a_batch_beyond_the_engines_limit_raises_it():
    """3,000 sequences on one replica need as many rows of logits: 38.04 B × 128,256 each."""
    few, many = (
        estimate("llama-3.1-8b", "h200-sxm", Workload(batch=n, prompt=1, output=1)).memory
        for n in (1, 3000)
    )
    assert many.activation_bytes - few.activation_bytes == pytest.approx(
        (3000 - 1024) * 38.04 * 128_256
    )


# --- what is refused ---------------------------------------------------------------------------


def refusal(name: str, workload: Workload | None = None, on: str = "h100-sxm", **kw: Any) -> str:
    with pytest.raises(InputError) as error:
        estimate(name, on, workload, Deployment(**kw))
    message = str(error.value)
    assert message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("name", "deployment", "named"),
    [
        ("llama-3.1-8b", {"tp": 3}, "--tp"),
        ("llama-3.1-8b", {"tp": 64}, "--tp"),  # 32 heads
        ("falcon-7b", {"tp": 2}, "--tp"),  # 71 heads
        ("phi-2", {"tp": 5}, "--tp"),
        ("llama-3.1-8b", {"ep": 2, "tp": 2}, "--ep"),  # no experts
        ("llama-3.1-8b", {"pp": 33}, "--pp"),
        ("mixtral-8x7b", {"ep": 2}, "--ep"),  # one GPU
        ("mixtral-8x7b", {"ep": 16, "dp": 16}, "--ep"),  # eight experts
        ("mixtral-8x7b", {"tp": 4, "ep": 6, "dp": 3}, "--ep"),
        ("llama-3.1-8b", {"dp": 65}, "--dp"),  # more replicas than sequences
        ("llama-3.1-8b", {"weights": "fp7"}, "weights: "),
        ("llama-3.1-8b", {"activations": "e5m2"}, "activations: "),
        ("llama-3.1-8b", {"kv_cache": "none"}, "kv_cache: "),
        ("llama-3.1-8b", {"activations": "fp8"}, "--activations"),  # with 16-bit weights
        ("llama-3.1-8b", {"activations": "fp8", "weights": "bf16"}, "--activations"),
        ("llama-3.1-8b", {"engine": "none"}, "--engine"),
        ("llama-3.1-8b", {"max_num_seqs": 63}, "--max-num-seqs"),  # a batch of 64
    ],
)
def test_deployments_that_cannot_be(name, deployment, named):
    assert named in refusal(name, Workload(batch=64), **deployment)


def test_a_refused_tp_names_those_that_do():
    assert "1, 2, 4, 8, 16, 32" in refusal("llama-3.1-8b", tp=3)


@pytest.mark.parametrize("name", ["llama-3.1-70b", "qwen2.5-0.5b", "nemotron-h-8b", "gpt-oss-20b"])
def test_possible_tp_is_what_every_layer_takes(name):
    found = set(possible_tp(model(name), Parallel()))
    for tp in range(1, 65):
        try:
            for layer in set(model(name).layers):
                local_layer(layer, Parallel(tp=tp))
        except InputError:
            assert tp not in found
        else:
            assert tp in found


WRONG_WORKLOADS: list[dict[str, Any]] = [
    {"batch": 0},
    {"batch": -1},
    {"batch": float("nan")},
    {"batch": float("inf")},
    {"batch": 1e30},
    {"batch": LARGEST + 1},
    {"batch": 1.5},
    {"batch": "3"},
    {"batch": True},
    {"batch": None},
    {"batch": []},
    {"batch": [1, 0]},
    {"batch": np.array([1.0, np.nan])},
    {"batch": np.array([1 + 2j])},
    {"prompt": 0},
    {"output": 0},
    {"cached_prefix": -1},
    {"prompt": 5, "cached_prefix": 5},
    {"prompt": np.array([5, 6]), "cached_prefix": np.array([4, 6])},
    {"batch": np.ones(3), "prompt": np.ones(4)},
    {"prefill_chunk": 0},
    {"prefill_chunk": [1, 2]},
    {"sequences": 3},
]


@pytest.mark.parametrize("fields", WRONG_WORKLOADS, ids=str)
def test_workloads_that_cannot_be(fields):
    with pytest.raises(InputError) as error:
        Workload.parse(fields, "workload")
    assert "\n" not in str(error.value)
    with pytest.raises((InputError, ValidationError)):
        Workload(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"tp": 0},
        {"tp": 2.0},
        {"tp": "2"},
        {"gpu_memory_utilization": 1.1},
        {"gpu_memory_utilization": 0.0},
        {"gpu_memory_utilization": float("nan")},
        {"kv_layout": "heap"},
        {"block_size": 0},
        {"tensor_parallel": 2},
    ],
    ids=str,
)
def test_settings_that_cannot_be(fields):
    with pytest.raises(InputError) as error:
        Deployment.parse(fields, "deployment")
    assert "\n" not in str(error.value)


def test_the_largest_workload_is_answered():
    """No overflow and nothing infinite at the far end."""
    result = estimate(
        "llama-3.1-405b", "h100-sxm", Workload(batch=LARGEST, prompt=LARGEST, output=1)
    )
    assert np.isfinite(result.ttft_s)
    assert result.prefill.cost.total.flops > 1e28
    assert not result.memory.fits
