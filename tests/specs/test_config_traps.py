"""Fields that mislead: what each family means by its windows, heads, experts and formats."""

from typing import Any

import pytest

from perfmodel.errors import InputError
from perfmodel.operators.parameters import count_parameters
from perfmodel.specs.architectures import build_model
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import UNQUANTISED, CheckpointFormat, DenseFfn, MoeFfn

BASE = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "intermediate_size": 96,
    "max_position_embeddings": 65536,
}
EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
SHARED = {"shared_expert_intermediate_size": 48}


def build(kind: str, **fields: Any) -> Any:
    return build_model({"model_type": kind, **BASE, **fields}, "x", "x.json")


def windows(model):
    return [layer.mixer.window for layer in model.layers]


def sparse(model):
    return [isinstance(layer.ffn, MoeFfn) for layer in model.layers]


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("llama", {"sliding_window": 512}, [None] * 4),  # Llama doesn't slide
        ("mistral", {}, [4096] * 4),  # the class's default
        ("mistral", {"sliding_window": None}, [None] * 4),  # but null is none
        ("mistral", {"sliding_window": 512}, [512] * 4),
        ("mistral", {"sliding_window": 65536}, [None] * 4),  # never outgrown
        ("mixtral", {"sliding_window": None, **EXPERTS}, [None] * 4),
        ("qwen2", {"sliding_window": 512}, [None] * 4),  # switched off by default
        (
            "qwen2",
            {"sliding_window": 512, "use_sliding_window": True, "max_window_layers": 3},
            [None, None, None, 512],
        ),
        (
            "qwen3_moe",
            {"sliding_window": 512, "use_sliding_window": True, **EXPERTS},
            [512] * 4,
        ),
        ("gemma2", {"sliding_window": 512}, [512, None, 512, None]),
        ("gemma3_text", {"sliding_window": 512}, [512, 512, 512, 512]),
        (
            "gemma3_text",
            {"sliding_window": 512, "sliding_window_pattern": 2},
            [512, None, 512, None],
        ),
        ("phi3", {"sliding_window": 2047}, [2047] * 4),
        ("starcoder2", {"sliding_window": 4096}, [4096] * 4),
        ("starcoder2", {}, [None] * 4),
        ("gpt_oss", EXPERTS, [128, None, 128, None]),
        ("cohere2", {"sliding_window": 512}, [512, 512, 512, None]),
        ("exaone4", {"sliding_window": 512, "sliding_window_pattern": "LG"}, [512, None] * 2),
        (
            "ministral",
            {
                "sliding_window": 512,
                "layer_types": ["full_attention", "sliding_attention"] * 2,
            },
            [None, 512, None, 512],
        ),
    ],
)
def test_windows(kind, fields, expected):
    assert windows(build(kind, **fields)) == expected


def test_llama4_chunks_where_positions_rotate():
    fields = {"intermediate_size_mlp": 96, "attention_chunk_size": 512, **EXPERTS}
    model = build("llama4_text", **fields)
    assert windows(model) == [512, 512, 512, None]
    assert model.layers[0].mixer.chunked
    assert windows(build("llama4_text", **{**fields, "attention_chunk_size": None})) == [None] * 4
    assert windows(build("llama4_text", **fields, no_rope_layers=[0, 1, 1, 1])) == [
        None,
        512,
        512,
        512,
    ]


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("llama4_text", {"interleave_moe_layer_step": 1}, [True] * 4),  # every layer
        ("llama4_text", {"interleave_moe_layer_step": 2}, [False, True] * 2),
        ("llama4_text", {"moe_layers": [0, 3]}, [True, False, False, True]),
        ("qwen2_moe", {"decoder_sparse_step": 2}, [False, True] * 2),
        ("qwen3_moe", {"mlp_only_layers": [1]}, [True, False, True, True]),
        ("deepseek", {"first_k_dense_replace": 1}, [False, True, True, True]),
        (
            "deepseek",
            {"first_k_dense_replace": 1, "moe_layer_freq": 2},
            [False, False, True, False],
        ),
    ],
)
def test_which_layers_have_experts(kind, fields, expected):
    model = build(kind, intermediate_size_mlp=96, **EXPERTS, **SHARED, **fields)
    assert sparse(model) == expected


