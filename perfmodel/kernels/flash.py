"""FlashAttention-2 and -3 by name: where they run, their published shares, what tiles read again.

Tiles. A thread block holds R query rows of one sequence and head and streams the keys and values
that the mask leaves them. Over the T = ⌈n/R⌉ tiles of n new tokens after c cached ones that is
Σ min(c + (t + 1)·R, c + n) = T·c + R·T(T − 1)/2 + n keys: the N²/R of the FlashAttention paper,
whose Θ(N²d²/M) accesses (Theorem 2, arXiv:2205.14135) have R ∝ M/d. FlashAttention-2 reads a KV
head once for each query head of its group; FlashAttention-3 packs the group's heads into a tile.

Caches. Blocks that run at once read the same keys: the L2 cache serves what is read again where it
holds the keys and values of the heads in flight, which one wave of blocks (one a multiprocessor)
covers. The share of them that it doesn't hold comes from device memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfmodel.errors import InputError
from perfmodel.operators.quantity import Quantity, as_quantity, maximum, minimum
from perfmodel.operators.record import Attention
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Attention as AttentionLayer
from perfmodel.specs.model import Model

Flash = Literal["flash2", "flash3"]
FORM_NAMES: dict[str, Flash] = {"fa2": "flash2", "fa3": "flash3"}
"""What calibrated sets call the kernels that they were fitted on."""
WIDEST = 256
"""Largest head size of either (flash-attention's README)."""


@dataclass(frozen=True, slots=True)
class Published:
    """The best share of the dense 16-bit peak that a kernel's authors report on a chip."""

    share: float
    source: str


PUBLISHED: dict[tuple[Flash, str], Published] = {
    ("flash2", "8.0"): Published(
        0.73, "FlashAttention-2 (arXiv:2307.08691, 4.1): up to 230 of 312 TFLOP/s on A100, forward"
    ),
    ("flash2", "9.0"): Published(
        0.35, "FlashAttention-3 (arXiv:2407.08608, abstract): FlashAttention-2 uses 35 % of H100"
    ),
    ("flash3", "9.0"): Published(
        0.75,
        "FlashAttention-3 (arXiv:2407.08608, abstract): up to 740 of 989 TFLOP/s on H100, FP16",
    ),
}
"""By kernel and compute capability. Other chips that run one have no published share."""


def _cuda(hardware: Hardware) -> float | None:
    """CUDA's compute capability as a number; None for other chips."""
    try:
        return float(hardware.compute_capability or "")
    except ValueError:
        return None


def check_flash(model: Model, hardware: Hardware, kernel: str) -> None:
    """See that a chip and a model's heads can take a kernel that was asked for by name.

    Raises:
        InputError: one line with what would do.
    """
    capability = _cuda(hardware)
    if kernel == "flash3" and capability != 9.0:
        raise InputError(
            f"--attention flash3: FlashAttention-3 runs on Hopper alone (compute capability 9.0), "
            f"and {hardware.name} is {hardware.compute_capability or 'no CUDA device'}; "
            f"--attention {'flash2' if _runs_flash2(hardware) else 'fused'} would do"
        )
    if kernel == "flash2" and not _runs_flash2(hardware):
        raise InputError(
            "--attention flash2: FlashAttention-2 needs compute capability 8.0 or an MI200 or "
            f"MI300, and {hardware.name} is {hardware.compute_capability or 'no CUDA device'}; "
            "--attention fused would do"
        )
    wide = [m.head_dim for x in model.layers if isinstance(m := x.mixer, AttentionLayer)]
    if max(wide, default=0) > WIDEST:
        raise InputError(
            f"--attention {kernel}: its heads have at most {WIDEST} elements, those of "
            f"{model.name} {max(wide)}; --attention fused would do"
        )


def _runs_flash2(hardware: Hardware) -> bool:
    capability = _cuda(hardware)
    if capability is not None:
        return capability >= 8.0
    return (hardware.compute_capability or "").startswith(("gfx90a", "gfx94"))


def published(kernel: Flash, hardware: Hardware) -> Published | None:
    """The published share on this chip's generation; None where there is none."""
    return PUBLISHED.get((kernel, hardware.compute_capability or ""))


def tile_rows(kernel: Flash, hardware: Hardware, width: float) -> int:
    """Query rows of a tile, by the kernels' own rules.

    128; 192 for FlashAttention-3's heads of 64; 64 for FlashAttention-2's wider heads on the 100 KB
    of shared memory of compute capability 8.6 and 8.9.
    """
    if kernel == "flash3":
        return 192 if width <= 64 else 128
    return 64 if width > 64 and _cuda(hardware) in {8.6, 8.9} else 128


def streamed_keys(new: Quantity, cached: Quantity, tile: float, window: int | None) -> Quantity:
    """Keys that the tiles of one head stream together, each tile up to its last query's.

    >>> float(streamed_keys(256, 0, 128, None))  # 128 + 256
    384.0
    """
    tiles = as_quantity(np.ceil(np.asarray(new) / tile))
    keys = tiles * cached + tile * tiles * (tiles - 1) / 2 + new
    return keys if window is None else minimum(keys, tiles * (window + tile))


def read_again_bytes(op: Attention, kernel: Flash, hardware: Hardware) -> Quantity:
    """Bytes of keys and values that tiles ask for beyond the first read, whoever serves them."""
    group = op.heads / op.kv_heads
    rows = tile_rows(kernel, hardware, (op.qk_dim + op.value_dim) / 2)
    packed = kernel == "flash3"
    tile = max(1.0, rows / group) if packed else float(rows)
    streams = op.kv_heads if packed else op.heads
    keys = streamed_keys(op.queries, op.context - op.queries, tile, op.window)
    asked = op.sequences * streams * keys * op.key_bytes / op.kv_heads
    return maximum(asked - op.cache_bytes, 0.0)


def missed_share(op: Attention, kernel: Flash, hardware: Hardware) -> Quantity:
    """Share of repeated reads that L2 can't serve: what it doesn't hold of the heads in flight.

    All of it where the profile states no L2: the paper's count.
    """
    cache = hardware.l2_bytes
    if cache is None:
        return 1.0
    rows = tile_rows(kernel, hardware, (op.qk_dim + op.value_dim) / 2)
    # Packed or not, a KV head's query rows make as many blocks.
    blocks = np.ceil(np.asarray(op.queries) * op.heads / op.kv_heads / rows)
    heads = np.ceil((hardware.sm_count or 1) / np.maximum(blocks, 1))
    held = op.key_bytes / op.kv_heads * np.asarray(op.keys)
    flying = np.minimum(heads, op.sequences * op.kv_heads) * held
    return as_quantity(1 - np.minimum(1.0, cache / np.maximum(flying, 1e-30)))


def reread_bytes(op: Attention, kernel: Flash, hardware: Hardware) -> Quantity:
    """Device-memory traffic of a prefill's tiles beyond keys and values read once."""
    if op.phase == "decode" or op.latent:
        return 0.0
    return read_again_bytes(op, kernel, hardware) * missed_share(op, kernel, hardware)
