"""Families of Mamba layers, alone or mixed with attention: Mamba, Bamba, Granite-4, Jamba."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfmodel.specs.architectures.attention import read_attention
from perfmodel.specs.architectures.config import MAX_HEADS, Config
from perfmodel.specs.architectures.dense import LLAMA, NEVER
from perfmodel.specs.architectures.experts import experts_of
from perfmodel.specs.architectures.family import Family, Shape
from perfmodel.specs.architectures.feedforward import moe_layers
from perfmodel.specs.architectures.hybrid import MAX_KERNEL, state_dtype
from perfmodel.specs.architectures.windows import LAYER_TYPES
from perfmodel.specs.model import DenseFfn, Ffn, Mamba1, Mamba2, Mixer

MAX_EXPAND = 64


def expanded(config: Config, shape: Shape, *keys: str) -> int:
    """The inner width: the hidden one times ``expand``."""
    return int(config.number(*keys, default=2, low=0.25, high=MAX_EXPAND) * shape.hidden)


def checked(config: Config, layer: Mamba2, inner: int) -> Mamba2:
    """``layer``, whose heads must fill the inner width.

    Raises:
        InputError: they don't, or the groups don't divide them.
    """
    if layer.inner != inner:
        raise config.fault(
            "expand", f"heads × head width ({layer.inner}) must be expand × hidden ({inner})"
        )
    if layer.heads % layer.groups:
        raise config.fault("n_groups", f"must divide the {layer.heads} heads, not {layer.groups}")
    return layer


def mamba2_layers(config: Config, family: Family, shape: Shape) -> Sequence[Mixer]:
    """Mamba-2 in each layer (Codestral-Mamba)."""
    layer = Mamba2(
        heads=config.integer("num_heads", default=128, high=MAX_HEADS),
        head_dim=config.integer("head_dim", default=64),
        state=config.integer("state_size", default=128),
        groups=config.integer("n_groups", default=8, high=MAX_HEADS),
        conv_kernel=config.integer("conv_kernel", default=4, high=MAX_KERNEL),
        conv_bias=config.flag("use_conv_bias", default=True),
        bias=config.flag("use_bias", default=False),
    )
    return [checked(config, layer, expanded(config, shape, "expand"))] * shape.layers


def read_bamba(config: Config, shape: Shape) -> Mamba2:
    """The Mamba-2 layer of Bamba and Granite-4."""
    inner = expanded(config, shape, "mamba_expand")
    heads = config.integer("mamba_n_heads", default=128, high=MAX_HEADS)
    # "auto" divides the inner width among the heads.
    auto = config.data.get("mamba_d_head") == "auto"
    head_dim = max(inner // heads, 1) if auto else config.integer("mamba_d_head", default=64)
    layer = Mamba2(
        heads=heads,
        head_dim=head_dim,
        state=config.integer("mamba_d_state", default=256),
        groups=config.integer("mamba_n_groups", default=1, high=MAX_HEADS),
        conv_kernel=config.integer("mamba_d_conv", default=4, high=MAX_KERNEL),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        bias=config.flag("mamba_proj_bias", default=False),
    )
    return checked(config, layer, inner)


def bamba_layers(config: Config, family: Family, shape: Shape) -> Sequence[Mixer]:
    """Attention in the layers that the config lists, Mamba-2 elsewhere."""
    kinds = config.names("layer_types", shape.layers, LAYER_TYPES)
    attending = set(config.integers("attn_layer_indices") or ())
    if kinds is not None:
        attending = {at for at, kind in enumerate(kinds) if kind.endswith("l_attention")}
        attending |= {at for at, kind in enumerate(kinds) if kind == "attention"}
    mamba = read_bamba(config, shape) if len(attending) < shape.layers else None
    attention = read_attention(config, family, shape) if attending else None
    chosen = [attention if at in attending else mamba for at in range(shape.layers)]
    return [mixer for mixer in chosen if mixer is not None]


def stated_shared(config: Config, width: int) -> int:
    """Granite-4's shared expert, whose width must be stated."""
    return config.integer("shared_intermediate_size", low=0)


