"""Counts derived by hand, without the shared tables; the arithmetic stands beside each."""

import pytest

from perfmodel.operators.cache import cache_bytes, kv_bytes_per_token, window_cap_bytes
from perfmodel.operators.parameters import count_parameters
from perfmodel.operators.weights import model_weights
from perfmodel.specs.loading import load_model

PARAMETERS = {
    # 128256·4096·2 + 32·(4096·(4096 + 2·1024) + 4096² + 3·4096·14336 + 2·4096) + 4096
    "llama-3.1-8b": 8_030_261_248,
    # 128256·8192·2 + 80·(8192·(8192 + 2·1024) + 8192² + 3·8192·28672 + 2·8192) + 8192
    "llama-3.1-70b": 70_553_706_496,
    # 128256·16384·2 + 126·(16384·(16384 + 2·1024) + 16384² + 3·16384·53248 + 2·16384) + 16384
    "llama-3.1-405b": 405_853_388_800,
    # as 3.1-70B with 32,000 words: 32000·8192·2 + 80·855,654,400 + 8192
    "llama-2-70b": 68_976_648_192,
    # heads of 128 though 5120/64 = 80: 151936·5120·2
    # + 64·(5120·(8192 + 2·1024) + 8192·5120 + 3·5120·25600 + 2·5120 + 2·128) + 5120
    "qwen3-32b": 32_762_123_264,
    # tied, so the table once: 151936·1024
    # + 28·(1024·(2048 + 2·1024) + 2048·1024 + 3·1024·3072 + 2·1024 + 2·128) + 1024
    "qwen3-0.6b": 596_049_920,
    # 32000·4096·2 + 32·(4096·6144 + 4096² + 8·3·4096·14336 + 8·4096 + 2·4096) + 4096
    "mixtral-8x7b": 46_702_792_704,
    # three dense layers, 58 with 256 experts, one shared, and 256 router corrections
    "deepseek-v3": 671_026_419_200,
    # 65024·4544 + 32·(4544·(4544 + 2·64) + 4544² + 8·4544² + 2·4544) + 2·4544
    "falcon-7b": 6_921_720_704,
    # 50257·768 + 1024·768 + 12·(12·768² + 13·768) + 2·768
    "gpt-2": 124_439_808,
    # 50272·2048 + 2050·2048 + 24·(12·2048² + 13·2048) + 2·2048
    "opt-1.3b": 1_315_758_080,
}


@pytest.mark.parametrize(("name", "expected"), PARAMETERS.items())
def test_parameters(name, expected):
    assert count_parameters(load_model(name)).total == expected


@pytest.mark.parametrize(
    ("name", "active"),
    [
        # all but 6 of 8 experts in 32 layers: 46,702,792,704 - 32·6·3·4096·14336
        ("mixtral-8x7b", 12_879_925_248),
        # all but 248 of 256 experts in 58 layers: 671,026,419,200 - 58·248·3·7168·2048
        ("deepseek-v3", 37_552_297_472),
    ],
)
def test_active_parameters(name, active):
    assert count_parameters(load_model(name)).active == active


def test_active_without_the_input_table():
    # 37,552,297,472 - 129280·7168
    model = load_model("deepseek-v3")
    table = next(model_weights(model)).elements
    assert count_parameters(model).active - table == 36_625_618_432


def test_multi_token_prediction_is_apart():
    # One MoE layer, 2·7168 → 7168 and three norms; embedding and head are shared.
    # MLA: 7168·1536 + 1536 + 1536·24576 + 7168·576 + 512 + 512·32768 + 16384·7168
    attention = 11_010_048 + 1_536 + 37_748_736 + 4_128_768 + 512 + 16_777_216 + 117_440_512
    # 257 experts (one shared) of 3·7168·2048, the router 256·7168 and its 256 corrections
    moe = 257 * 44_040_192 + 1_835_008 + 256
    layer = attention + moe + 2 * 7168
    assert count_parameters(load_model("deepseek-v3")).mtp == layer + 2 * 7168 * 7168 + 3 * 7168


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-2-7b", 524_288),  # 2·32·128·2·32 layers
        ("llama-3.1-8b", 131_072),  # 2·8·128·2·32
        ("llama-3.1-70b", 327_680),  # 2·8·128·2·80
        ("llama-3.1-405b", 516_096),  # 2·8·128·2·126
        ("mixtral-8x7b", 131_072),  # 2·8·128·2·32
        ("qwen3-8b", 147_456),  # 2·8·128·2·36
        ("deepseek-v3", 70_272),  # 61·(512 + 64)·2
        ("gpt-oss-120b", 73_728),  # 2·8·64·2·36
        ("falcon-7b", 8_192),  # one KV head, though num_kv_heads says 71: 2·64·2·32
        ("glm-5", 89_856),  # 78·(512 + 64)·2; head_dim 64 is the rotary part
        ("jamba-v0.1", 16_384),  # 4 attention layers of 32: 2·8·128·2·4
        ("chatglm3-6b", 28_672),  # 2 groups: 2·2·128·2·28
    ],
)
def test_kv_bytes_per_token(name, expected):
    assert kv_bytes_per_token(load_model(name)) == expected


