"""Which layers of a config see a window, by each family's rule.

A rule takes the window's size (None: the config has none) and gives each layer's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfmodel.specs.architectures.config import Config, shown
from perfmodel.specs.architectures.family import Family, Shape

MAX_WINDOW = 2**24
LAYER_TYPES = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "attention",
    "linear_attention",
    "indexed_attention",
    "mamba",
)
Windows = Sequence[int | None]
Rule = Callable[[Config, Shape, int | None], Windows]


def read_windows(config: Config, family: Family, shape: Shape) -> Windows:
    """Each layer's window; one that the positions can't outgrow is none."""
    size = window_size(config, family)
    windows = layer_type_windows(config, family, shape, size)
    if windows is None:
        windows = (family.windows or no_layer)(config, shape, size)
    limit = shape.max_positions or MAX_WINDOW
    return [window if window and window < limit else None for window in windows]


def window_key(family: Family) -> str:
    """The key that states the window's size."""
    return "attention_chunk_size" if family.chunked else "sliding_window"


def window_size(config: Config, family: Family) -> int | None:
    """The window: null or 0 means none, absence the family's default."""
    key = window_key(family)
    size = config.optional(key, low=0, high=MAX_WINDOW)
    if size is None and not config.states(key):
        size = family.window
    return size or None


def layer_type_windows(
    config: Config, family: Family, shape: Shape, size: int | None
) -> Windows | None:
    """Windows from ``layer_types``, where the config has it.

    Raises:
        InputError: a layer slides and no window is stated.
    """
    kinds = config.names("layer_types", shape.layers, LAYER_TYPES)
    if kinds is None:
        return None
    kind = "chunked_attention" if family.chunked else "sliding_attention"
    if kind in kinds and size is None:
        raise config.fault(window_key(family), f"missing, though layer_types has {kind}")
    return [size if here == kind else None for here in kinds]


def no_layer(config: Config, shape: Shape, size: int | None) -> Windows:
    """All layers see all, whatever ``sliding_window`` says (Llama)."""
    return [None] * shape.layers


def every_layer(config: Config, shape: Shape, size: int | None) -> Windows:
    """All layers slide (Mistral, Phi-3, StarCoder2)."""
    return [size] * shape.layers


def where_switched_on(config: Config, shape: Shape, size: int | None) -> Windows:
    """All layers slide where ``use_sliding_window`` (Qwen3-MoE)."""
    return [size if config.flag("use_sliding_window", default=False) else None] * shape.layers


def last_layers(config: Config, shape: Shape, size: int | None) -> Windows:
    """The layers from ``max_window_layers`` on slide (dots.llm1)."""
    start = config.integer("max_window_layers", default=62, low=0)
    return [size if layer >= start else None for layer in range(shape.layers)]


def qwen2(config: Config, shape: Shape, size: int | None) -> Windows:
    """Where ``use_sliding_window``: the layers from ``max_window_layers`` on (Qwen2, Qwen3)."""
    on = config.flag("use_sliding_window", default=False)
    start = config.integer("max_window_layers", default=28, low=0)
    return [size if on and layer >= start else None for layer in range(shape.layers)]


def qwen2_moe(config: Config, shape: Shape, size: int | None) -> Windows:
    """Where ``use_sliding_window``: every other layer before ``max_window_layers``."""
    on = config.flag("use_sliding_window", default=False)
    end = config.integer("max_window_layers", default=28, low=0)
    return [size if on and at % 2 == 0 and at < end else None for at in range(shape.layers)]


def all_but_every(period: int) -> Rule:
    """Layers slide except each ``period``-th, which sees all (Gemma-2 and 3, Command-R7B)."""

    def windows(config: Config, shape: Shape, size: int | None) -> Windows:
        step = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=period)
        return [size if (layer + 1) % step else None for layer in range(shape.layers)]

    return windows


def exaone4(config: Config, shape: Shape, size: int | None) -> Windows:
    """A pattern of L (window) and G (all) letters, or the period of the layers that see all.

    Raises:
        InputError: other letters.
    """
    pattern = config.data.get("sliding_window_pattern")
    if not isinstance(pattern, str):
        return all_but_every(4)(config, shape, size)
    if not pattern or set(pattern) - {"L", "G"}:
        raise config.fault("sliding_window_pattern", f"must be L and G, not {shown(pattern)}")
    kinds = [pattern[layer % len(pattern)] for layer in range(shape.layers - 1)] + ["G"]
    return [size if kind == "L" else None for kind in kinds]


def all_but_each_fourth_from_0(config: Config, shape: Shape, size: int | None) -> Windows:
    """Layers 0, 4, 8 … see all, the others a window (CWM)."""
    return [size if layer % 4 else None for layer in range(shape.layers)]


def smollm3(config: Config, shape: Shape, size: int | None) -> Windows:
    """Where ``use_sliding_window``: the layers without rotary positions slide."""
    on = config.flag("use_sliding_window", default=False)
    return [size if on and not rotary else None for rotary in rotary_layers(config, shape)]


def llama4(config: Config, shape: Shape, size: int | None) -> Windows:
    """Layers with rotary positions see their chunk; the others see all."""
    return [size if rotary else None for rotary in rotary_layers(config, shape)]


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