def granite_ffns(config: Config, family: Family, shape: Shape) -> Sequence[Ffn]:
    """Granite-4: a shared expert, and routed ones where ``num_local_experts`` isn't 0."""
    if config.integer("num_local_experts", default=8, low=0) > 0:
        return moe_layers(experts_of("intermediate_size", shared=stated_shared))(
            config, family, shape
        )
    return [DenseFfn(width=config.integer("shared_intermediate_size"))] * shape.layers


def mamba1_layers(config: Config, family: Family, shape: Shape) -> Sequence[Mixer]:
    """Mamba-1 in each layer (Mamba, Falcon-Mamba)."""
    rank = config.find("time_step_rank")[1]
    auto = -(-shape.hidden // 16)
    layer = Mamba1(
        # Falcon-Mamba says expand 16 and means its intermediate_size, twice the hidden one.
        inner=config.optional("intermediate_size") or expanded(config, shape, "expand"),
        state=config.integer("state_size", default=16),
        dt_rank=auto if rank == "auto" else config.integer("time_step_rank", default=auto),
        conv_kernel=config.integer("conv_kernel", default=4, high=MAX_KERNEL),
        conv_bias=config.flag("use_conv_bias", default=True),
        bias=config.flag("use_bias", default=False),
    )
    return [layer] * shape.layers


def no_ffns(config: Config, family: Family, shape: Shape) -> Sequence[Ffn | None]:
    """Layers that are mixers alone."""
    return [None] * shape.layers


def jamba_layers(config: Config, family: Family, shape: Shape) -> Sequence[Mixer]:
    """Attention in each ``attn_layer_period``-th layer, Mamba-1 elsewhere."""
    period = config.integer("attn_layer_period", default=8)
    offset = config.integer("attn_layer_offset", default=4, low=0)
    rank = config.find("mamba_dt_rank")[1]
    auto = -(-shape.hidden // 16)
    mamba = Mamba1(
        inner=expanded(config, shape, "mamba_expand"),
        state=config.integer("mamba_d_state", default=16),
        dt_rank=auto if rank == "auto" else config.integer("mamba_dt_rank", default=auto),
        conv_kernel=config.integer("mamba_d_conv", default=4, high=MAX_KERNEL),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        bias=config.flag("mamba_proj_bias", default=False),
        inner_norms=True,
    )
    attention = read_attention(config, family, shape)
    return [attention if at % period == offset else mamba for at in range(shape.layers)]


def jamba_sparse(config: Config, shape: Shape) -> Sequence[bool]:
    """MoE in each ``expert_layer_period``-th layer."""
    period = config.integer("expert_layer_period", default=2)
    offset = config.integer("expert_layer_offset", default=1, low=0)
    experts = config.integer("num_experts", default=16)
    return [experts > 1 and layer % period == offset for layer in range(shape.layers)]


MAMBA2 = replace(LLAMA, mixers=mamba2_layers, ffns=no_ffns, norms=1, extras=state_dtype)
MAMBA1 = replace(MAMBA2, mixers=mamba1_layers)
BAMBA = replace(LLAMA, mixers=bamba_layers, kv_heads=8, rotary=0.5, extras=state_dtype)

FAMILIES: Mapping[str, Family] = {
    "bamba": BAMBA,
    "falcon_mamba": replace(MAMBA1, tied=True),
    "granitemoehybrid": replace(
        BAMBA, kv_heads=None, ffns=granite_ffns, up_bias=NEVER, down_bias=NEVER, rotary=0.0
    ),
    "jamba": replace(
        LLAMA,
        mixers=jamba_layers,
        ffns=moe_layers(experts_of("intermediate_size", top_k=2), jamba_sparse),
        kv_heads=8,
        qkv_bias=NEVER,
        out_bias=NEVER,
        up_bias=NEVER,
        down_bias=NEVER,
        rotary=0.0,
        extras=state_dtype,
    ),
    "mamba": replace(MAMBA1, tied=True),
    "mamba2": MAMBA2,
}
