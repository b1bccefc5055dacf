"""Families with mixtures of experts and ordinary attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perfmodel.specs.architectures import windows
from perfmodel.specs.architectures.attention import nested_kv_layers
from perfmodel.specs.architectures.dense import (
    ALWAYS,
    GLM,
    LLAMA,
    MISTRAL,
    NEVER,
    OLMO2,
    QWEN2,
    QWEN3,
)
from perfmodel.specs.architectures.dense_more import ERNIE, ERNIE_BIAS, EXAONE4, HUNYUAN
from perfmodel.specs.architectures.experts import (
    DEEPSEEK_EXPERTS,
    DEEPSEEK_V3_EXPERTS,
    DOTS_EXPERTS,
    QWEN2_EXPERTS,
    QWEN3_EXPERTS,
    dbrx_moe,
    ernie_shared,
    ernie_sparse,
    experts_of,
    granite_shared,
    llama4_sparse,
)
from perfmodel.specs.architectures.family import BIASLESS_LAYER_NORM, LAYER_NORM, Family, Switch
from perfmodel.specs.architectures.feedforward import after_dense, moe_layers, sparse_steps
from perfmodel.specs.architectures.mtp import next_token_modules

MIXTRAL = replace(MISTRAL, window=None, ffns=moe_layers(experts_of("intermediate_size")))
LLAMA4_EXPERTS = experts_of("intermediate_size", shared=lambda config, width: width, top_k=1)

GLM4_MOE = replace(
    GLM,
    kv_heads=8,
    head_dim=None,
    qkv_bias=Switch(False, ("attention_bias",)),
    has_qk_norm=Switch(False, ("use_qk_norm",)),
    ffns=moe_layers(DEEPSEEK_V3_EXPERTS, after_dense(1)),
    mtp=next_token_modules,
)
GRANITE_MOE = replace(
    LLAMA, up_bias=NEVER, down_bias=NEVER, ffns=moe_layers(experts_of("intermediate_size"))
)

FAMILIES: Mapping[str, Family] = {
    "dots1": replace(
        LLAMA,
        kv_heads=32,
        has_qk_norm=ALWAYS,
        up_bias=NEVER,
        down_bias=NEVER,
        window=4096,
        windows=windows.last_layers,
        ffns=moe_layers(DOTS_EXPERTS, after_dense(0)),
    ),
    "ernie4_5_moe": replace(
        ERNIE,
        kv_heads=4,
        head_dim=None,
        head_bias=ERNIE_BIAS,
        ffns=moe_layers(
            experts_of("moe_intermediate_size", correction=True, shared=ernie_shared),
            ernie_sparse,
        ),
    ),
    "exaone_moe": replace(EXAONE4, ffns=moe_layers(DEEPSEEK_V3_EXPERTS, after_dense(1))),
    "hy_v3": replace(
        LLAMA,
        kv_heads=8,
        head_dim=128,
        has_qk_norm=ALWAYS,
        ffns=moe_layers(DEEPSEEK_V3_EXPERTS, after_dense(1)),
    ),
    "flex_olmo": replace(OLMO2, ffns=moe_layers(experts_of("intermediate_size", top_k=5))),
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": replace(
        GRANITE_MOE, ffns=moe_layers(experts_of("intermediate_size", shared=granite_shared))
    ),
    "hunyuan_v1_moe": replace(
        HUNYUAN,
        ffns=moe_layers(experts_of("intermediate_size", shared=lambda config, width: width)),
    ),
    "olmoe": replace(OLMO2, ffns=moe_layers(experts_of("intermediate_size", top_k=8))),
    "solar_open": replace(GLM4_MOE, head_dim=128, mtp=None, ffns=moe_layers(DEEPSEEK_V3_EXPERTS)),
    "mixtral": MIXTRAL,
    "qwen2_moe": replace(
        QWEN2,
        kv_heads=16,
        windows=windows.qwen2_moe,
        ffns=moe_layers(QWEN2_EXPERTS, sparse_steps),
    ),
    "qwen3_moe": replace(
        QWEN3,
        kv_heads=4,
        head_dim=None,
        windows=windows.where_switched_on,
        ffns=moe_layers(QWEN3_EXPERTS, sparse_steps),
    ),
    "qwen3_vl_moe_text": replace(
        QWEN3,
        kv_heads=16,
        windows=None,
        ffns=moe_layers(QWEN3_EXPERTS, sparse_steps),
        defaults={
            "vocab_size": 151936,
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "max_position_embeddings": 128000,
        },
    ),
    "phimoe": replace(
        MIXTRAL,
        norm=LAYER_NORM,
        qkv_bias=Switch(False, ("attention_bias",)),
        out_bias=Switch(False, ("o_bias", "attention_bias")),
        head_bias=Switch(False, ("lm_head_bias",)),
    ),
    "gpt_oss": replace(
        LLAMA,
        kv_heads=8,
        head_dim=64,
        qkv_bias=Switch(True, ("attention_bias",)),
        out_bias=Switch(True, ("attention_bias",)),
        sinks=True,
        window=128,
        windows=windows.all_but_every(2),
        ffns=moe_layers(
            experts_of(
                "intermediate_size",
                bias=Switch(True, ("expert_bias",)),
                router_bias=Switch(True, ("router_bias",)),
                top_k=4,
            )
        ),
    ),
    "minimax_m2": replace(
        MIXTRAL,
        has_qk_norm=Switch(True, ("use_qk_norm",)),
        qk_norm="width",
        windows=None,
        ffns=moe_layers(experts_of("intermediate_size", correction=True)),
    ),
    "dbrx": replace(
        LLAMA,
        mixers=nested_kv_layers,
        norm=BIASLESS_LAYER_NORM,
        qkv_bias=NEVER,
        out_bias=NEVER,
        ffns=moe_layers(dbrx_moe),
    ),
    "glm4_moe": GLM4_MOE,
    "deepseek": replace(LLAMA, ffns=moe_layers(DEEPSEEK_EXPERTS, after_dense())),
    "llama4_text": replace(
        LLAMA,
        kv_heads=8,
        head_dim=128,
        up_bias=NEVER,
        down_bias=NEVER,
        window=8192,
        windows=windows.llama4,
        chunked=True,
        ffn_keys=("intermediate_size_mlp",),
        ffns=moe_layers(LLAMA4_EXPERTS, llama4_sparse),
        defaults={
            "vocab_size": 202048,
            "hidden_size": 5120,
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16384,
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "max_position_embeddings": 131072,
        },
    ),
}
