"""The steps of a request: prefill at once or in chunks, one decode step, all decode steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfmodel.inference.phase import Cost, Device, PhaseCost, add, join, mean
from perfmodel.inference.plan import Plan
from perfmodel.inference.step_sets import (
    Part,
    StepSet,
    body_of,
    head_of,
    made_step,
    operators_of,
    price,
    step_transfer,
)
from perfmodel.operators.quantity import Array, Quantity, as_quantity, clip, is_array
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload

SLAB = 2_000_000
"""Elements of a (settings × steps) array that are evaluated at a time, to bound memory."""


def _expand(value: Quantity) -> Quantity:
    """A trailing axis for the steps; a number stays one."""
    return value[..., None] if isinstance(value, np.ndarray) else value


def _slabs(steps: int, settings: int) -> Iterator[Array]:
    """The numbers 0 … steps − 1 in arrays of at most `SLAB` elements over all settings."""
    size = max(1, SLAB // settings)
    for first in range(0, steps, size):
        yield np.arange(first, min(first + size, steps), dtype=np.float64)


def _sequences(workload: Workload, plan: Plan, part: Part | None) -> Quantity:
    return plan.replica_sequences(workload) if part is None else part.sequences


def _chunked_body(
    model: Model, workload: Workload, plan: Plan, chunk: int, part: Part | None
) -> Iterator[StepSet]:
    """All chunks as a trailing axis: the j-th processes what is left after j·chunk tokens."""
    new = _expand(as_quantity(workload.prompt - workload.cached_prefix))
    sequences = _expand(_sequences(workload, plan, part))
    cached = _expand(workload.cached_prefix)
    chunks = -(-int(np.max(np.asarray(new))) // chunk)
    settings = np.broadcast(np.asarray(new), np.asarray(sequences), np.asarray(cached)).size
    for index in _slabs(chunks, settings):
        starts = chunk * index
        sizes = clip(new - starts, 0, chunk)
        step = made_step(plan, "prefill", sequences, sizes, cached + starts)
        mask = (np.asarray(sizes) > 0).astype(np.float64)
        moved = step_transfer(model, step, plan, part)
        body = body_of(model, step, plan, part)
        tokens = as_quantity(step.tokens)
        yield StepSet(body, sequences, mask, bool(index[0]), tokens, transfer=moved)


def prefill_steps(
    model: Model, workload: Workload, plan: Plan, part: Part | None = None
) -> list[StepSet]:
    """The steps of the whole batch's prefill, or a part's: one, or the chunks and the head.

    Every prompt finds its prefix.
    """
    new = as_quantity(workload.prompt - workload.cached_prefix)
    sequences = _sequences(workload, plan, part)
    step = made_step(plan, "prefill", sequences, new, workload.cached_prefix)
    has_head = part is None or part.is_last(plan)
    head = head_of(model, step, plan) if has_head else ()
    chunk = plan.prefill_chunk(workload)
    if chunk is None:
        moved = step_transfer(model, step, plan, part)
        whole = body_of(model, step, plan, part) + head
        return [StepSet(whole, sequences, tokens=step.tokens, transfer=moved)]
    body = _chunked_body(model, workload, plan, chunk, part)
    return [*body, StepSet(head, sequences, hosted=False)]


def prefill(
    model: Model,
    workload: Workload,
    plan: Plan,
    device: Device,
    host: Host | None = None,
    part: Part | None = None,
) -> PhaseCost:
    """Prefill of the whole batch, up to the first output token, or a part's share of it.

    Where a share of the prompts finds the prefix, it is the mean of a prefill that does and one
    that doesn't: exact for one prompt, and for the work of any number.
    """
    hits = as_quantity(workload.prefix_hits)
    found = workload.model_copy(update={"prefix_share": None})
    missing = found.model_copy(update={"cached_prefix": 0})
    if not is_array(hits) and hits in (0, 1):
        return _prefill(model, found if hits else missing, plan, device, host, part)
    first, second = (_prefill(model, each, plan, device, host, part) for each in (found, missing))
    return mean(first, second, hits)


def _prefill(
    model: Model,
    workload: Workload,
    plan: Plan,
    device: Device,
    host: Host | None,
    part: Part | None,
) -> PhaseCost:
    total = PhaseCost((), Cost())
    before = PhaseCost((), Cost())
    for steps in prefill_steps(model, workload, plan, part):
        priced = price(steps, model, plan, device, host, part)
        if steps.continues:
            before = add(before, priced)
        else:
            total, before = join(total, before), priced
    return join(total, before)


def _decode_set(
    model: Model,
    plan: Plan,
    sequences: Quantity,
    cached: Quantity,
    mask: Array | None = None,
    part: Part | None = None,
) -> StepSet:
    step = made_step(plan, "decode", sequences, 1, cached)
    moved = step_transfer(model, step, plan, part)
    return StepSet(operators_of(model, step, plan, part), sequences, mask, transfer=moved)


def mean_cached(workload: Workload) -> Quantity:
    """Tokens in the cache before the average decode step.

    Step t of 1 … output − 1 finds prompt + t − 1 tokens: on average prompt + output/2 − 1. With
    one output token there is no decode step, and the step after the prompt stands for it.
    """
    output = np.maximum(workload.output, 2)
    mean = as_quantity(workload.prompt + (output - 2) / 2)
    return int(mean) if isinstance(mean, float) and mean.is_integer() else mean


def _cached(workload: Workload, plan: Plan, cached: Quantity) -> Quantity:
    """Tokens that decode attention runs over: those cached, or a static cache's whole length."""
    if not plan.engine.kernels.static_cache:
        return cached
    length = plan.deployment.max_model_len
    whole = _expand(as_quantity(workload.prompt + workload.output)) if length is None else length
    return as_quantity(cached * 0.0 + whole - 1)


