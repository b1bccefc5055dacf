"""Small random configs of any family that transformers knows, drawn by hypothesis."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Draw = Callable[..., Any]
Put = Callable[..., None]

FLAGS = (
    "attention_bias",
    "attention_out_bias",
    "mlp_bias",
    "use_bias",
    "use_qkv_bias",
    "qkv_bias",
    "bias",
    "enable_bias",
    "tie_word_embeddings",
    "use_qk_norm",
    "qk_layernorm",
    "use_parallel_residual",
    "parallel_attn",
    "new_decoder_architecture",
    "multi_query",
    "lm_head_bias",
    "do_layer_norm_before",
    "_remove_final_layer_norm",
    "use_post_norm",
    "use_conv_bias",
    "mamba_conv_bias",
    "mamba_proj_bias",
    "use_sliding_window",
)
# Left out now and then, so that the class's default counts.
OPTIONAL = {
    "n_shared_experts",
    "num_shared_experts",
    "moe_num_shared_experts",
    "first_k_dense_replace",
    "decoder_sparse_step",
    "interleave_moe_layer_step",
    "moe_layer_interval",
    "moe_layer_start_index",
    "mlp_only_layers",
    "max_window_layers",
    "attention_chunk_size",
    "linear_conv_kernel_dim",
    "conv_kernel",
    "mamba_d_conv",
    "state_size",
    "ssm_state_size",
    "mamba_d_state",
    "time_step_rank",
    "mamba_dt_rank",
    "expand",
    "mamba_expand",
    "mamba_n_groups",
    "expert_layer_period",
    "attn_layer_period",
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
}
# Blocks without these biases or norms fail in transformers, or the class ignores the key.
FROZEN = {
    ("codegen", "tie_word_embeddings"),
    ("gptj", "tie_word_embeddings"),
    ("phi", "tie_word_embeddings"),
    ("phimoe", "tie_word_embeddings"),
    ("nemotron_h", "tie_word_embeddings"),
}


@st.composite
def text_configs(draw: Draw, kind: str, default: dict[str, Any]) -> dict[str, Any]:
    """A config of ``kind`` whose keys are among those of its ``default``."""
    values: dict[str, Any] = {"model_type": kind}

    def put(value: Any, *keys: str) -> None:
        for key in keys:
            if key in default and not (key in OPTIONAL and draw(st.integers(0, 3)) == 0):
                values[key] = value

    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 3))
    head_dim = 8 * draw(st.integers(1, 3))
    layers = draw(st.integers(1, 9))
    free = "head_dim" in default and "mamba" not in kind
    hidden = heads * 8 * draw(st.integers(1, 4)) if free else heads * head_dim
    put(hidden, "hidden_size", "n_embd", "d_model")
    put(layers, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    put(heads, "num_attention_heads", "n_head", "n_heads")
    put(kv_heads, "num_key_value_heads", "num_kv_heads")
    put(draw(st.integers(10, 99)), "vocab_size")
    put(8 * draw(st.integers(1, 9)), "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
    put(draw(st.integers(3, 99)), "max_position_embeddings", "n_positions", "max_seq_len")
    put(0, "pad_token_id")
    if free:
        put(head_dim, "head_dim")
    for key in FLAGS:
        if key in default and (kind, key) not in FROZEN and draw(st.booleans()):
            values[key] = draw(st.booleans())
    put_experts(draw, put, layers)
    put_latent(draw, put)
    put_states(draw, put, hidden)
    put_windows(draw, put, values, default)
    return fitted(kind, values, draw)


def put_experts(draw: Draw, put: Put, layers: int) -> None:
    experts = draw(st.integers(2, 8))
    put(experts, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    put(
        draw(st.integers(1, experts)),
        *("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk"),
    )
    put(8 * draw(st.integers(1, 5)), "moe_intermediate_size")
    put(8 * draw(st.integers(1, 5)), "shared_expert_intermediate_size")
    put(8 * draw(st.integers(1, 5)), "moe_shared_expert_intermediate_size")
    put(8 * draw(st.integers(1, 5)), "intermediate_size_mlp")
    put(8 * draw(st.integers(1, 5)), "shared_intermediate_size")
    put(
        draw(st.integers(1, 3)),
        *("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    )
    put(1, "n_group", "topk_group")
    put(draw(st.integers(0, layers)), "first_k_dense_replace")
    put(draw(st.integers(1, 3)), "decoder_sparse_step", "interleave_moe_layer_step")
    put(draw(st.integers(1, 3)), "moe_layer_interval", "expert_layer_period")
    put(0, "expert_layer_offset")
    put(draw(st.integers(0, 2)), "moe_layer_start_index")
    put(layers - 1, "moe_layer_end_index")
    put(draw(st.lists(st.integers(0, layers - 1), unique=True)), "mlp_only_layers")


def put_latent(draw: Draw, put: Put) -> None:
    put(draw(st.integers(4, 40)), "kv_lora_rank")
    put(draw(st.sampled_from([4, 24])), "q_lora_rank")
    put(2 * draw(st.integers(1, 9)), "qk_rope_head_dim")
    put(draw(st.integers(4, 40)), "qk_nope_head_dim")
    put(draw(st.integers(4, 40)), "v_head_dim")
    put(draw(st.integers(1, 9)), "index_n_heads", "index_topk")
    put(32, "index_head_dim")


def put_states(draw: Draw, put: Put, hidden: int) -> None:
    """Delta nets and Mamba layers; their heads must fill the doubled width."""
    groups = draw(st.integers(1, 3))
    put(groups, "linear_num_key_heads")
    put(groups * draw(st.integers(1, 3)), "linear_num_value_heads")
    put(8 * draw(st.integers(1, 3)), "linear_key_head_dim", "linear_value_head_dim")
    put(
        draw(st.integers(2, 5)),
        *("linear_conv_kernel_dim", "conv_kernel", "mamba_d_conv"),
    )
    put(draw(st.integers(2, 20)), "state_size", "ssm_state_size", "mamba_d_state")
    put(draw(st.integers(2, 20)), "time_step_rank", "mamba_dt_rank")
    put(2, "expand", "mamba_expand")
    put(hidden // 8, "mamba_n_heads", "mamba_num_heads", "num_heads")
    put(16, "mamba_d_head", "mamba_head_dim")
    put(1, "mamba_n_groups", "n_groups")
    put(3, "attn_layer_period")
    put(1, "attn_layer_offset")


def put_windows(draw: Draw, put: Put, values: dict[str, Any], default: dict[str, Any]) -> None:
    if "sliding_window" in default and draw(st.booleans()):
        values["sliding_window"] = draw(st.integers(2, 60))
    put(draw(st.integers(0, 9)), "max_window_layers")
    put(draw(st.integers(2, 9)), "attention_chunk_size")


def fitted(kind: str, values: dict[str, Any], draw: Draw) -> dict[str, Any]:
    """What a single family needs besides."""
    layers = values.get("num_hidden_layers", 0)
    if kind == "mamba2":
        values["head_dim"] = 16
    elif kind == "dots1":  # the class's default, none at all, can't be built
        values.setdefault("n_shared_experts", 1)
    elif kind == "helium":  # its output matrix is square
        values["head_dim"] = values["hidden_size"] // values["num_attention_heads"]
    elif kind == "internlm3":  # transformers refuses the one without the other
        values["mlp_bias"] = values.get("attention_bias", False)
    elif kind in ("qwen3_moe", "qwen3_vl_moe_text"):  # the name that configs use
        values["num_experts"] = values.pop("num_local_experts")
    elif kind == "ernie4_5_moe":
        values["moe_layer_end_index"] = draw(st.sampled_from([-1, layers - 1]))
    elif kind == "mpt":
        values.pop("max_seq_len", None)
    else:
        values.update(by_layer(kind, layers, draw))
    return values


def by_layer(kind: str, layers: int, draw: Draw) -> dict[str, Any]:
    """A choice for each layer, where a family states one."""

    def each(*choices: str) -> list[str]:
        found = draw(st.lists(st.sampled_from(choices), min_size=layers, max_size=layers))
        return list(found)

    if kind == "nemotron_h":
        pattern = draw(st.text("M*-E", min_size=1, max_size=9))
        return {"hybrid_override_pattern": pattern, "num_hidden_layers": len(pattern)}
    if kind == "bamba":
        return {"attn_layer_indices": draw(st.lists(st.integers(0, layers - 1), unique=True))}
    if kind == "granitemoehybrid":
        return {"layer_types": each("mamba", "attention")}
    if kind == "glm_moe_dsa":
        return {"indexer_types": each("full", "shared")}
    return {}


@st.composite
def vision_configs(draw: Draw, default: dict[str, Any]) -> dict[str, Any]:
    """A small vision section whose keys are among those of its ``default``."""
    values: dict[str, Any] = {}

    def put(value: Any, *keys: str) -> None:
        values.update({key: value for key in keys if key in default})

    if "model_type" in default:
        values["model_type"] = default["model_type"]
    put(8 * draw(st.integers(1, 4)), "hidden_size", "embed_dim")
    put(2, "num_attention_heads", "num_heads")
    put(8 * draw(st.integers(1, 4)), "intermediate_size", "out_hidden_size")
    put(draw(st.integers(1, 4)), "num_hidden_layers", "depth")
    put(draw(st.sampled_from([7, 14])), "patch_size")
    put(28 * draw(st.integers(1, 3)), "image_size")
    put(draw(st.integers(1, 3)), "num_channels", "in_channels")
    put(draw(st.integers(1, 3)), "spatial_merge_size", "temporal_patch_size")
    put(draw(st.integers(4, 30)), "num_position_embeddings")
    put([0] * draw(st.integers(0, 1)), "deepstack_visual_indexes")
    put(8 * draw(st.integers(1, 4)), "projector_input_dim", "projector_output_dim")
    if "vision_output_dim" in default:
        values["vision_output_dim"] = values["projector_output_dim"]
    if "vision_use_head" in default:
        values["vision_use_head"] = draw(st.booleans())
    return values
