"""Families that mix attention with linear attention or state-space layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.specs.architectures.attention import read_attention
from perfmodel.specs.architectures.config import MAX_HEADS, Config
from perfmodel.specs.architectures.dense import LLAMA, NEVER, QWEN3
from perfmodel.specs.architectures.experts import QWEN2_EXPERTS, experts_of
from perfmodel.specs.architectures.family import Family, Shape, Switch
from perfmodel.specs.architectures.feedforward import moe_layers, read_dense, sparse_steps
from perfmodel.specs.architectures.mtp import next_token_modules
from perfmodel.specs.architectures.windows import LAYER_TYPES
from perfmodel.specs.model import (
    Ffn,
    GatedDeltaNet,
    Mamba2,
    Mixer,
)

MAX_KERNEL = 2**10
DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def state_dtype(config: Config, shape: Shape) -> Mapping[str, Any]:
    """The format of the recurrent state, where the config says it."""
    for key in ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"):
        if config.text(key) is not None:
            return {"state_dtype": DTYPES[config.choice(key, DTYPES, default="bfloat16")]}
    return {}


def read_delta(config: Config) -> GatedDeltaNet:
    """Qwen3-Next's linear attention."""
    return GatedDeltaNet(
        key_heads=config.integer("linear_num_key_heads", default=16, high=MAX_HEADS),
        value_heads=config.integer("linear_num_value_heads", default=32, high=MAX_HEADS),
        key_dim=config.integer("linear_key_head_dim", default=128),
        value_dim=config.integer("linear_value_head_dim", default=128),
        conv_kernel=config.integer("linear_conv_kernel_dim", default=4, high=MAX_KERNEL),
    )


def qwen3_next_layers(config: Config, family: Family, shape: Shape) -> Sequence[Mixer]:
    """Full attention in each ``full_attention_interval``-th layer, gated delta nets elsewhere."""
    kinds = config.names("layer_types", shape.layers, LAYER_TYPES)
    if kinds is None:
        step = config.integer("full_attention_interval", default=4)
        kinds = [
            "linear_attention" if (layer + 1) % step else "full_attention"
            for layer in range(shape.layers)
        ]
    mixers: dict[str, Mixer] = {"full_attention": read_attention(config, family, shape)}
    if "linear_attention" in kinds:
        mixers["linear_attention"] = read_delta(config)
    for position, kind in enumerate(kinds):
        if kind not in mixers:
            known = "full_attention or linear_attention"
            raise config.fault(f"layer_types.{position}", f"must be {known}, not {kind!r}")
    return [mixers[kind] for kind in kinds]


QWEN3_NEXT = replace(
    QWEN3,
    mixers=qwen3_next_layers,
    ffns=moe_layers(QWEN2_EXPERTS, sparse_steps),
    kv_heads=2,
    head_dim=256,
    output_gate=Switch(True, ("attn_output_gate",)),
    rotary=0.25,
    extras=state_dtype,
    mtp=next_token_modules,
)


NEMOTRON_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
NEMOTRON_KINDS = {
    **NEMOTRON_LETTERS,
    **{kind: kind for kind in NEMOTRON_LETTERS.values()},
    "linear_attention": "mamba",
    "full_attention": "attention",
}


def nemotron_kinds(config: Config, shape: Shape) -> list[str]:
    """What each block is: mamba, attention, mlp or moe.

    Raises:
        InputError: no pattern, one of the wrong length, or a letter that isn't known.
    """
    key, pattern = config.find("hybrid_override_pattern", "layers_block_type")
    if pattern is None:
        raise config.fault(key, "missing; it must have one letter of M * - E per layer")
    if not isinstance(pattern, str | list):
        raise config.fault(key, "must be text or a list")
    if len(pattern) != shape.layers:
        raise config.fault(
            key, f"must have one item per layer ({shape.layers}), not {len(pattern)}"
        )
    for position, item in enumerate(pattern):
        if not isinstance(item, str) or item not in NEMOTRON_KINDS:
            known = ", ".join(NEMOTRON_KINDS)
            raise config.fault(f"{key}.{position}", f"must be one of {known}, not {item!r:.40}")
    return [NEMOTRON_KINDS[item] for item in pattern]


def nemotron_count(config: Config) -> int | None:
    """As many layers as the pattern has items."""
    pattern = config.find("hybrid_override_pattern", "layers_block_type")[1]
    return len(pattern) if isinstance(pattern, str | list) else None


def nemotron_mixers(config: Config, family: Family, shape: Shape) -> Sequence[Mixer | None]:
    """The blocks that mix: Mamba-2 and attention without rotary positions."""
    kinds = nemotron_kinds(config, shape)
    mixers: dict[str, Mixer] = {}
    if "attention" in kinds:
        mixers["attention"] = read_attention(config, family, shape)
    if "mamba" in kinds:
        mixers["mamba"] = Mamba2(
            heads=config.integer("mamba_num_heads", default=128, high=MAX_HEADS),
            head_dim=config.integer("mamba_head_dim", default=64),
            state=config.integer("ssm_state_size", default=128),
            groups=config.integer("n_groups", default=8, high=MAX_HEADS),
            conv_kernel=config.integer("conv_kernel", default=4, high=MAX_KERNEL),
            conv_bias=config.flag("use_conv_bias", default=True),
            bias=config.flag("use_bias", default=False),
        )
    return [mixers.get(kind) for kind in kinds]


def nemotron_shared(config: Config, width: int) -> int:
    """One shared expert of its own width, whatever ``n_shared_experts`` says."""
    return config.integer("moe_shared_expert_intermediate_size")


NEMOTRON_EXPERTS = experts_of("moe_intermediate_size", correction=True, shared=nemotron_shared)


def nemotron_ffns(config: Config, family: Family, shape: Shape) -> Sequence[Ffn | None]:
    """The blocks that don't mix: dense MLPs and mixtures of experts."""
    kinds = nemotron_kinds(config, shape)
    if config.optional("moe_latent_size") is not None:
        raise config.fault("moe_latent_size", "experts in a latent space aren't supported")
    ffns: dict[str, Ffn] = {}
    if "mlp" in kinds:
        ffns["mlp"] = read_dense(config, family, shape)
    if "moe" in kinds:
        ffns["moe"] = NEMOTRON_EXPERTS(config, family, shape)
    return [ffns.get(kind) for kind in kinds]


FAMILIES: Mapping[str, Family] = {
    "qwen3_next": QWEN3_NEXT,
    "qwen3_5_text": replace(
        QWEN3_NEXT,
        ffns=LLAMA.ffns,
        kv_heads=4,
        defaults={
            "vocab_size": 248320,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 32,
            "num_attention_heads": 16,
            "max_position_embeddings": 32768,
        },
    ),
    "qwen3_5_moe_text": replace(
        QWEN3_NEXT,
        ffns=moe_layers(QWEN2_EXPERTS),
        defaults={
            "vocab_size": 248320,
            "hidden_size": 2048,
            "num_hidden_layers": 40,
            "num_attention_heads": 16,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "max_position_embeddings": 32768,
        },
    ),
    "nemotron_h": replace(
        LLAMA,
        mixers=nemotron_mixers,
        ffns=nemotron_ffns,
        layer_count=nemotron_count,
        norms=1,
        kv_heads=8,
        head_dim=128,
        qkv_bias=NEVER,
        out_bias=NEVER,
        gated=False,
        rotary=0.0,
        extras=state_dtype,
    ),
}
