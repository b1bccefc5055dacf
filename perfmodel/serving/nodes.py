"""Cached tokens at which step times are evaluated; between them they are interpolated.

Times bend gently with the context but for where attention kernels switch: a window cuts the first
keys off, or a chunk of positions begins (Llama-4). There the last context before the switch and the
first after it are nodes, so that nothing is drawn across it.
"""

from __future__ import annotations

import numpy as np

from perfmodel.serving.pricing import Array
from perfmodel.specs.model import Attention, Model

SHORT = 256
"""Cached tokens up to which the grid is even, because kernels for short contexts differ."""
CHUNKS = 64
"""Chunks of positions whose beginnings are nodes: beyond them layers without chunks dominate."""


def grid(longest: float, per_octave: int, stride: int, beyond: float = 0.0) -> Array:
    """Evenly up to `SHORT`, then so many for each doubling up to ``longest``.

    Where a cache has room for more, they go on as far apart up to ``beyond``.
    """
    even = np.arange(0.0, SHORT, stride)
    longest = max(longest, 2.0 * SHORT)
    count = 2 + int(per_octave * np.log2(longest / SHORT))
    nodes = [even, np.round(np.geomspace(SHORT, longest, count))]
    if beyond > longest:
        more = 1 + int(per_octave * np.log2(beyond / longest))
        nodes.append(np.round(np.geomspace(longest, beyond, more + 1))[1:])
    return np.concatenate(nodes)


def switches(model: Model, new: Array, longest: float) -> Array:
    """Nodes beside switches of attention kernels, for steps of ``new`` tokens a sequence.

    Of shape (new, nodes): cached tokens, 0 where there is no switch.
    """
    windows = {
        (layer.mixer.window, layer.mixer.chunked)
        for layer in model.layers
        if isinstance(layer.mixer, Attention) and layer.mixer.window is not None
    }
    first = [np.zeros((len(new), 0))]
    for window, chunked in sorted(windows):
        # A window cuts from cached + new = window + 1 on; a chunk is left where the last one ends.
        chunks = min(CHUNKS, int(longest // window)) if chunked else 0
        starts = window * np.arange(1.0, chunks + 1)
        ends = window * np.arange(1.0, max(chunks, 1) + 1) + 1
        first += [np.tile(starts, (len(new), 1)), ends - new[:, None]]
    at = np.concatenate(first, axis=1)
    both = np.concatenate([at - 1, at], axis=1)
    return np.where((both >= 0) & (both < longest), both, 0.0)


def with_switches(nodes: Array, model: Model, new: Array) -> Array:
    """``nodes`` and the switches among them, sorted, for each of ``new``: (new, nodes)."""
    beside = switches(model, new, float(nodes[-1]))
    return np.sort(np.concatenate([np.tile(nodes, (len(new), 1)), beside], axis=1), axis=1)
