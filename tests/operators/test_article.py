"""The source article's figures as they should be (design, section 5), against the operators."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.inference.estimate import estimate
from perfmodel.operators.cache import cache_bytes
from perfmodel.operators.context import Step
from perfmodel.operators.step import body_operators, step_operators
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.formats import FORMATS
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.workload import Workload
from tests.operators.support import attentions, gemms, model, named, total

BF16 = FORMATS["bf16"]
D, D_FF, LAYERS, VOCAB = 4096, 11008, 32, 32_000  # LLaMA-7B: 32 heads × 128, all KV heads


def decode(name: str, context: int, batch: int = 1) -> Any:
    """One decode step whose new token sees ``context`` keys, itself included."""
    return step_operators(model(name), Step("decode", batch, 1, context - 1))


def test_decode_flops_per_layer_of_a_gated_mha_model():
    """6d² (QKV) + 4td (scores and values) + 2d² (output) + 6d·d_ff (three matrices)."""
    t = 1000
    body = body_operators(model("llama-1-7b"), Step("decode", 1, 1, t - 1))
    assert named(body, "qkv_proj").flops == 6 * D**2 == 100_663_296
    assert named(body, "attention").flops == 4 * t * D == 16_384_000
    assert named(body, "o_proj").flops == 2 * D**2 == 33_554_432
    ffn = named(body, "ffn.gate_up_proj").flops + named(body, "ffn.down_proj").flops
    assert ffn == 6 * D * D_FF == 270_532_608
    assert total(body) == LAYERS * (6 * D**2 + 4 * t * D + 2 * D**2 + 6 * D * D_FF)


def test_decode_flops_per_layer_of_a_plain_ffn():
    """GPT-2: d = 768, d_ff = 3072, two matrices: 8d² + 4td + 4d·d_ff."""
    body = body_operators(model("gpt-2"), Step("decode", 1, 1, 99))
    assert total(body) == 12 * (8 * 768**2 + 4 * 100 * 768 + 4 * 768 * 3072)


def test_prefill_flops_of_the_whole_body():
    """Per layer 8nd² + 6nd·d_ff, and 4d per causal pair: 4d·n(n+1)/2 = 2n²d + 2nd."""
    n = 512
    body = body_operators(model("llama-1-7b"), Step("prefill", 1, n, 0))
    linear = 8 * n * D**2 + 6 * n * D * D_FF
    assert total(body) == LAYERS * (linear + 2 * n**2 * D + 2 * n * D)
    # The whole square would be 4n²d.
    assert 4 * n**2 * D == named(body, "attention").flops * 2 * n / (n + 1)


def test_prefill_flops_with_a_plain_ffn():
    n = 100
    body = body_operators(model("gpt-2"), Step("prefill", 3, n, 0))
    per_layer = 8 * n * 768**2 + 4 * n * 768 * 3072 + 2 * n * (n + 1) * 768
    assert total(body) == 3 * 12 * per_layer


def test_kv_cache_of_llama_7b_is_mha():
    """2·32 layers·4096 wide·4096 tokens·2 B = 2.147 GB; d is heads × head_dim: no further h."""
    whole = cache_bytes(model("llama-1-7b").layers, 4096, BF16)
    assert whole == 2 * 32 * 4096 * 4096 * 2 == 2_147_483_648


def test_mqa_caches_one_head_of_32():
    mha: Any = model("llama-1-7b")
    shared = mha.layers[0].mixer.model_copy(update={"kv_heads": 1})
    mqa = tuple(layer.model_copy(update={"mixer": shared}) for layer in mha.layers)
    assert cache_bytes(mqa, 4096, BF16) == 2_147_483_648 / 32


def test_activation_peak_is_not_one_of_all_layers():
    """Buffers are reused: twice the layers take no more beside weights and cache."""
    deep = model("llama-1-7b")
    shallow = deep.model_copy(update={"layers": deep.layers[:16]})
    peaks = [estimate(m, "h100-sxm").memory.activation_bytes for m in (deep, shallow)]
    assert peaks[0] == peaks[1]
    # Below one layer's share of "5.0 GB kept in 32 layers", and the sampler's logits.
    logits = 38.04 * VOCAB * 1024  # bytes_per_logit × vocabulary × max_num_seqs
    assert peaks[0] - logits < 5.0e9 / 32


@pytest.mark.parametrize(
    ("name", "ridge"),
    [
        ("a100-sxm-40gb", 201),  # 312 TFLOP/s ÷ 1.555 TB/s = 200.6
        ("a100-sxm-80gb", 153),  # 312 ÷ 2.039 = 153.0
    ],
)
def test_ridge_points_of_the_two_a100(name, ridge):
    hardware: Any = load_hardware(name)
    assert round(hardware.peak("bf16") / hardware.memory_bandwidth) == ridge
    assert round(estimate("llama-1-7b", name).prefill.ridge_point) == ridge


def kv_share(batch: int, context: int) -> Any:
    operators = decode("llama-1-7b", context, batch)
    cache = total(operators, "cache_bytes")
    return cache / (cache + total(operators, "weight_bytes"))


def test_kv_share_of_decode_traffic_depends_on_batch_and_context():
    """Weights read: 2 B × (6,738,415,616 − 32,000·4096 of the input table) = 13.21 GB.

    Cache read at 2,048: 1.0737 GB a sequence. One sequence: 7.5 %; 32 of them: 72 %.
    """
    weights = 2 * (6_738_415_616 - VOCAB * D)
    one = 2 * 32 * 4096 * 2048 * 2
    assert kv_share(1, 2048) == pytest.approx(one / (one + weights))
    assert kv_share(1, 2048) == pytest.approx(0.075, abs=0.001)
    assert kv_share(32, 2048) == pytest.approx(0.722, abs=0.001)
    # At batch 1 the cache overtakes the weights beyond 13.21e9 / 524,288 B = 25,205 tokens.
    assert kv_share(1, 25_000) < 0.5 < kv_share(1, 25_400)


@pytest.mark.parametrize(
    ("name", "group"),
    [("llama-1-7b", 1), ("llama-3.1-8b", 4), ("llama-3.1-70b", 8), ("falcon-7b", 71)],
)
def test_decode_intensity_of_attention_is_about_the_group_size(name, group):
    """Q, K, V and output counted: 4·h·d·t FLOPs over 2 B × (2·h_kv·d·t + 2·h·d) = g·t/(t + g)."""
    t = 8192
    (attention,) = attentions(decode(name, t))
    intensity = attention.flops / attention.bytes
    assert intensity == pytest.approx(group * t / (t + group))
    assert intensity == pytest.approx(group, rel=0.01)


def test_decode_intensity_of_the_weights_is_the_batch():
    """A GEMM of m rows: 2mnk FLOPs over 2nk bytes of weights."""
    for operator in gemms(decode("llama-1-7b", 100, batch=16)):
        assert operator.flops / operator.weight_bytes == 16


def test_unfused_attention_moves_the_scores_and_computes_the_same():
    """Four passes over heads × queries × keys scores of 2 B: 4·2·32·1024² = 268 MB a layer."""
    step = Step("prefill", 1, 1024, 0)
    fused, plain = (
        named(body_operators(model("llama-1-7b"), step, fused_attention=f), "attention")
        for f in (True, False)
    )
    assert plain.flops == fused.flops
    assert plain.bytes - fused.bytes == 4 * 2 * 32 * 1024**2 == 268_435_456
    slow = estimate(
        "llama-1-7b", "a100-sxm-80gb", Workload(prompt=1024), Deployment(attention="unfused")
    )
    assert slow.ttft_s > estimate("llama-1-7b", "a100-sxm-80gb", Workload(prompt=1024)).ttft_s
