"""Pieces that the forms of attention share: waves of units, L2-aware memory, windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perfmodel.kernels.forms.base import Chip, Shapes, Values
from perfmodel.operators.quantity import Array

Flags = NDArray[np.bool_]
Kernel = Literal["any", "fa2", "fa3", "trtllm", "flashinfer"]
"""Rules of a kernel that are functions of the shape.

``fa2``: with a window set, or one head per KV head, decode reads each head's keys by itself and
splits no context (`seqlenq_ngroups_swapped` in FlashAttention-2). ``fa3``: the heads of a KV head
share tiles; up to 32 splits. ``trtllm``: heads share tiles in decode only. ``flashinfer``: heads
share tiles of 16, 64 or 128 rows. ``trtllm`` and ``flashinfer`` have no heads of 192 for an fp8
cache, where vLLM falls back to Triton."""


def column(shapes: Shapes, name: str, default: float = 0.0) -> Array:
    """A size that a caller may leave out."""
    found = shapes.get(name)
    return np.asarray(default, dtype=np.float64) if found is None else found


def window_keys(kv_len: Array, window: Array, q_len: Array) -> Array:
    """Distinct keys that the last ``q_len`` queries of ``kv_len`` see; ``window`` 0 is none."""
    keys: Array = np.where(window > 0, np.minimum(kv_len, window + q_len - 1), kv_len)
    return keys


def waves(load: Array, hardness: float) -> Array:
    """Rounds in which ``load`` units per slot run: at least one; between ``load`` and its ceiling.

    ``hardness`` 0 lets units of the next round start as slots fall free; ∞ waits for all.
    """
    share = hardness / (1 + hardness)
    rounds: Array = np.maximum(1.0, share * np.ceil(load) + (1 - share) * load)
    return rounds


def norm_sum(a: Array, b: Array, p: float) -> Array:
    """(aᵖ + bᵖ)^(1/p): the sum at p = 1, the larger of the two as p grows."""
    high = np.maximum(a, b)
    ratio = np.minimum(a, b) / high
    out: Array = high * (1 + ratio**p) ** (1 / p)
    return out


@dataclass(frozen=True, slots=True)
class MemoryTerm:
    """Reading a working set: from device memory, or from L2 while a repeated call still fits."""

    device: float
    """Bytes/s."""
    cached: float
    """Bytes/s."""
    edge: float
    """Bytes up to which about half comes from L2; 0 where nothing does."""
    sharpness: float

    @classmethod
    def of(cls, chip: Chip, values: Values, cold: bool) -> MemoryTerm:
        """From the parameters em, l2, l2c and l2s; ``cold``: nothing waits in L2."""
        device = values["em"] * chip.bandwidth
        edge = 0.0 if cold else values["l2c"] * chip.l2_bytes
        return cls(device, device * values["l2"], edge, values["l2s"])

    def seconds(self, traffic: Array) -> Array:
        """Time for ``traffic`` bytes, monotone in it."""
        if self.edge <= 0:
            cold: Array = traffic / self.device
            return cold
        warm = 1 / (1 + (traffic / self.edge) ** self.sharpness)
        time: Array = traffic * (warm / self.cached + (1 - warm) / self.device)
        return time
