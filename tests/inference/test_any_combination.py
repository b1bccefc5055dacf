"""Levers drawn at random: every combination answers in order, or says in one line why not."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from perfmodel.errors import InputError
from perfmodel.inference.record import estimate_record
from perfmodel.specs.deployment import Deployment
from tests.inference.combination_case import LLAMA, run

MODELS = (
    LLAMA, "mixtral-8x7b-v0.1", "deepseek-v2-lite", "gpt-oss-20b", "gemma-3-27b", "qwen3.5-27b",
    "jamba-v0.1", "mistral-7b-v0.1", "deepseek-v3.2", "falcon-7b",
)  # fmt: skip


METHODS = ("medusa", "eagle", "ngram", "lookahead")


FIELDS: dict[str, tuple[Any, ...]] = {
    "tp": (2, 4, 8), "pp": (2,), "cp": (2,), "dcp": (2,), "pp_microbatches": (2,),
    "sequence_parallel": (True,), "comm_overlap": (0.5,), "gpus_per_node": (1, 4),
    "weights": ("fp8", "int4", "mxfp4", "q4_k_m"), "activations": ("bf16", "fp8"),
    "kv_cache": ("fp8", "int4", "kivi4", "q8_0/q4_0", "int8_per_token_head"),
    "communication": ("fp8_block", "int8_g128"), "fusion": ("none", "full"),
    "engine": ("sglang", "trtllm-2025", "lmdeploy", "llamacpp-cuda"),
    "execution": ("eager",), "attention": ("unfused", "flash2"),
    "kv_layout": ("flat", "contiguous"), "block_size": (1, 128),
    "kv_manager": ("hybrid", "uniform"), "kv_window": (100, 10**6), "kv_budget": (100, 10**6),
    "kv_offload": (0.3, 1.0), "cpu_offload_gb": (1.0, 1e3), "offload_overlap": (0.5,),
}  # fmt: skip


@st.composite
def drawn(draw: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A model, at most six levers and perhaps speculation, a workload."""
    fields = {
        name: draw(st.sampled_from(FIELDS[name]))
        for name in draw(st.sets(st.sampled_from(sorted(FIELDS)), max_size=6))
    }
    if draw(st.integers(0, 3)) == 0:
        method = draw(st.sampled_from(METHODS))
        tokens = draw(st.integers(0, 5))
        fields["speculation"] = {"method": method, "tokens": tokens, "acceptance": 0.6}
    load = {
        "batch": draw(st.sampled_from((2, 7, 64))),
        "prompt": draw(st.sampled_from((20, 600, 5000))),
        "output": draw(st.sampled_from((2, 90))),
    }
    if draw(st.booleans()):
        load |= {"cached_prefix": 19, "prefix_share": draw(st.sampled_from((None, 0.5)))}
    if draw(st.booleans()):
        load["prefill_chunk"] = 512
    return draw(st.sampled_from(MODELS)), fields, load


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict | list | tuple):
        inner = value.values() if isinstance(value, dict) else value
        return [number for item in inner for number in numbers(item)]
    return [value] if isinstance(value, float) else []


@settings(max_examples=50, deadline=None)
@given(drawn())
def test_any_combination(case):
    """It is refused in one line, or its parts add up, in order, and go through JSON."""
    name, fields, load = case
    try:
        found = run(name, "h100-sxm", load, **fields)
    except ValidationError:
        reject()
    except InputError as error:
        refusal = str(error)
        found = None
    if found is None:
        assert "\n" not in refusal
        return
    record = estimate_record(found)
    assert json.loads(json.dumps(record, allow_nan=False))["model"] == found.model.name
    assert Deployment(**record["deployment"]) == found.plan.deployment
    assert all(math.isfinite(number) for number in numbers(record))
    for key in ("ttft_s", "tpot_s", "total_s", "output_tokens_per_s"):
        assert 0 < record[f"{key}_low"] <= record[key] <= record[f"{key}_high"]
    for phase in (record["prefill"], record["decode"]):
        each = phase["operators"]
        assert sum(row["time_s"] for row in each) == pytest.approx(phase["time_s"])
        assert all(row["time_s_low"] <= row["time_s"] * (1 + 1e-12) for row in each)
        assert all(row["time_s"] <= row["time_s_high"] * (1 + 1e-12) for row in each)
    memory = record["memory"]
    parts = ("weights", "kv", "activation", "reserved")
    assert memory["required_bytes"] == pytest.approx(sum(memory[f"{p}_bytes"] for p in parts))
    assert memory["kv_stored_bytes"] <= memory["kv_bytes"] * (1 + 1e-12)
    assert memory["fits"] == (memory["max_sequences"] >= load["batch"])


@settings(max_examples=15, deadline=None)
@given(drawn())
def test_any_combination_over_arrays(case):
    name, fields, load = case
    prompts = np.array([load["prompt"], load["prompt"] + 50])
    try:
        together = run(name, "h100-sxm", load | {"prompt": prompts}, **fields)
    except (InputError, ValidationError):
        reject()
    for index, prompt in enumerate(prompts.tolist()):
        alone = run(name, "h100-sxm", load | {"prompt": prompt}, **fields)
        for key in ("ttft_s", "tpot_s", "total_s"):
            assert getattr(together, key)[index] == pytest.approx(getattr(alone, key), rel=1e-9)
        for key in ("fits", "max_sequences", "max_context"):
            assert np.ravel(getattr(together.memory, key))[index % np.size(
                getattr(together.memory, key))] == getattr(alone.memory, key)  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from((*MODELS[:7], "qwen3-30b-a3b")),
    st.sampled_from(("h100-sxm", "h200-sxm", "a100-sxm-80gb", "b200-sxm", "l40s", "mi300x")),
    st.sampled_from((1, 2, 4)),
    st.sampled_from((1, 8, 64)),
    st.integers(100, 4000),
)
def test_unfused_attention_is_never_faster(name, on, tp, batch, prompt):
    load = {"batch": batch, "prompt": prompt, "output": 5}
    fused, unfused = (run(name, on, load, tp=tp, attention=a) for a in ("fused", "unfused"))
    assert unfused.ttft_s >= fused.ttft_s * (1 - 1e-12)
    assert unfused.decode.time_s >= fused.decode.time_s * (1 - 1e-12)
    for cost in (unfused.prefill.cost.total, unfused.decode.cost.total):
        assert cost.roof_s <= cost.low_s * (1 + 1e-12)