def test_gpt_oss_grows_by_half_beyond_the_window():
    model = load_model("gpt-oss-120b")
    assert kv_bytes_per_token(model, beyond_window=True) == 36_864  # 18 of 36 layers
    assert window_cap_bytes(model) == 4.5 * 2**20  # 18·2·8·64·2·128


def test_gemma_3_27b_at_131072_tokens():
    # 10 layers see all, 52 see 1,024; a token takes 2·16·128·2 = 8,192 bytes in each.
    expected = 10 * 8192 * 131072 + 52 * 8192 * 1024
    assert cache_bytes(load_model("gemma-3-27b").layers, 131072) == expected
    assert expected / 2**30 == pytest.approx(10.41, abs=0.005)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # Published totals of checkpoints that aren't in the catalogue.
        # DeepSeek-MoE-16B: 102400·2048·2 + 28·(4·2048² + 2·2048) + 3·2048·10944
        # + 27·(66·3·2048·1408 + 64·2048) + 2048
        (
            {
                "model_type": "deepseek",
                "hidden_size": 2048,
                "num_hidden_layers": 28,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "vocab_size": 102400,
                "intermediate_size": 10944,
                "moe_intermediate_size": 1408,
                "n_routed_experts": 64,
                "n_shared_experts": 2,
                "num_experts_per_tok": 6,
                "first_k_dense_replace": 1,
                "moe_layer_freq": 1,
            },
            16_375_728_128,
        ),
        # Qwen-7B: 151936·4096·2 + 32·(3·4096² + 3·4096 + 4096² + 3·4096·11008 + 2·4096) + 4096
        (
            {
                "model_type": "qwen",
                "hidden_size": 4096,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "vocab_size": 151936,
                "intermediate_size": 22016,
                "kv_channels": 128,
            },
            7_721_324_544,
        ),
        # InternLM2-7B: 92544·4096·2 + 32·(4096·6144 + 4096² + 3·4096·14336 + 2·4096) + 4096
        (
            {
                "model_type": "internlm2",
                "hidden_size": 4096,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 92544,
                "intermediate_size": 14336,
                "bias": False,
            },
            7_737_708_544,
        ),
        # Baichuan2-7B: 125696·4096·2 + 32·(4·4096² + 3·4096·11008 + 2·4096) + 4096
        (
            {
                "model_type": "baichuan",
                "hidden_size": 4096,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "vocab_size": 125696,
                "intermediate_size": 11008,
            },
            7_505_973_248,
        ),
        # Qwen2.5-VL-7B: the text of Qwen2.5-7B, 7,615,616,512, and a tower of 676,550,144;
        # its first config had the text model's fields at the top.
        (
            {
                "model_type": "qwen2_5_vl",
                "hidden_size": 3584,
                "num_hidden_layers": 28,
                "num_attention_heads": 28,
                "num_key_value_heads": 4,
                "vocab_size": 152064,
                "intermediate_size": 18944,
                "tie_word_embeddings": False,
                "vision_config": {
                    "depth": 32,
                    "hidden_size": 1280,
                    "intermediate_size": 3420,
                    "out_hidden_size": 3584,
                    "in_chans": 3,
                    "patch_size": 14,
                },
            },
            8_292_166_656,
        ),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_published_totals_of_other_checkpoints(config, expected):
    from perfmodel.specs.architectures import build_model

    assert count_parameters(build_model(config, "x", "x.json")).total == expected
