"""Families of dense decoders with rotary positions: Llama and what differs little from it."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.specs.architectures import windows
from perfmodel.specs.architectures.attention import attention_layers
from perfmodel.specs.architectures.family import (
    BIASLESS_LAYER_NORM,
    LAYER_NORM,
    Family,
    Switch,
)
from perfmodel.specs.architectures.feedforward import dense_layers

ALWAYS = Switch(True)
NEVER = Switch(False)

LLAMA = Family(
    mixers=attention_layers,
    ffns=dense_layers,
    defaults={
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
    },
)
MISTRAL = replace(
    LLAMA,
    kv_heads=8,
    window=4096,
    windows=windows.every_layer,
    qkv_bias=NEVER,
    out_bias=NEVER,
    up_bias=NEVER,
    down_bias=NEVER,
    defaults={**LLAMA.defaults, "intermediate_size": 14336, "max_position_embeddings": 131072},
)
QWEN2 = replace(
    MISTRAL,
    kv_heads=32,
    qkv_bias=Switch(True, ("qkv_bias",)),
    windows=windows.qwen2,
    defaults={
        **LLAMA.defaults,
        "vocab_size": 151936,
        "intermediate_size": 22016,
        "max_position_embeddings": 32768,
    },
)
QWEN3 = replace(
    QWEN2,
    qkv_bias=Switch(False, ("attention_bias",)),
    out_bias=Switch(False, ("attention_bias",)),
    head_dim=128,
    has_qk_norm=ALWAYS,
)
QWEN2_VL = replace(
    QWEN2,
    kv_heads=8,
    defaults={
        "vocab_size": 152064,
        "hidden_size": 8192,
        "intermediate_size": 29568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "max_position_embeddings": 32768,
    },
)
GEMMA = replace(
    LLAMA,
    defaults={
        "vocab_size": 256000,
        "hidden_size": 3072,
        "intermediate_size": 24576,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "max_position_embeddings": 8192,
    },
    tied=True,
    head_dim=256,
    kv_heads=16,
    up_bias=NEVER,
    down_bias=NEVER,
)
GEMMA2 = replace(GEMMA, norms=4, kv_heads=4, window=4096, windows=windows.all_but_every(2))
GEMMA3 = replace(
    GEMMA2,
    has_qk_norm=ALWAYS,
    windows=windows.all_but_every(6),
    defaults={
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "max_position_embeddings": 131072,
    },
)
PHI = replace(
    LLAMA,
    norm=LAYER_NORM,
    norms=1,
    parallel=ALWAYS,
    head_bias=Switch(True, ("lm_head_bias",)),
    qkv_bias=Switch(True, ("attention_bias",)),
    out_bias=Switch(True, ("o_bias",)),
    up_bias=Switch(True, ("mlp_bias",)),
    down_bias=Switch(True, ("mlp_bias",)),
    has_qk_norm=Switch(False, ("qk_layernorm",)),
    qk_norm_bias=True,
    gated=False,
    rotary=0.5,
)
PHI3 = replace(MISTRAL, kv_heads=None, window=None, windows=windows.every_layer)
COHERE = replace(
    LLAMA,
    norm=BIASLESS_LAYER_NORM,
    norms=1,
    parallel=Switch(True, ("parallel_attn",)),
    tied=True,
    has_qk_norm=Switch(False, ("use_qk_norm",)),
    qk_norm="width",
    up_bias=NEVER,
    down_bias=NEVER,
)
OLMO2 = replace(LLAMA, has_qk_norm=ALWAYS, qk_norm="width", up_bias=NEVER, down_bias=NEVER)
GLM = replace(
    LLAMA,
    kv_heads=2,
    head_dim=128,
    qkv_bias=Switch(True, ("attention_bias",)),
    out_bias=NEVER,
    up_bias=NEVER,
    down_bias=NEVER,
    rotary=0.5,
)
STARCODER2 = replace(
    LLAMA,
    norm=LAYER_NORM,
    kv_heads=2,
    tied=True,
    gated=False,
    window=None,
    windows=windows.every_layer,
    qkv_bias=Switch(True, ("use_bias",)),
    out_bias=Switch(True, ("use_bias",)),
    up_bias=Switch(True, ("use_bias",)),
    down_bias=Switch(True, ("use_bias",)),
)
