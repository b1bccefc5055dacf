"""What vLLM's block pool sets aside for layers that keep different lengths.

One pool hands out pages of one size. Layers of a kind (full attention, a window, recurrent states)
are cut into groups of equally many layers; a page holds one block of every layer of a group, and
all groups draw from the same pages. So a group is padded with layers that don't exist, smaller
pages take longer blocks, and states are padded to the page of a block of keys (whose length grows
until a state fits). Read in vllm/v1/core/kv_cache_utils.py (commit 001cabc), kv_cache_interface.py
and platforms' hybrid block sizes (0.11 to 0.28).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfmodel.operators.cache import Stored, index_token_bytes, layer_state_bytes, token_bytes
from perfmodel.operators.format_bytes import BASE
from perfmodel.operators.quantity import Quantity, as_quantity, ceil_div, minimum
from perfmodel.specs.model import Attention, Layer, Mixer

ALIGNMENT = 16
"""Tokens that an attention kernel's block is a multiple of."""
UNEVEN = 1.5
"""Where the most frequent kind has fewer than so many times the layers of the rarest, groups are as
long as the former; else as the latter."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Layers that keep the same tokens: all of them, a window, a chunk, or one state."""

    keeps: Literal["all", "window", "chunk", "state"]
    limit: int = 0
    """Tokens of the window or chunk."""
    bytes: float = 0.0
    """Of a token, or of a state."""


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a block table."""

    kind: Kind
    block: int
    """Tokens of a block."""

    def blocks(self, length: Quantity) -> Quantity:
        """Blocks that a sequence of ``length`` holds while it is decoded."""
        whole = ceil_div(length, self.block)
        if self.kind.keeps == "state":
            return minimum(whole, 1)
        if self.kind.keeps == "window":  # the window may begin anywhere in a block
            return minimum(whole, ceil_div(self.kind.limit - 1, self.block) + 1)
        if self.kind.keeps == "chunk":
            return minimum(whole, ceil_div(self.kind.limit, self.block))
        return whole

    def admitted_blocks(self, length: int, in_flight: int) -> int:
        """Blocks that the engine reckons with for a sequence, ``in_flight`` tokens in a step."""
        limit, block = self.kind.limit, self.block
        if self.kind.keeps == "state":
            return 1
        if self.kind.keeps == "window":
            return -(-min(limit - 1 + in_flight, length) // block) + 1
        if self.kind.keeps == "chunk":
            return -(-min(limit + in_flight, length) // block)
        return -(-length // block)


@dataclass(frozen=True, slots=True)
class Pool:
    """Pages of one size, and the groups that draw from them."""

    page_bytes: float
    """Of one block of all layers of a group."""
    groups: tuple[Group, ...]
    group_layers: int
    padding: int
    """Layers that groups are filled up with."""

    def bytes(self, length: Quantity) -> Quantity:
        """Bytes set aside for a sequence of ``length``."""
        blocks: Quantity = sum(group.blocks(length) for group in self.groups)
        return self.page_bytes * blocks

    def shared_bytes(self, prefix: Quantity) -> Quantity:
        """Bytes of ``prefix`` that sequences can share: full blocks of full attention."""
        full = [g for g in self.groups if g.kind.keeps == "all"]
        blocks: Quantity = sum(ceil_div(prefix - g.block + 1, g.block) for g in full)
        return self.page_bytes * blocks

    def blocks_in(self, room: Quantity) -> Quantity:
        """Pages that fit into ``room`` bytes; whole numbers."""
        return as_quantity(np.floor(np.maximum(room, 0.0) / self.page_bytes))

    def logged_tokens(self, room: Quantity) -> Quantity:
        """What vLLM logs as "GPU KV cache size: … tokens" up to 0.19: pages dealt out evenly."""
        block = min(group.block for group in self.groups)
        return as_quantity(np.floor(self.blocks_in(room) / len(self.groups)) * block)

    def concurrency(self, room: Quantity, length: int, in_flight: int) -> Quantity:
        """What vLLM logs as "Maximum concurrency for … tokens per request".

        Later releases log its product with ``length`` as the cache's size in tokens.
        """
        needed = sum(g.admitted_blocks(length, in_flight) for g in self.groups)
        return self.blocks_in(room) / needed


def _kind(mixer: Mixer | None, cache: Stored, state_bytes: float) -> Kind:
    per_token = token_bytes(mixer, cache) + index_token_bytes(mixer)
    if not per_token:
        return Kind("state", 0, layer_state_bytes(mixer, state_bytes))
    window = mixer.window if isinstance(mixer, Attention) else None
    if window is None:
        return Kind("all", 0, per_token)
    chunked = isinstance(mixer, Attention) and mixer.chunked
    return Kind("chunk" if chunked else "window", window, per_token)


def _as_full(kept: dict[Kind, int]) -> dict[Kind, int]:
    """Windows stored like full attention; states stay what they are."""
    full: Counter[Kind] = Counter()
    for kind, count in kept.items():
        full[kind if kind.keeps == "state" else Kind("all", 0, kind.bytes)] += count
    return full


def kv_pool(
    layers: Iterable[Layer],
    block: int,
    cache: Stored = BASE,
    state_bytes: float = 2.0,
    manager: str = "hybrid",
) -> Pool | None:
    """The pool for ``layers`` (one GPU's own); None where they keep nothing.

    Args:
        layers: with local sizes.
        block: tokens of a block, as asked.
        cache: format of keys and values.
        state_bytes: bytes of an element of recurrent states.
        manager: ``uniform`` stores windows like full attention.
    """
    kinds = Counter(_kind(x.mixer, cache, state_bytes) for x in layers)
    kept = {kind: count for kind, count in kinds.items() if kind.bytes}
    if manager == "uniform" and any(kind.keeps == "all" for kind in kept):
        kept = _as_full(kept)
    if not kept:
        return None
    if len({(kind.keeps, kind.limit) for kind in kept}) == 1:  # one kind, of any widths
        kind = next(iter(kept))
        state = kind.keeps == "state"
        each = sum(k.bytes * count for k, count in kept.items())
        return Pool(each * (1 if state else block), (Group(kind, block),), sum(kept.values()), 0)
    return _hybrid_pool(kept, block)


def _hybrid_pool(kept: dict[Kind, int], block: int) -> Pool:
    state = max((kind.bytes for kind in kept if kind.keeps == "state"), default=0.0)
    widest = max(kind.bytes for kind in kept if kind.keeps != "state")
    if state > block * widest:
        block = ALIGNMENT * int(-(-state // (ALIGNMENT * widest)))
    page = block * widest
    most, least = max(kept.values()), min(kept.values())
    size = most if most < UNEVEN * least else least
    groups: list[Group] = []
    padding = 0
    for kind, count in kept.items():
        number = -(-count // size)
        padding += number * size - count
        own = block if kind.keeps == "state" else block * _longer(page, block * kind.bytes)
        groups += number * [Group(kind, own)]
    return Pool(page * size, tuple(groups), size, padding)


def _longer(page: float, own: float) -> int:
    """How many times longer a block of a narrow layer is; one that doesn't divide is padded."""
    return int(page // own) if page % own == 0 else 1
