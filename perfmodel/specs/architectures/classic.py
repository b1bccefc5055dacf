"""Families before Llama: learned or ALiBi positions, LayerNorm, biases, two-matrix MLPs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.specs.architectures.attention import (
    attention_layers,
    nested_kv_layers,
    with_kv_heads,
)
from perfmodel.specs.architectures.config import MAX_HEADS, Config
from perfmodel.specs.architectures.dense import ALWAYS, LLAMA, NEVER
from perfmodel.specs.architectures.family import (
    BIASLESS_LAYER_NORM,
    LAYER_NORM,
    RMS,
    Family,
    Shape,
    Switch,
    read_heads,
)
from perfmodel.specs.model import Attention, Norm

Extras = Callable[[Config, Shape], Mapping[str, Any]]


def falcon_layers(config: Config, family: Family, shape: Shape) -> Sequence[Attention]:
    """Falcon: ``num_kv_heads`` counts only in the new architecture; else one, or all."""
    heads = read_heads(config)
    stated = config.integer("num_kv_heads", "n_head_kv", default=heads, high=MAX_HEADS)
    if not config.flag("new_decoder_architecture", default=False):
        stated = 1 if config.flag("multi_query", default=True) else heads
    hidden_data = {k: v for k, v in config.data.items() if k not in ("num_kv_heads", "n_head_kv")}
    plain = Config(hidden_data, config.where, config.path)
    return [with_kv_heads(stated, plain, family, shape)] * shape.layers


def falcon_norms(config: Config) -> int:
    """One norm per layer in the parallel block of Falcon-7B, two in the others."""
    if config.flag("new_decoder_architecture", default=False):
        return config.integer("num_ln_in_parallel_attn", default=2, high=2)
    return 1 if config.flag("parallel_attn", default=True) else 2


def chatglm_layers(config: Config, family: Family, shape: Shape) -> Sequence[Attention]:
    """ChatGLM: ``multi_query_group_num`` counts where ``multi_query_attention``."""
    groups = read_heads(config)
    if config.flag("multi_query_attention", default=False):
        groups = config.integer("multi_query_group_num", default=1, high=MAX_HEADS)
    return [with_kv_heads(groups, config, family, shape)] * shape.layers


def chatglm_norm(config: Config) -> Norm:
    """RMSNorm, or LayerNorm where ``rmsnorm`` is false."""
    return RMS if config.flag("rmsnorm", default=True) else LAYER_NORM


def bigcode_layers(config: Config, family: Family, shape: Shape) -> Sequence[Attention]:
    """StarCoder: one KV head where ``multi_query``, else all."""
    groups = 1 if config.flag("multi_query", default=True) else read_heads(config)
    return [with_kv_heads(groups, config, family, shape)] * shape.layers


def learned_positions(rows: int, offset: int = 0) -> Extras:
    """A learned position table: ``rows`` where unsaid, and ``offset`` more (OPT keeps 2)."""

    def extras(config: Config, shape: Shape) -> Mapping[str, Any]:
        stated = config.integer("max_position_embeddings", "n_positions", default=rows)
        more = config.integer("position_embedding_offset", default=offset, low=0)
        return {"position_rows": stated + more}

    return extras


def opt_extras(config: Config, shape: Shape) -> Mapping[str, Any]:
    """OPT: learned positions, projections to a narrower embedding, no last norm in post-norm."""
    width = config.optional("word_embed_proj_dim")
    before = config.flag("do_layer_norm_before", default=True)
    removed = config.flag("_remove_final_layer_norm", default=False)
    return {
        **learned_positions(2048, 2)(config, shape),
        "embedding_width": width if width not in (None, shape.hidden) else None,
        "final_norm": before and not removed,
    }


def bloom_extras(config: Config, shape: Shape) -> Mapping[str, Any]:
    """BLOOM normalises the embedding."""
    return {"embedding_norms": 1}


BIASED = Family(
    mixers=attention_layers,
    ffns=LLAMA.ffns,
    norm=LAYER_NORM,
    gated=False,
    tied=True,
    qkv_bias=ALWAYS,
    out_bias=ALWAYS,
    up_bias=ALWAYS,
    down_bias=ALWAYS,
    rotary=0.0,
)
GPT2 = replace(BIASED, ffn_factor=4, extras=learned_positions(1024))
GPTJ = replace(
    BIASED,
    tied=False,
    norms=1,
    parallel=ALWAYS,
    qkv_bias=NEVER,
    out_bias=NEVER,
    head_bias=Switch(True, ("lm_head_bias",)),
    ffn_factor=4,
)
FALCON_BIAS = Switch(False, ("bias",))

FAMILIES: Mapping[str, Family] = {
    "gpt2": GPT2,
    "gpt_bigcode": replace(GPT2, mixers=bigcode_layers),
    "gptj": GPTJ,
    "codegen": GPTJ,
    "gpt_neox": replace(
        BIASED,
        tied=False,
        parallel=Switch(True, ("use_parallel_residual",)),
        qkv_bias=Switch(True, ("attention_bias",)),
        out_bias=Switch(True, ("attention_bias",)),
        rotary=0.25,
    ),
    "persimmon": replace(
        BIASED,
        tied=False,
        has_qk_norm=Switch(True, ("qk_layernorm",)),
        qk_norm_bias=True,
        rotary=0.5,
    ),
    "opt": replace(
        BIASED,
        extras=opt_extras,
        qkv_bias=Switch(True, ("enable_bias",)),
        out_bias=Switch(True, ("enable_bias",)),
        up_bias=Switch(True, ("enable_bias",)),
        down_bias=Switch(True, ("enable_bias",)),
    ),
    "bloom": replace(BIASED, ffn_factor=4, extras=bloom_extras),
    "mpt": replace(
        BIASED,
        mixers=nested_kv_layers,
        norm=BIASLESS_LAYER_NORM,
        qkv_bias=NEVER,
        out_bias=NEVER,
        up_bias=NEVER,
        down_bias=NEVER,
        ffn_factor=4,
    ),
    "falcon": replace(
        BIASED,
        mixers=falcon_layers,
        norms=falcon_norms,
        parallel=Switch(True, ("parallel_attn",)),
        qkv_bias=FALCON_BIAS,
        out_bias=FALCON_BIAS,
        up_bias=FALCON_BIAS,
        down_bias=FALCON_BIAS,
        ffn_factor=4,
        rotary=1.0,
    ),
    "chatglm": replace(
        LLAMA,
        mixers=chatglm_layers,
        norm=chatglm_norm,
        qkv_bias=Switch(False, ("add_qkv_bias", "add_bias_linear")),
        out_bias=Switch(False, ("add_bias_linear",)),
        up_bias=Switch(False, ("add_bias_linear",)),
        down_bias=Switch(False, ("add_bias_linear",)),
        rotary=0.5,
    ),
}