def test_the_experts_width_is_intermediate_size_in_some():
    assert build("mixtral", **EXPERTS).layers[0].ffn.width == 96
    assert build("qwen3_moe", **EXPERTS).layers[0].ffn.width == 48


@pytest.mark.parametrize(
    ("fields", "kv_heads"),
    [
        ({"multi_query": True, "num_kv_heads": 4}, 1),
        ({"multi_query": False, "num_kv_heads": 2}, 4),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2),
    ],
)
def test_falcons_kv_heads(fields, kv_heads):
    assert build("falcon", **fields).layers[0].mixer.kv_heads == kv_heads


def test_kv_heads_absent_or_null():
    absent = {key: value for key, value in BASE.items() if key != "num_key_value_heads"}
    heads = {**absent, "num_attention_heads": 16}
    for kind, fields, expected in (
        ("llama", {}, 16),
        ("mistral", {}, 8),  # the class's default
        ("mistral", {"num_key_value_heads": None}, 16),
    ):
        mixer: Any = (
            build_model({"model_type": kind, **heads, **fields}, "x", "x.json").layers[0].mixer
        )
        assert mixer.kv_heads == expected


def test_heads_may_be_wider_than_the_hidden_width():
    assert build("qwen3").layers[0].mixer.head_dim == 128  # the class's default, not 64/4
    assert build("llama").layers[0].mixer.head_dim == 16
    assert build("llama", head_dim=32).layers[0].mixer.head_dim == 32


@pytest.mark.parametrize(
    ("kind", "tied"),
    [("llama", False), ("gemma", True), ("cohere", True), ("starcoder2", True), ("gpt2", True)],
)
def test_ties_by_default(kind, tied):
    assert build(kind).tied is tied
    assert build(kind, tie_word_embeddings=not tied).tied is not tied


def test_one_shared_expert_of_the_summed_width():
    model: Any = load_model("deepseek-v2-lite")
    assert isinstance(model.layers[0].ffn, DenseFfn)
    assert model.layers[1].ffn.shared.width == 2 * 1408


def test_a_text_config_takes_what_its_class_says():
    # Gemma-3-4B's text_config as it is published: no vocabulary, heads or head width.
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    model = build_model({"model_type": "gemma3", "text_config": text}, "x", "x.json")
    assert count_parameters(model).text == 3_880_263_168
    assert windows(model) == windows(load_model("gemma-3-4b"))


def test_a_config_itself_must_say_its_sizes():
    with pytest.raises(InputError, match="hidden_size: missing"):
        build_model({"model_type": "gemma3_text"}, "x", "x.json")


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"quant_method": "fp8"}, CheckpointFormat(weights="fp8", activations="fp8")),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            CheckpointFormat(weights="fp8_block", activations="fp8"),
        ),
        (
            {"quant_method": "mxfp4"},
            CheckpointFormat(
                weights="mxfp4",
                linear=UNQUANTISED,
                notes=("x.json: quantization_config: no matrix of this model is quantised",),
            ),
        ),
        ({"load_in_4bit": True}, CheckpointFormat(weights="nf4", activations="bf16")),
        ({"load_in_8bit": True}, CheckpointFormat(weights="int8", activations="int8")),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            CheckpointFormat(weights="nvfp4", activations="nvfp4"),
        ),
    ],
)
def test_checkpoint_formats(section, expected):
    assert build("llama", quantization_config=section).checkpoint == expected


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"quant_method": "aqlm"},
        {"quant_method": "gptq", "bits": 3},
        {"quant_method": "fp8", "weight_block_size": [64, 64]},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "modelopt", "quant_algo": "W4A8"},
    ],
)
def test_unknown_formats_are_refused(section):
    with pytest.raises(InputError, match=r"^x\.json: quantization_config\."):
        build("llama", quantization_config=section)


def test_rotated_share_of_a_head():
    assert build("llama").layers[0].mixer.rotary_dim == 16
    assert build("phi", partial_rotary_factor=0.5).layers[0].mixer.rotary_dim == 8
    parameters = {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    assert build("stablelm", rope_parameters=parameters).layers[0].mixer.rotary_dim == 4
    assert build("gpt2").layers[0].mixer.rotary_dim == 0