def mean_context(
    workload: Workload, plan: Plan, part: Part | None = None
) -> tuple[Quantity, Quantity]:
    """Sequences of a replica, or a part's, and the cached tokens of its mean decode step."""
    cached = mean_cached(workload)
    if plan.engine.kernels.static_cache:
        whole = plan.deployment.max_model_len or as_quantity(workload.prompt + workload.output)
        cached = whole - 1
    return _sequences(workload, plan, part), cached


def mean_decode_step(
    model: Model, workload: Workload, plan: Plan, part: Part | None = None
) -> StepSet:
    """One decode step of the whole batch, or a part's share, at the mean context."""
    sequences, cached = mean_context(workload, plan, part)
    return _decode_set(model, plan, sequences, cached, part=part)


def decode_step(
    model: Model,
    workload: Workload,
    plan: Plan,
    device: Device,
    host: Host | None = None,
    part: Part | None = None,
) -> PhaseCost:
    """One decode step of the whole batch, or a part's share, at the mean context, priced."""
    steps = mean_decode_step(model, workload, plan, part)
    return price(steps, model, plan, device, host, part)


def decode_slabs(
    workload: Workload, plan: Plan, tokens: float = 1.0, part: Part | None = None
) -> Iterator[tuple[Quantity, Quantity, Array]]:
    """Sequences, cached tokens and mask of the (output − 1)/tokens decode steps.

    Each step gives ``tokens`` of each sequence and stands on a trailing axis, cut to bound
    memory; the mask of the last one is the part of it that is needed.
    """
    steps = (np.asarray(workload.output, dtype=np.float64)[..., None] - 1) / tokens
    longest = int(np.ceil(steps.max()))
    sequences = _expand(_sequences(workload, plan, part))
    prompt = _expand(workload.prompt)
    settings = np.broadcast(steps, np.asarray(sequences), np.asarray(prompt)).size
    for index in _slabs(longest, settings):
        mask = np.clip(steps - index, 0.0, 1.0)
        yield sequences, _cached(workload, plan, prompt + tokens * index), mask


def decode_all(
    model: Model,
    workload: Workload,
    plan: Plan,
    device: Device,
    host: Host | None = None,
    part: Part | None = None,
) -> Cost:
    """All output − 1 decode steps, each at its own context, summed over a trailing axis."""
    total = Cost()
    for sequences, cached, mask in decode_slabs(workload, plan, part=part):
        steps_at = _decode_set(model, plan, sequences, cached, mask, part)
        total = total + price(steps_at, model, plan, device, host, part).total
    return total
