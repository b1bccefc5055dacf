"""The KV store of an estimate laid open: layouts and their waste, pools, chunks, swapping."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.estimate import Estimate, prefill_cost, running_device
from perfmodel.inference.kv_pool import Pool, kv_pool
from perfmodel.inference.kv_store import KvStore, stored_share
from perfmodel.inference.mixed import step_cost
from perfmodel.inference.offload import rate_to
from perfmodel.inference.plan import Plan
from perfmodel.inference.speculation.rounds import verify_step
from perfmodel.inference.stages import stage_weights
from perfmodel.inference.step_sets import made_step
from perfmodel.inference.steps import mean_cached
from perfmodel.inference.swap import Swap, swap, swap_pays
from perfmodel.operators.cache import STATE_BYTES, cache_bytes, state_bytes
from perfmodel.operators.quantity import Quantity, as_quantity, minimum
from perfmodel.specs.model import Layer

FARTHEST = 2**20
"""Longest sequence that swapping is compared for where the model states no length."""


@dataclass(frozen=True, slots=True)
class LayoutUse:
    """The batch's cache on the fullest GPU under one layout."""

    layout: str
    bytes: Quantity
    waste_bytes: Quantity
    """What of it holds nothing."""


@dataclass(frozen=True, slots=True)
class PoolUse:
    """What vLLM's block pool makes of the layers, with the same memory."""

    manager: str
    """``hybrid``, or ``uniform``: its hybrid manager switched off."""
    bytes_per_sequence: Quantity
    """Set aside for a sequence at prompt + output."""
    block_tokens: int
    groups: int
    group_layers: int
    padding_layers: int
    logged_tokens: Quantity
    """What vLLM up to 0.19 logs as the size of the cache."""
    concurrency: Quantity | None
    """Sequences of ``max_model_len`` that it says fit; None without a length."""
    capacity_tokens: Quantity | None
    """What later releases log as the size: concurrency × max_model_len."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """A prefill in chunks against one pass, and a step that carries decodes along."""

    chunk: int
    chunks: Quantity
    time_s: Quantity
    whole_s: Quantity
    reread_bytes: Quantity
    """Keys and values of earlier chunks that later ones read again."""
    decode_step_s: Quantity
    """The batch's decode step or round at the mean context."""
    mixed_step_s: Quantity | None
    """The same with one prompt's last chunk; None where several micro-batches are in flight."""


@dataclass(frozen=True, slots=True)
class KvReport:
    """Everything that the KV store of an estimate says."""

    ideal_bytes_per_sequence: Quantity
    """Exactly what a sequence at prompt + output holds: windows kept to their length."""
    layouts: tuple[LayoutUse, ...]
    pools: tuple[PoolUse, ...]
    max_model_len: int | None
    chunking: Chunking | None
    swap: Swap | None
    """The sequence at prompt + output; None without a way to the host, or a cache."""
    swap_pays: tuple[tuple[int, int], ...]


def _layouts(result: Estimate, layers: tuple[Layer, ...], length: Quantity) -> list[LayoutUse]:
    plan = result.plan
    sequences = plan.replica_sequences(result.workload)
    found = []
    for layout in ("paged", "contiguous", "flat"):
        if layout == "contiguous" and result.workload.prefix_share is not None:
            continue
        changed = plan.deployment.model_copy(update={"kv_layout": layout, "kv_manager": "ideal"})
        try:
            store = KvStore(result.model, replace(plan, deployment=changed), result.workload)
        except InputError:  # no length is stated that a contiguous cache could reserve
            continue
        used, stored = (
            store.held(layers, length, stored=only).of(sequences) for only in (False, True)
        )
        found.append(LayoutUse(layout, used, used - stored))
    return found


def _pool(plan: Plan, result: Estimate, layers: tuple[Layer, ...], manager: str) -> Pool | None:
    element = STATE_BYTES[result.model.state_dtype]
    block = plan.deployment.block_size or 1
    return kv_pool(layers, block, plan.formats.cache, element, manager)


