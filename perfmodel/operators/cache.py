"""What a sequence keeps between steps: keys and values per token, and constant states.

Layers may be a whole model's or one GPU's (see `sharding`); contexts may be numbers or arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from perfmodel.operators.format_bytes import BASE, vector_bytes
from perfmodel.operators.quantity import Quantity, minimum
from perfmodel.specs.cache_formats import CacheFormat, as_cache
from perfmodel.specs.formats import NumberFormat
from perfmodel.specs.model import (
    Attention,
    GatedDeltaNet,
    LatentAttention,
    Layer,
    Mamba1,
    Mamba2,
    Mixer,
    Model,
)

CONV_BYTES = 2.0
"""The short convolution's last inputs are kept in the activations' 16 bits."""
STATE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}
"""Bytes of an element of the recurrent state, by `Model.state_dtype`."""
INDEX_SCALE_BYTES = 4
"""DeepSeek-V3.2 keeps its indexer's keys in fp8 with one fp32 scale per token, whatever the
format of the main cache."""

Recurrent = GatedDeltaNet | Mamba2 | Mamba1
Stored = NumberFormat | CacheFormat
"""A cache's format: one for keys and values, or one each."""


def token_bytes(mixer: Mixer | None, cache: Stored = BASE) -> float:
    """Bytes of one token in one layer: keys and values, or MLA's latent and rotary key.

    MLA's latent is stored as keys are. Tokens that stay in 16 bits for being the newest are apart
    (`recent_bytes`).
    """
    stored = as_cache(cache)
    if isinstance(mixer, Attention):
        keys = vector_bytes(stored.keys, mixer.kv_heads, mixer.head_dim)
        return keys + vector_bytes(stored.values, mixer.kv_heads, mixer.value_dim)
    if isinstance(mixer, LatentAttention):
        return vector_bytes(stored.keys, 1, mixer.kv_rank + mixer.rope_dim)
    return 0.0


def recent_bytes(mixer: Mixer | None, cache: Stored, kept: Quantity) -> Quantity:
    """What the newest of ``kept`` tokens take beyond the quantised size, in one layer."""
    recent = as_cache(cache).recent
    if not recent:
        return 0.0
    return minimum(kept, recent) * (token_bytes(mixer) - token_bytes(mixer, cache))


def index_token_bytes(mixer: Mixer | None) -> float:
    """Bytes of one token's indexer key in one layer, where the layer has an indexer of its own."""
    index = mixer.indexer if isinstance(mixer, LatentAttention) else None
    return 0.0 if index is None or index.shared else float(index.head_dim + INDEX_SCALE_BYTES)


def layer_window(mixer: Mixer | None) -> int | None:
    """Tokens that a layer keeps at most; None where it keeps all."""
    return mixer.window if isinstance(mixer, Attention) else None


def kept_tokens(mixer: Mixer | None, context: Quantity, cap: int | None = None) -> Quantity:
    """Tokens that a layer keeps of ``context``; layers without a window at most ``cap``."""
    limit = layer_window(mixer) or cap
    return context if limit is None else minimum(context, limit)


def conv_channels(mixer: Recurrent) -> int:
    """Channels of the short convolution."""
    if isinstance(mixer, GatedDeltaNet):
        return 2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim
    if isinstance(mixer, Mamba2):
        return mixer.inner + 2 * mixer.groups * mixer.state
    return mixer.inner


def layer_state(mixer: Mixer | None) -> tuple[int, int]:
    """Elements of one sequence's recurrent and convolution state in one layer."""
    if isinstance(mixer, GatedDeltaNet):
        recurrent = mixer.value_heads * mixer.key_dim * mixer.value_dim
    elif isinstance(mixer, Mamba2 | Mamba1):
        recurrent = mixer.inner * mixer.state
    else:
        return 0, 0
    return recurrent, conv_channels(mixer) * (mixer.conv_kernel - 1)


def layer_state_bytes(mixer: Mixer | None, element_bytes: float) -> float:
    """Bytes of one layer's state; ``element_bytes`` of the recurrent part."""
    recurrent, conv = layer_state(mixer)
    return element_bytes * recurrent + CONV_BYTES * conv


Allocate = Callable[[Quantity, int | None], Quantity]
"""From the tokens that a layer stores, and its window, to those that are set aside for it."""


def as_stored(stored: Quantity, window: int | None) -> Quantity:
    """Set aside exactly what is stored."""
    return stored


def cache_bytes(
    layers: Iterable[Layer],
    context: Quantity,
    cache: Stored = BASE,
    allocate: Allocate = as_stored,
    cap: int | None = None,
) -> Quantity:
    """Bytes of one sequence's cache at ``context`` tokens, an indexer's keys included.

    ``allocate`` says what a layout sets aside: whole blocks, or a reserved length. ``cap``: tokens
    that layers without a window keep at most.
    """
    total: Quantity = 0.0
    for mixer, count in Counter(layer.mixer for layer in layers).items():
        per_token = token_bytes(mixer, cache) + index_token_bytes(mixer)
        if per_token:
            kept = kept_tokens(mixer, context, cap)
            newest = recent_bytes(mixer, cache, kept)
            tokens = allocate(kept, layer_window(mixer))
            total = total + count * (per_token * tokens + newest)
    return total


def state_bytes(layers: Iterable[Layer], element_bytes: float) -> float:
    """Bytes of one sequence's constant states."""
    return sum(layer_state_bytes(layer.mixer, element_bytes) for layer in layers)


def kv_bytes_per_token(model: Model, cache: Stored = BASE, *, beyond_window: bool = False) -> float:
    """Bytes that one token takes over all layers, an indexer's keys apart.

    ``beyond_window``: what one more token takes once every window is full; otherwise every
    layer counts, as at full length.
    """
    return sum(
        token_bytes(layer.mixer, cache)
        for layer in model.layers
        if not (beyond_window and layer_window(layer.mixer))
    )


def window_cap_bytes(model: Model, cache: Stored = BASE) -> float:
    """Bytes that the layers with a window take at most, of one sequence."""
    return sum(
        token_bytes(layer.mixer, cache) * (layer_window(layer.mixer) or 0) for layer in model.layers
    )


def indexer_bytes_per_token(model: Model) -> float:
    """Bytes of the indexers' keys of one token over all layers."""
    return sum(index_token_bytes(layer.mixer) for layer in model.layers)


def state_elements(model: Model) -> tuple[int, int]:
    """Elements of one sequence's recurrent and convolution states over all layers."""
    states = [layer_state(layer.mixer) for layer in model.layers]
    return sum(state[0] for state in states), sum(state[1] for state in states)


def state_bytes_per_sequence(model: Model) -> float:
    """Bytes of one sequence's constant states over all layers."""
    return state_bytes(model.layers, STATE_BYTES[model.state_dtype])
