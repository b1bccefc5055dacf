"""Numbers with known answers, each a mistake that real tools have shipped (cases 5 to 20)."""

from __future__ import annotations

import pytest

from perfmodel.inference.estimate import estimate
from perfmodel.operators.cache import cache_bytes
from perfmodel.operators.context import Step
from perfmodel.operators.feed_forward import expected_experts
from perfmodel.operators.format_bytes import matrix_bytes
from perfmodel.operators.step import body_operators, head_operators, step_operators
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.formats import FORMATS
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.workload import Workload
from tests.operators.support import attentions, model, named, total

BF16 = FORMATS["bf16"]
EVERY_EXPERT = 10**6  # tokens in a step that touch all experts


@pytest.mark.parametrize(
    ("name", "tokens", "elements"),
    [
        # All parameters less the input table, of which a step reads its tokens' rows alone.
        ("mixtral-8x7b", EVERY_EXPERT, 46_702_792_704 - 32_000 * 4096),
        ("mixtral-8x7b", 1, 12_879_925_248 - 32_000 * 4096),
        ("deepseek-v3", EVERY_EXPERT, 671_026_419_200 - 129_280 * 7168),
        ("deepseek-v3", 1, 36_625_618_432),
    ],
)
def test_one_token_reads_the_active_parameters_and_many_read_all(name, tokens, elements):
    read = total(step_operators(model(name), Step("decode", tokens, 1, 0)), "weight_bytes")
    assert read / 2 == pytest.approx(elements, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "per_token"),
    [
        ("llama-2-7b", 524_288),  # 2·32 layers·32 heads·128·2 B
        ("llama-3.1-8b", 131_072),  # 2·32·8·128·2
        ("llama-3.1-70b", 327_680),  # 2·80·8·128·2
        ("llama-3.1-405b", 516_096),  # 2·126·8·128·2
        ("mixtral-8x7b", 131_072),
        ("qwen3-8b", 147_456),  # 2·36·8·128·2
        ("falcon-7b", 8_192),  # one KV head of 64, not 71: 2·32·64·2
    ],
)
def test_kv_bytes_of_a_token(name, per_token):
    layers = model(name).layers
    assert cache_bytes(layers, 1, BF16) == per_token
    assert cache_bytes(layers, 1000, BF16) == 1000 * per_token


@pytest.mark.parametrize(
    ("tp", "per_token"),
    [(1, 327_680), (8, 40_960), (16, 40_960), (64, 40_960)],  # never below one of 8 KV heads
)
def test_kv_heads_are_replicated_beyond_their_number(tp, per_token):
    result = estimate("llama-3.1-70b", "h100-sxm", deployment=Deployment(tp=tp))
    assert result.memory.kv_bytes_per_token == per_token


@pytest.mark.parametrize("tp", [1, 2, 8, 16, 128])
def test_every_tp_rank_holds_the_whole_latent(tp):
    """61·(512 + 64)·2 B."""
    result = estimate("deepseek-v3", "h100-sxm", deployment=Deployment(tp=tp))
    assert result.memory.kv_bytes_per_token == 70_272


def test_windows_bound_the_cache_of_gpt_oss():
    """2·8·64·2 B = 2,048 a layer: 36 grow up to 128 tokens, 18 beyond; 18·128·2,048 = 4.5 MiB."""
    layers = model("gpt-oss-120b").layers
    assert cache_bytes(layers, 1, BF16) == 73_728
    assert cache_bytes(layers, 128, BF16) == 128 * 73_728
    for tokens in (128, 129, 4096, 131_072):
        assert cache_bytes(layers, tokens, BF16) == 36_864 * tokens + 18 * 128 * 2_048
    assert 18 * 128 * 2_048 == 4.5 * 2**20


def test_windows_bound_the_cache_of_gemma_3_27b():
    """2·16·128·2 B = 8,192 a layer; 10 of 62 layers see all, 52 the last 1,024."""
    whole = cache_bytes(model("gemma-3-27b").layers, 131_072, BF16)
    assert whole == 10 * 8_192 * 131_072 + 52 * 8_192 * 1_024
    assert whole / 2**30 == pytest.approx(10.41, abs=0.005)


def test_windows_bound_what_a_decode_step_reads():
    (full, windowed) = sorted(
        attentions(body_operators(model("gemma-3-27b"), Step("decode", 1, 1, 131_071))),
        key=lambda o: o.count,
    )
    assert (full.count, full.cache_bytes) == (10, 8_192 * 131_072)
    assert (windowed.count, windowed.cache_bytes) == (52, 8_192 * 1_024)


def test_flops_of_body_and_head():
    """Per layer d·(d + 2·1024) + d² + 3·d·14,336 = 218,103,808; ×2 FLOPs × 32 = 13.9586 G."""
    layer = 4096 * (4096 + 2 * 1024) + 4096**2 + 3 * 4096 * 14_336
    step = Step("prefill", 1, 2048, 0)
    body = body_operators(model("llama-3.1-8b"), step)
    per_token = (total(body) - total(attentions(body))) / 2048
    assert per_token == 2 * 32 * layer == pytest.approx(13.9586e9, rel=1e-5)
    # One row of logits per sequence whatever the prompt: 2·4096·128,256.
    for sequences in (1, 5):
        head = head_operators(model("llama-3.1-8b"), Step("prefill", sequences, 2048, 0))
        assert total(head) == sequences * 1_050_673_152