def _pools(result: Estimate, layers: tuple[Layer, ...], length: Quantity) -> list[PoolUse]:
    plan = result.plan
    if plan.parallel.cache_shares > 1 or plan.formats.cache.recent:
        return []  # as `kv_checks` refuses it
    hybrid = _pool(plan, result, layers, "hybrid")
    if hybrid is None:
        return []
    found = [_pool_use(result, hybrid, "hybrid", length)]
    keeps = {group.kind.keeps for group in hybrid.groups}
    if "all" in keeps and "state" not in keeps and len(keeps) > 1:
        uniform = _pool(plan, result, layers, "uniform")
        if uniform is not None:
            found.append(_pool_use(result, uniform, "uniform", length))
    return found


def longest_sequence(result: Estimate) -> int | None:
    """The engine's ``max_model_len``: as stated, else the model's own."""
    stated = result.plan.deployment.max_model_len
    return result.model.max_positions if stated is None else stated


def _pool_use(result: Estimate, pool: Pool, manager: str, length: Quantity) -> PoolUse:
    room, longest = result.memory.kv_room_bytes, longest_sequence(result)
    concurrency = capacity = None
    if longest is not None:
        budget = result.plan.limits.max_num_batched_tokens
        concurrency = pool.concurrency(room, longest, budget)
        capacity = as_quantity(np.floor(concurrency * longest))
    return PoolUse(
        manager=manager,
        bytes_per_sequence=pool.bytes(length),
        block_tokens=min(group.block for group in pool.groups),
        groups=len(pool.groups),
        group_layers=pool.group_layers,
        padding_layers=pool.padding,
        logged_tokens=pool.logged_tokens(room),
        concurrency=concurrency,
        capacity_tokens=capacity,
    )


def _chunking(result: Estimate) -> Chunking | None:
    load = result.workload
    chunk = load.prefill_chunk
    if chunk is None:
        return None
    whole = prefill_cost(result, load.model_copy(update={"prefill_chunk": None}))
    chunked = result.prefill.cost
    return Chunking(
        chunk=chunk,
        chunks=max((row.steps for row in chunked.operators), key=lambda n: float(np.max(n))),
        time_s=chunked.total.time_s,
        whole_s=whole.time_s,
        reread_bytes=chunked.total.cache_bytes - whole.cache_bytes,
        decode_step_s=result.decode.time_s,
        mixed_step_s=_mixed_s(result, chunk),
    )


def _mixed_s(result: Estimate, chunk: int) -> Quantity | None:
    """Seconds of the decode step or round whose step of the target carries a last chunk along."""
    load, plan, model = result.workload, result.plan, result.model
    if plan.deployment.pp_microbatches > 1:
        return None
    device, host = running_device(result)
    last = minimum(chunk, as_quantity(load.prompt))
    sequences, cached = plan.replica_sequences(load), mean_cached(load)
    decode = made_step(plan, "decode", sequences, 1, cached)
    draft = plan.draft
    if draft is not None and draft.speculation.draft_cost is None:
        decode = replace(verify_step(draft, sequences, cached), kept=decode.kept)
    prompt = made_step(plan, "prefill", 1, last, load.prompt - last)
    alone, mixed = (
        step_cost(model, plan, device, host, parts).total.time_s
        for parts in ([decode], [decode, prompt])
    )
    return result.decode.time_s + mixed - alone


def kv_report(result: Estimate) -> KvReport:
    """Lay open the KV store of ``result``: prices the prefills that it compares with."""
    plan, load = result.plan, result.workload
    own = list(stage_weights(result.model, plan))[result.memory.stage][0]
    layers = own if plan.draft is None else own + plan.draft.layers
    length = as_quantity(load.prompt + load.output)
    shares = plan.parallel.cache_shares
    ideal = cache_bytes(layers, length, plan.formats.cache, stored_share(shares), shares=shares)
    states = state_bytes(layers, STATE_BYTES[result.model.state_dtype])
    device, host = running_device(result)
    rate = rate_to(plan.deployment.kv_offload_to, result.hardware, plan.deployment)
    back, pays = None, []
    if rate is not None and result.memory.kv_bytes_per_token:
        back = swap(result.model, plan, device, host, rate, length)
        longest = longest_sequence(result) or FARTHEST
        pays = swap_pays(result.model, plan, device, host, rate, longest)
    return KvReport(
        ideal_bytes_per_sequence=ideal + states,
        layouts=tuple(_layouts(result, layers, length)),
        pools=tuple(_pools(result, layers, length)),
        max_model_len=longest_sequence(result),
        chunking=_chunking(result),
        swap=back,
        swap_pays=tuple(pays),
    )
