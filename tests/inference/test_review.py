"""What reviews found once, held."""

import numpy as np
import pytest

import perfmodel
from perfmodel.errors import InputError
from perfmodel.inference import steps
from perfmodel.operators.context import Step
from perfmodel.operators.record import Collective
from perfmodel.operators.sharding import Parallel
from perfmodel.operators.step import step_operators


def test_records_refuse_wrong_fields_on_one_line():
    with pytest.raises(InputError, match="batch") as caught:
        perfmodel.Workload(batch=0)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="tp"):
        perfmodel.Deployment(tp=0)
    with pytest.raises(InputError, match="batsh"):
        perfmodel.Workload(batsh=1)


def test_a_stated_limit_of_sequences_bounds_the_batch():
    few = perfmodel.Deployment(max_num_seqs=8)
    result = perfmodel.estimate("qwen2.5-0.5b", "h100-sxm", perfmodel.Workload(), few)
    assert result.memory.max_sequences == 8
    two = perfmodel.Deployment(max_num_seqs=8, dp=2)
    result = perfmodel.estimate("qwen2.5-0.5b", "h100-sxm", perfmodel.Workload(batch=2), two)
    assert result.memory.max_sequences == 16  # eight on each replica


def test_the_checkpoints_format_by_name_is_the_checkpoint():
    auto = perfmodel.estimate("gpt-oss-20b", "h100-sxm")
    named = perfmodel.estimate(
        "gpt-oss-20b", "h100-sxm", None, perfmodel.Deployment(weights="mxfp4")
    )
    assert named.memory.weights_bytes == auto.memory.weights_bytes


@pytest.mark.parametrize("inputs", ["int4", "fp32", "mxfp4"])
def test_activations_that_no_kernel_multiplies_are_refused(inputs):
    deployment = perfmodel.Deployment(weights="fp8", activations=inputs)
    with pytest.raises(InputError, match="--activations"):
        perfmodel.estimate("llama-3.1-8b", "h100-sxm", None, deployment)


def test_combined_tokens_are_gathered_not_reduced():
    # tp 2, ep 4 over two replicas: after the combine each rank has its half of the tokens whole.
    model = perfmodel.load_model("mixtral-8x7b")
    operators = step_operators(model, Step("decode", 8, 1, 10), parallel=Parallel(2, 1, 4, 2))
    kinds = [o.kind for o in operators if isinstance(o, Collective) and o.name.startswith("ffn")]
    assert kinds == ["all_gather"]


def test_chunks_in_slabs_are_the_chunks_at_once(monkeypatch):
    workload = perfmodel.Workload(batch=np.array([1, 4]), prompt=1000, prefill_chunk=64)
    whole = perfmodel.estimate("llama-3.1-8b", "h100-sxm", workload)
    monkeypatch.setattr(steps, "SLAB", 6)  # three chunks of two settings at a time
    parts = perfmodel.estimate("llama-3.1-8b", "h100-sxm", workload)
    np.testing.assert_allclose(parts.ttft_s, whole.ttft_s, rtol=1e-12)
    for a, b in zip(parts.prefill.cost.operators, whole.prefill.cost.operators, strict=True):
        np.testing.assert_allclose(a.cost.flops, b.cost.flops, rtol=1e-12)


def test_memory_of_a_batch_is_its_own_in_an_array():
    batches = np.array([1, 8, 4096, 20_000])
    many = perfmodel.estimate(
        "llama-3.1-8b", "h100-sxm", perfmodel.Workload(batch=batches, prompt=1024, output=16)
    ).memory
    for i, batch in enumerate(batches):
        one = perfmodel.estimate(
            "llama-3.1-8b", "h100-sxm", perfmodel.Workload(batch=int(batch), prompt=1024, output=16)
        ).memory
        assert many.fits[i] == one.fits
        assert many.activation_bytes[i] == one.activation_bytes
        assert many.max_context[i] == one.max_context
        assert many.max_sequences == one.max_sequences


def test_unfused_scores_need_memory():
    # Qwen3-8B, one step of vLLM's 8,192 tokens against 32,768 keys: 32 heads · 8,192 · 32,768,
    # scores and probabilities in 16 bits each
    workload = perfmodel.Workload(prompt=32_768)
    fused, unfused = (
        perfmodel.estimate(
            "qwen3-8b", "h100-sxm", workload, perfmodel.Deployment(attention=kind)
        ).memory
        for kind in ("fused", "unfused")
    )
    scores = 32 * 8_192 * 32_768 * 4
    assert unfused.activation_bytes - fused.activation_bytes == pytest.approx(scores)


def test_a_stated_length_binds():
    with pytest.raises(InputError, match="--max-model-len"):
        perfmodel.estimate(
            "qwen3-8b", "h100-sxm", perfmodel.Workload(), perfmodel.Deployment(max_model_len=10)
        )
    for layout in ("paged", "contiguous"):
        deployment = perfmodel.Deployment(max_model_len=8192, kv_layout=layout)
        memory = perfmodel.estimate("qwen3-8b", "h100-sxm", None, deployment).memory
        assert memory.max_context == 8192


def test_learned_positions_end():
    with pytest.raises(InputError, match="positions"):
        perfmodel.estimate("gpt-2", "h100-sxm", perfmodel.Workload(prompt=1000, output=100))
    memory = perfmodel.estimate("gpt-2", "h100-sxm", perfmodel.Workload(prompt=100)).memory
    assert memory.max_context == 1024


def test_encoders_are_sharded():
    one, two = (
        perfmodel.estimate(
            "gemma-3-27b", "h100-sxm", None, perfmodel.Deployment(tp=tp)
        ).memory.weights_bytes
        for tp in (1, 2)
    )
    # norms and the like stay whole on both ranks: a few hundred thousand elements
    assert two == pytest.approx(one / 2, rel=1e-3)


def test_the_last_token_needs_no_position():
    perfmodel.estimate("gpt-2", "h100-sxm", perfmodel.Workload(prompt=1024, output=1))
    with pytest.raises(InputError, match="positions"):
        perfmodel.estimate("gpt-2", "h100-sxm", perfmodel.Workload(prompt=1024, output=2))
