"""What a sequence keeps between steps: keys and values per token, and constant states.

Every formula stands here once. Contexts and widths may be scalars or numpy arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from perfmodel.specs.model import (
    Attention,
    GatedDeltaNet,
    LatentAttention,
    Mamba1,
    Mamba2,
    Mixer,
    Model,
)

CONV_BYTES = 2
"""The short convolution's last inputs are kept in the activations' 16 bits."""
STATE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def kv_elements(mixer: Mixer | None) -> int:
    """Cached elements of one token in one layer: keys and values, or MLA's latent."""
    if isinstance(mixer, Attention):
        return mixer.kv_heads * (mixer.head_dim + mixer.value_dim)
    if isinstance(mixer, LatentAttention):
        return mixer.kv_rank + mixer.rope_dim
    return 0


def window(mixer: Mixer | None) -> int | None:
    """The layer's window; None where all positions are seen or there is no cache."""
    return mixer.window if isinstance(mixer, Attention) else None


def kv_tokens(layer_window: int | None, context: Any) -> Any:
    """Tokens that a layer keeps of ``context`` ones (a scalar or an array)."""
    return context if layer_window is None else np.minimum(context, layer_window)


def kv_bytes_per_token(model: Model, width_bytes: Any = 2.0, beyond_window: bool = False) -> Any:
    """Bytes of KV cache that one token takes over all layers, MLA's latent where it is used.

    Args:
        model: The model.
        width_bytes: Bytes of an element.
        beyond_window: What one more token takes once every window is full; otherwise every
            layer counts, as at full length.
    """
    elements = sum(
        kv_elements(layer.mixer)
        for layer in model.layers
        if not (beyond_window and window(layer.mixer))
    )
    return elements * width_bytes


def kv_bytes(model: Model, context: Any, width_bytes: Any = 2.0) -> Any:
    """Bytes of one sequence's KV cache at ``context`` tokens, windows capped."""
    total: Any = 0
    for mixer, count in _groups(model):
        total = total + count * kv_elements(mixer) * kv_tokens(window(mixer), context)
    return total * width_bytes


def window_cap_bytes(model: Model, width_bytes: Any = 2.0) -> Any:
    """Bytes that the windowed layers take at most, of one sequence."""
    elements = sum(count * kv_elements(m) * (window(m) or 0) for m, count in _groups(model))
    return elements * width_bytes


def indexer_bytes_per_token(model: Model, width_bytes: Any = 2.0) -> Any:
    """Bytes of the indexer's keys of one token (DeepSeek-V3.2), kept apart from the latent."""
    return sum(indexer_elements(layer.mixer) for layer in model.layers) * width_bytes


def indexer_elements(mixer: Mixer | None) -> int:
    """Elements of one token's indexer key in one layer."""
    if isinstance(mixer, LatentAttention) and mixer.indexer and not mixer.indexer.shared:
        return mixer.indexer.head_dim
    return 0


def mixer_state_elements(mixer: Mixer | None) -> tuple[int, int]:
    """Elements of one layer's recurrent and convolution state, of one sequence."""
    if isinstance(mixer, GatedDeltaNet):
        keys = mixer.key_heads * mixer.key_dim
        values = mixer.value_heads * mixer.value_dim
        recurrent = values * mixer.key_dim
        return recurrent, (2 * keys + values) * (mixer.conv_kernel - 1)
    if isinstance(mixer, Mamba2):
        width = mixer.inner + 2 * mixer.groups * mixer.state
        return mixer.inner * mixer.state, width * (mixer.conv_kernel - 1)
    if isinstance(mixer, Mamba1):
        return mixer.inner * mixer.state, mixer.inner * (mixer.conv_kernel - 1)
    return 0, 0


def state_elements(model: Model) -> tuple[int, int]:
    """Elements of the recurrent and the convolution states of one sequence, over all layers."""
    recurrent = conv = 0
    for mixer, count in _groups(model):
        one = mixer_state_elements(mixer)
        recurrent += count * one[0]
        conv += count * one[1]
    return recurrent, conv


def state_bytes_per_sequence(model: Model) -> int:
    """Bytes of one sequence's constant states: recurrent as the config says, convolution 2 each."""
    recurrent, conv = state_elements(model)
    return recurrent * STATE_BYTES[model.state_dtype] + conv * CONV_BYTES


def _groups(model: Model) -> Iterator[tuple[Mixer, int]]:
    """Each distinct mixer with its number of layers."""
    counts: dict[Mixer, int] = {}
    for layer in model.layers:
        if layer.mixer is not None:
            counts[layer.mixer] = counts.get(layer.mixer, 0) + 1
    yield from counts.items()
