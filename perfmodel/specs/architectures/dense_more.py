"""Dense decoders that differ from `dense`'s in a trait or two, and the table of them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perfmodel.specs.architectures import windows
from perfmodel.specs.architectures.attention import square_layers
from perfmodel.specs.architectures.dense import (
    ALWAYS,
    COHERE,
    GEMMA,
    GEMMA2,
    GEMMA3,
    GLM,
    LLAMA,
    MISTRAL,
    NEVER,
    OLMO2,
    PHI,
    PHI3,
    QWEN2,
    QWEN2_VL,
    QWEN3,
    STARCODER2,
)
from perfmodel.specs.architectures.family import LAYER_NORM, Family, Switch
from perfmodel.specs.architectures.feedforward import halved_layers
from perfmodel.specs.model import Norm

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
EXAONE4 = replace(
    LLAMA,
    kv_heads=32,
    qkv_bias=NEVER,
    out_bias=NEVER,
    up_bias=NEVER,
    down_bias=NEVER,
    has_qk_norm=ALWAYS,
    window=4096,
    windows=windows.exaone4,
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
    "cohere2": replace(
        COHERE, has_qk_norm=NEVER, head_dim=128, window=4096, windows=windows.all_but_every(4)
    ),
    "cwm": replace(
        LLAMA,
        kv_heads=8,
        head_dim=128,
        qkv_bias=NEVER,
        out_bias=NEVER,
        window=8192,
        windows=windows.all_but_each_fourth_from_0,
    ),
    "ernie4_5": ERNIE,
    "exaone": LLAMA,
    "exaone4": EXAONE4,
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
        window=None,
        windows=windows.every_layer,
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
    "olmo3": replace(OLMO2, window=4096, windows=windows.all_but_every(4)),
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
    "smollm3": replace(LLAMA, tied=True, kv_heads=4, windows=windows.smollm3),
    "stablelm": STABLELM,
    "starcoder2": STARCODER2,
    "vaultgemma": replace(GEMMA2, norms=2),
}
