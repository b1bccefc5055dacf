"""Families of dense decoders with rotary positions: Llama and what differs little from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perfmodel.specs.architectures.attention import (
    all_but_every,
    attention_layers,
    every_fourth_from_first,
    every_layer,
    exaone4_windows,
    smollm3_windows,
    square_layers,
    switched,
)
from perfmodel.specs.architectures.family import (
    BIASLESS_LAYER_NORM,
    LAYER_NORM,
    Family,
    Switch,
)
from perfmodel.specs.architectures.feedforward import dense_layers, halved_layers
from perfmodel.specs.model import Norm

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
    windows=every_layer(4096),
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
    windows=switched(4096, first=False),
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
GEMMA2 = replace(GEMMA, norms=4, kv_heads=4, windows=all_but_every(2, 4096))
GEMMA3 = replace(
    GEMMA2,
    has_qk_norm=ALWAYS,
    windows=all_but_every(6, 4096),
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
PHI3 = replace(MISTRAL, kv_heads=None, windows=every_layer(None))
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
    windows=every_layer(None),
    qkv_bias=Switch(True, ("use_bias",)),
    out_bias=Switch(True, ("use_bias",)),
    up_bias=Switch(True, ("use_bias",)),
    down_bias=Switch(True, ("use_bias",)),
)

APERTUS = replace(
    LLAMA,
    gated=False,
    has_qk_norm=ALWAYS,
    activation_weights=2,
    up_bias=NEVER,
    down_bias=NEVER,
)
ERNIE_BIAS = Switch(False, ("use_bias",))
ERNIE = replace(
    LLAMA,
    tied=True,
    kv_heads=2,
    head_dim=128,
    qkv_bias=ERNIE_BIAS,
    out_bias=ERNIE_BIAS,
    up_bias=ERNIE_BIAS,
    down_bias=ERNIE_BIAS,
)
HUNYUAN = replace(LLAMA, has_qk_norm=ALWAYS, up_bias=NEVER, down_bias=NEVER)
INTERNLM_BIAS = Switch(False, ("bias",))
INTERNLM3_BIAS = Switch(False, ("bias", "mlp_bias"))
STABLELM = replace(
    LLAMA,
    norm=LAYER_NORM,
    norms=lambda config: 1 if config.flag("use_parallel_residual", default=False) else 2,
    parallel=Switch(False, ("use_parallel_residual",)),
    kv_heads=32,
    qkv_bias=Switch(False, ("use_qkv_bias",)),
    out_bias=NEVER,
    up_bias=NEVER,
    down_bias=NEVER,
    has_qk_norm=Switch(False, ("qk_layernorm",)),
    qk_norm="width",
    rotary=0.25,
)
QWEN1 = replace(
    LLAMA,
    qkv_bias=ALWAYS,
    out_bias=NEVER,
    up_bias=NEVER,
    down_bias=NEVER,
    ffns=halved_layers,
)

FAMILIES: Mapping[str, Family] = {
    "apertus": APERTUS,
    "arcee": replace(LLAMA, gated=False),
    "baichuan": replace(LLAMA, qkv_bias=NEVER, out_bias=NEVER, up_bias=NEVER, down_bias=NEVER),
    "cohere": COHERE,
    "cohere2": replace(COHERE, has_qk_norm=NEVER, head_dim=128, windows=all_but_every(4, 4096)),
    "cwm": replace(
        LLAMA,
        kv_heads=8,
        head_dim=128,
        qkv_bias=NEVER,
        out_bias=NEVER,
        windows=every_fourth_from_first,
    ),
    "ernie4_5": ERNIE,
    "exaone": LLAMA,
    "exaone4": replace(
        LLAMA,
        kv_heads=32,
        qkv_bias=NEVER,
        out_bias=NEVER,
        up_bias=NEVER,
        down_bias=NEVER,
        has_qk_norm=ALWAYS,
        windows=exaone4_windows,
    ),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
    "glm": GLM,
    "glm4": replace(GLM, norms=4),
    "granite": LLAMA,
    "helium": replace(LLAMA, mixers=square_layers, kv_heads=20, head_dim=128, out_bias=NEVER),
    "hunyuan_v1_dense": HUNYUAN,
    "hyperclovax": replace(
        LLAMA, norms=lambda config: 4 if config.flag("use_post_norm", default=True) else 2
    ),
    "internlm2": replace(
        LLAMA, qkv_bias=INTERNLM_BIAS, out_bias=INTERNLM_BIAS, up_bias=NEVER, down_bias=NEVER
    ),
    "internlm3": replace(
        LLAMA,
        kv_heads=2,
        head_dim=128,
        out_bias=INTERNLM3_BIAS,
        up_bias=INTERNLM3_BIAS,
        down_bias=INTERNLM3_BIAS,
    ),
    "jais2": replace(
        LLAMA,
        norm=LAYER_NORM,
        gated=False,
        qkv_bias=Switch(True, ("attention_bias",)),
        out_bias=Switch(True, ("attention_bias",)),
        up_bias=Switch(True, ("mlp_bias",)),
        down_bias=Switch(True, ("mlp_bias",)),
    ),
    "llama": LLAMA,
    "ministral": MISTRAL,
    "ministral3": replace(
        MISTRAL,
        head_dim=128,
        windows=every_layer(None),
        defaults={
            "vocab_size": 131072,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 34,
            "num_attention_heads": 32,
            "max_position_embeddings": 262144,
        },
    ),
    "mistral": MISTRAL,
    "nanochat": replace(
        LLAMA, norm=Norm(weight=False), gated=False, up_bias=NEVER, down_bias=NEVER
    ),
    "nemotron": replace(LLAMA, norm=LAYER_NORM, gated=False, rotary=0.5),
    "olmo": replace(LLAMA, norm=Norm(kind="layer", weight=False), up_bias=NEVER, down_bias=NEVER),
    "olmo2": OLMO2,
    "olmo3": replace(OLMO2, windows=all_but_every(4, 4096)),
    "phi": PHI,
    "phi3": PHI3,
    "qwen": QWEN1,
    "qwen2": QWEN2,
    "qwen2_vl_text": QWEN2_VL,
    "qwen2_5_vl_text": QWEN2_VL,
    "qwen3": QWEN3,
    "qwen3_vl_text": replace(
        QWEN3, windows=None, defaults={**QWEN2.defaults, "max_position_embeddings": 128000}
    ),
    "seed_oss": replace(
        LLAMA,
        kv_heads=8,
        head_dim=128,
        qkv_bias=Switch(True, ("attention_bias",)),
        out_bias=Switch(False, ("attention_out_bias",)),
    ),
    "smollm3": replace(LLAMA, tied=True, kv_heads=4, windows=smollm3_windows),
    "stablelm": STABLELM,
    "starcoder2": STARCODER2,
    "vaultgemma": replace(GEMMA2, norms=2),
}