def test_attention_flops_of_a_causal_prompt():
    """4·32 heads·128·32 layers·2048·2049/2."""
    body = body_operators(model("llama-3.1-8b"), Step("prefill", 1, 2048, 0))
    assert total(attentions(body)) == 4 * 32 * 128 * 32 * 2048 * 2049 / 2
    assert total(attentions(body)) == pytest.approx(1.1000e12, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("llama-3.1-8b", 29.69),
        ("llama-3.1-70b", 285.9),
        ("mixtral-8x7b", 52.8),
        ("deepseek-v3", 156.7),
    ],
)
def test_prefill_of_2048_tokens_with_one_row_of_logits(name, teraflops):
    flops = total(step_operators(model(name), Step("prefill", 1, 2048, 0))) / 1e12
    assert float(f"{flops:.{3 if name == 'mixtral-8x7b' else 4}g}") == teraflops


def test_mlp_of_llama_2_70b_has_three_matrices():
    """80 layers · 6·8192·28,672 = 112.74 GFLOP a token."""
    body = body_operators(model("llama-2-70b"), Step("decode", 1, 1, 0))
    mlp = total(o for o in body if o.name.startswith("ffn."))
    assert mlp == 80 * 6 * 8192 * 28_672 == pytest.approx(112.74e9, rel=1e-4)


@pytest.mark.parametrize("roofline_only", [True, False])
def test_no_decode_step_beats_the_weights_traffic(roofline_only):
    """2 B·(8,030,261,248 − 128,256·4096) = 15.01 GB over 3.35 TB/s = 4.48 ms."""
    floor = 2 * (8_030_261_248 - 128_256 * 4096) / 3.35e12
    assert floor == pytest.approx(4.48e-3, rel=1e-3)
    result = estimate(
        "llama-3.1-8b", "h100-sxm", Workload(prompt=1, output=2), roofline_only=roofline_only
    )
    assert result.decode.time_s > floor
    assert result.interval("tpot_s")[0] > floor
    if roofline_only:
        assert result.decode.time_s == pytest.approx(floor, rel=0.002)
        assert result.decode.cost.total.bound == "memory"


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("bf16", 16),
        ("nvfp4", 4.5),  # 4 + 8/16
        ("mxfp4", 4.25),  # 4 + 8/32
        ("int4", 4.15625),  # 4 + (16 + 4)/128
        ("int8", 8 + 16 / 4096),  # one scale per output channel
        ("fp8", 8 + 32 / 4096**2),  # one per tensor
        ("fp8_block", 8 + 32 / 128**2),
    ],
)
def test_bits_per_weight_with_scales(name, bits):
    assert matrix_bytes(FORMATS[name], 4096, 4096) * 8 / 4096**2 == pytest.approx(bits, rel=1e-15)


def test_blocks_that_a_matrix_fills_partly_store_a_whole_scale():
    # 130 = 128 + 2 rows: two groups a column; 129 columns.
    assert matrix_bytes(FORMATS["int4"], 130, 129) == 130 * 129 / 2 + 129 * 2 * 20 / 8
    # 128×128 blocks: 2 × 2 of them.
    assert matrix_bytes(FORMATS["fp8_block"], 130, 129) == 130 * 129 + 4 * 4


@pytest.mark.parametrize(
    ("experts", "top_k", "tokens", "touched"),
    [
        (8, 2, 4, 5.47),
        (8, 2, 8, 7.20),
        (128, 8, 16, 82.4),
        (256, 8, 32, 163.3),
        (256, 8, 128, 251.6),
        (8, 2, 1, 2),
        (256, 8, 1, 8),
    ],
)
def test_distinct_experts(experts, top_k, tokens, touched):
    digits = len(str(touched).partition(".")[2])
    assert round(float(expected_experts(experts, top_k, tokens)), digits) == touched


def test_a_decode_step_reads_the_experts_that_its_batch_touches():
    """Mixtral, batch 4: 5.47 of 8 experts of 3·4096·14,336 elements; every pair is computed."""
    operators = step_operators(model("mixtral-8x7b"), Step("decode", 4, 1, 100))
    up, down = named(operators, "experts.gate_up_proj"), named(operators, "experts.down_proj")
    touched = 8 * (1 - 0.75**4)
    assert up.weight_bytes + down.weight_bytes == pytest.approx(touched * 3 * 4096 * 14_336 * 2)
    assert up.flops + down.flops == 4 * 2 * 6 * 4096 * 14_336


@pytest.mark.parametrize(
    ("name", "arithmetic", "tflops"),
    [
        ("a100-sxm-80gb", "bf16", 312),
        ("a100-pcie-80gb", "bf16", 312),
        ("h100-sxm", "bf16", 989),
        ("h100-sxm", "fp8", 1979),
        ("h100-pcie", "bf16", 756),
        ("l40s", "bf16", 362),
        ("l40s", "fp8", 733),
        ("l4", "bf16", 121),
        ("b200-sxm", "bf16", 2250),
        ("b200-sxm", "fp8", 4500),
    ],
)
def test_peaks_are_dense(name, arithmetic, tflops):
    peak = load_hardware(name).peak(arithmetic)
    assert peak == pytest.approx(tflops * 1e12, rel=0.005)
