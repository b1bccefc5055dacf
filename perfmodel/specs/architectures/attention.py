"""Attention layers of a config: heads, head width, biases, rotary share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfmodel.specs.architectures.config import MAX_HEADS, Config
from perfmodel.specs.architectures.family import (
    HEAD_DIM,
    KV_HEADS,
    Family,
    Shape,
    read_heads,
)
from perfmodel.specs.architectures.windows import read_windows
from perfmodel.specs.model import Attention


def read_kv_heads(config: Config, family: Family, heads: int) -> int:
    """KV heads: as stated; the family's default where absent; the query heads where null.

    Raises:
        InputError: the query heads aren't a multiple of them.
    """
    default = heads
    if family.kv_heads is not None and not config.states(*KV_HEADS):
        default = family.kv_heads
    kv_heads = config.integer(*KV_HEADS, default=default, high=MAX_HEADS)
    if heads % kv_heads:
        raise config.fault(
            config.find(*KV_HEADS)[0], f"must divide the {heads} query heads, not {kv_heads}"
        )
    return kv_heads


def read_head_dim(config: Config, family: Family, shape: Shape, heads: int) -> int:
    """Head width: as stated; the family's where absent; else hidden / heads.

    Raises:
        InputError: it must be derived and the heads don't divide the hidden width.
    """
    stated = config.optional(*HEAD_DIM)
    if stated is not None:
        return stated
    if family.head_dim is not None and not config.states(*HEAD_DIM):
        return family.head_dim
    if shape.hidden % heads:
        raise config.fault(
            HEAD_DIM[0], f"missing, and {heads} heads don't divide the hidden width {shape.hidden}"
        )
    return shape.hidden // heads


def read_rotary_dim(config: Config, family: Family, head_dim: int) -> int:
    """Rotated elements of a head."""
    stated = config.optional("rotary_dim", low=0)
    if stated is not None:
        return min(stated, head_dim)
    share = family.rotary
    rope = config.data.get("rope_parameters")
    if isinstance(rope, dict) and isinstance(rope.get("partial_rotary_factor"), float):
        share = rope["partial_rotary_factor"]
    share = config.number("partial_rotary_factor", "rotary_pct", default=share, high=1.0)
    return min(head_dim, int(head_dim * share))


def read_attention(config: Config, family: Family, shape: Shape) -> Attention:
    """The full-attention layer of a config."""
    heads = read_heads(config)
    head_dim = read_head_dim(config, family, shape, heads)
    qkv_bias = family.qkv_bias.read(config)
    return Attention(
        heads=heads,
        kv_heads=read_kv_heads(config, family, heads),
        head_dim=head_dim,
        q_bias=qkv_bias,
        kv_bias=qkv_bias,
        out_bias=family.out_bias.read(config),
        qk_norm=family.qk_norm if family.has_qk_norm.read(config) else "none",
        qk_norm_bias=family.qk_norm_bias,
        sinks=family.sinks,
        output_gate=family.output_gate.read(config),
        rotary_dim=read_rotary_dim(config, family, head_dim),
    )


def attention_layers(config: Config, family: Family, shape: Shape) -> Sequence[Attention]:
    """One attention per layer, alike ones the same object."""
    base = read_attention(config, family, shape)
    windows = read_windows(config, family, shape)
    return with_windows(base, windows, chunked=family.chunked)


def square_layers(config: Config, family: Family, shape: Shape) -> Sequence[Attention]:
    """Attention whose output matrix is hidden × hidden (Helium).

    Raises:
        InputError: the heads don't fill the hidden width.
    """
    layers = attention_layers(config, family, shape)
    filled = layers[0].heads * layers[0].head_dim
    if filled != shape.hidden:
        raise config.fault("head_dim", f"heads × head_dim ({filled}) must be {shape.hidden}")
    return layers


def with_kv_heads(kv_heads: int, config: Config, family: Family, shape: Shape) -> Attention:
    """The attention of ``config`` with so many KV heads, whatever its keys say."""
    base = read_attention(config, replace(family, kv_heads=None), shape)
    if base.heads % kv_heads:
        raise config.fault("num_kv_heads", f"must divide the {base.heads} heads, not {kv_heads}")
    return base.model_copy(update={"kv_heads": kv_heads})


def nested_kv_layers(config: Config, family: Family, shape: Shape) -> Sequence[Attention]:
    """``attn_config`` may state fewer KV heads (MPT, DBRX)."""
    section = config.section("attn_config")
    kv_heads = section.optional("kv_n_heads", high=MAX_HEADS) if section else None
    return [with_kv_heads(kv_heads or read_heads(config), config, family, shape)] * shape.layers


def with_windows(
    base: Attention, windows: Sequence[int | None], chunked: bool = False
) -> Sequence[Attention]:
    """``base`` with each layer's window."""
    made: dict[int | None, Attention] = {None: base}
    for window in windows:
        if window not in made:
            made[window] = base.model_copy(update={"window": window, "chunked": chunked})
    return [made[window] for window in windows]
