"""Attention layers of a config: heads, biases, and which layers see a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from perfmodel.specs.architectures.config import MAX_HEADS, Config, shown
from perfmodel.specs.architectures.family import (
    HEAD_DIM,
    KV_HEADS,
    Family,
    Shape,
    read_heads,
)
from perfmodel.specs.model import Attention

MAX_WINDOW = 2**24
LAYER_TYPES = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "attention",
    "linear_attention",
    "mamba",
)
WINDOWED = ("sliding_attention", "chunked_attention")
Windows = Callable[[Config, Shape], Sequence[int | None]]


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


def read_windows(config: Config, family: Family, shape: Shape) -> Sequence[int | None]:
    """Each layer's window; one that the context can't outgrow is none."""
    windows = layer_type_windows(config, shape)
    if windows is None:
        windows = family.windows(config, shape) if family.windows else [None] * shape.layers
    limit = shape.max_positions or MAX_WINDOW
    return [window if window and window < limit else None for window in windows]


def layer_type_windows(
    config: Config, shape: Shape, default: int | None = None
) -> Sequence[int | None] | None:
    """Windows from ``layer_types``, where the config has it.

    Raises:
        InputError: a layer slides and no window is stated.
    """
    kinds = config.names("layer_types", shape.layers, LAYER_TYPES)
    if kinds is None:
        return None
    sizes = {
        "sliding_attention": config.optional("sliding_window", low=0, high=MAX_WINDOW) or default,
        "chunked_attention": config.optional("attention_chunk_size", high=MAX_WINDOW),
    }
    for kind, key in zip(WINDOWED, ("sliding_window", "attention_chunk_size"), strict=True):
        if kind in kinds and sizes[kind] is None:
            raise config.fault(key, f"missing, though layer_types has {kind}")
    return [sizes.get(kind) for kind in kinds]


def window_size(config: Config, absent: int | None) -> int | None:
    """``sliding_window``: null means none, absence the family's default."""
    size = config.optional("sliding_window", low=0, high=MAX_WINDOW)
    if size is None and not config.states("sliding_window"):
        size = absent
    return size or None


def every_layer(absent: int | None) -> Windows:
    """All layers slide (Mistral, Phi-3, StarCoder2)."""

    def windows(config: Config, shape: Shape) -> Sequence[int | None]:
        return [window_size(config, absent)] * shape.layers

    return windows


def switched(absent: int | None, first: bool) -> Windows:
    """Where ``use_sliding_window``: layers from ``max_window_layers`` on, or all if ``first``."""

    def windows(config: Config, shape: Shape) -> Sequence[int | None]:
        if not config.flag("use_sliding_window", default=False):
            return [None] * shape.layers
        size = window_size(config, absent)
        start = 0 if first else config.integer("max_window_layers", default=28, low=0)
        return [size if layer >= start else None for layer in range(shape.layers)]

    return windows


def all_but_every(period: int, absent: int | None) -> Windows:
    """Layers slide except each ``period``-th, which sees all (Gemma-2 and 3, Command-R7B)."""

    def windows(config: Config, shape: Shape) -> Sequence[int | None]:
        size = window_size(config, absent)
        step = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=period)
        return [size if (layer + 1) % step else None for layer in range(shape.layers)]

    return windows


def exaone4_windows(config: Config, shape: Shape) -> Sequence[int | None]:
    """A pattern of L (window) and G (all) letters, or the period of the layers that see all."""
    pattern = config.data.get("sliding_window_pattern")
    if not isinstance(pattern, str):
        return all_but_every(4, 4096)(config, shape)
    if not pattern or set(pattern) - {"L", "G"}:
        raise config.fault("sliding_window_pattern", f"must be L and G, not {shown(pattern)}")
    size = window_size(config, 4096)
    kinds = [pattern[layer % len(pattern)] for layer in range(shape.layers - 1)] + ["G"]
    return [size if kind == "L" else None for kind in kinds]


def every_fourth_from_first(config: Config, shape: Shape) -> Sequence[int | None]:
    """Layers 0, 4, 8 … see all, the others a window (CWM)."""
    size = window_size(config, 8192)
    return [size if layer % 4 else None for layer in range(shape.layers)]


def smollm3_windows(config: Config, shape: Shape) -> Sequence[int | None]:
    """Where ``use_sliding_window``: the layers without rotary positions slide."""
    if not config.flag("use_sliding_window", default=False):
        return [None] * shape.layers
    size = window_size(config, None)
    return [None if rotary else size for rotary in rotary_layers(config, shape)]


def rotary_layers(config: Config, shape: Shape) -> Sequence[bool]:
    """Which layers have rotary positions (SmolLM3, Llama-4).

    Raises:
        InputError: ``no_rope_layers`` hasn't one item per layer.
    """
    stated = config.integers("no_rope_layers", high=1)
    if not stated:
        step = config.integer("no_rope_layer_interval", default=4)
        return [(layer + 1) % step != 0 for layer in range(shape.layers)]
    if len(stated) != shape.layers:
        message = f"must have one item per layer ({shape.layers}), not {len(stated)}"
        raise config.fault("no_rope_layers", message)
    return [bool(item) for item in stated]
