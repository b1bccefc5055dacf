"""What a sequence's cache takes on a GPU: under a layout, a manager, eviction, sharing, offload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.kv_pool import kv_pool
from perfmodel.inference.plan import Plan
from perfmodel.operators.cache import (
    STATE_BYTES,
    Allocate,
    as_stored,
    cache_bytes,
    index_token_bytes,
    kept_tokens,
    state_bytes,
    token_bytes,
)
from perfmodel.operators.quantity import (
    Quantity,
    as_quantity,
    ceil_div,
    clip,
    maximum,
    minimum,
    round_up,
)
from perfmodel.specs.model import Layer, Model
from perfmodel.specs.workload import Workload


def stated_length(plan: Plan, model: Model) -> int | None:
    """The longest sequence that the engine takes, where something says it.

    As stated, what a contiguous layout reserves, or the rows of a table of learned positions.
    """
    stated = plan.deployment.max_model_len
    reserved = plan.deployment.kv_layout == "contiguous" or model.position_rows
    if stated is None and reserved:
        return model.max_positions or model.position_rows or None
    return stated


def _check_length(plan: Plan, tokens: Quantity) -> None:
    stated = plan.deployment.max_model_len
    longest = int(np.max(np.asarray(tokens)))
    if stated is not None and stated < longest:
        raise InputError(
            f"--max-model-len: {stated} is less than the {longest} tokens of --prompt and --output"
        )


def allocator(plan: Plan, model: Model, tokens: Quantity) -> Allocate:
    """How the deployment's KV layout sets tokens aside on one of the ranks that share a cache.

    A block of the paged cache spans as many tokens on each of them.

    Raises:
        InputError: the contiguous layout reserves less than a sequence needs.
    """
    deployment = plan.deployment
    shares = plan.parallel.cache_shares
    _check_length(plan, tokens)
    if deployment.kv_layout == "flat":
        return stored_share(shares)
    if deployment.kv_layout == "paged":
        block = deployment.block_size or 1
        return lambda stored, window: block * ceil_div(stored, block * shares)
    length = stated_length(plan, model)
    if length is None:
        raise InputError(
            f"--max-model-len: the contiguous layout reserves it, and {model.name} states none"
        )
    kept = plan.kept_tokens("decode")
    most = length if kept is None else min(length, kept + 1)

    def reserve(stored: Quantity, window: int | None) -> Quantity:
        size = ceil_div(most if window is None else min(length, window), shares)
        return as_quantity(np.full(np.shape(stored), size))

    return reserve


def stored_share(ranks: int) -> Allocate:
    """The tokens that the fullest of ``ranks`` ranks stores."""
    return as_stored if ranks == 1 else lambda stored, window: ceil_div(stored, ranks)


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of one replica's sequences on one GPU of a stage."""

    each: Quantity
    """Of one sequence."""
    common: Quantity = 0.0
    """The part of it that sequences with the common prefix share."""
    hits: Quantity = 1.0
    """Share of the sequences that have it."""
    outside: Quantity = 0.0
    """Of one sequence, in host memory or on an SSD."""

    def of(self, sequences: Quantity) -> Quantity:
        """Bytes of so many sequences: what they share is held once."""
        spared = maximum(self.hits * sequences - 1, 0) * self.common
        return sequences * self.each - spared


def _sharable(
    plan: Plan, layers: tuple[Layer, ...], prefix: Quantity, length: Quantity
) -> Quantity:
    """Bytes of the prefix that a sequence of ``length`` still keeps, in full blocks."""
    block = plan.deployment.block_size or 1 if plan.deployment.kv_layout == "paged" else 1
    total: Quantity = 0.0
    for mixer in (layer.mixer for layer in layers):
        per_token = token_bytes(mixer, plan.formats.cache) + index_token_bytes(mixer)
        if per_token:
            kept = kept_tokens(mixer, length)
            tokens = clip(kept - maximum(length - prefix, 0), 0, minimum(prefix, kept))
            total = total + per_token * (round_up(tokens + 1, block) - block)
    return total / plan.parallel.cache_shares


class KvStore:
    """The cache of a deployment's sequences, by stage and length."""

    def __init__(self, model: Model, plan: Plan, workload: Workload) -> None:
        tokens = as_quantity(workload.prompt + workload.output)
        self._plan = plan
        self._element = STATE_BYTES[model.state_dtype]
        self._allocate = allocator(plan, model, tokens)
        self._cap = None if (kept := plan.kept_tokens("decode")) is None else kept + 1
        self._prefix = 0 if workload.prefix_share is None else workload.cached_prefix
        self._hits = workload.prefix_hits

    def held(self, layers: tuple[Layer, ...], length: Quantity, *, stored: bool = False) -> Held:
        """What a sequence of ``length`` takes in a stage of ``layers``.

        ``stored``: only what holds data, without a layout's or a manager's waste. Drafted tokens
        have their slots, and a state each to go back to.
        """
        drafted = self._plan.drafted
        length = length + drafted
        manager = self._plan.deployment.kv_manager
        if manager != "ideal" and not stored:
            return self._pooled(layers, length)
        states = (1 + drafted) * state_bytes(layers, self._element)
        allocate = stored_share(self._plan.parallel.cache_shares) if stored else self._allocate
        cache = cache_bytes(layers, length, self._plan.formats.cache, allocate, self._cap)
        shared: Quantity = 0.0
        if self._shares:
            shared = _sharable(self._plan, layers, self._prefix, length)
        return self._offloaded(layers, states, cache, shared)

    @property
    def _shares(self) -> bool:
        return bool(np.any(np.asarray(self._prefix) > 0))

    def _pooled(self, layers: tuple[Layer, ...], length: Quantity) -> Held:
        d = self._plan.deployment
        pool = kv_pool(
            layers, d.block_size or 1, self._plan.formats.cache, self._element, d.kv_manager
        )
        if pool is None:
            return Held(0.0)
        shared = pool.shared_bytes(minimum(self._prefix, length)) if self._shares else 0.0
        return self._offloaded(layers, 0.0, pool.bytes(length), shared)

    def _offloaded(
        self, layers: tuple[Layer, ...], states: float, cache: Quantity, shared: Quantity
    ) -> Held:
        """States stay; of keys and values the share that isn't offloaded, and what is in flight."""
        offload = self._plan.offload
        if not offload.kv_share:
            return Held(states + cache, shared, self._hits)
        here = offload.resident(sum(token_bytes(layer.mixer) > 0 for layer in layers))
        outside = offload.kv_share * cache
        return Held(states + here * cache, here * shared, self._hits, outside)
