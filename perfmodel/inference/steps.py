"""The steps of a request: prefill at once or in chunks, one decode step, all decode steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfmodel.inference.host import HostTime
from perfmodel.inference.phase import Cost, Device, PhaseCost, add, join, phase_cost
from perfmodel.inference.plan import Plan
from perfmodel.operators.context import Step
from perfmodel.operators.quantity import Array, Quantity, as_quantity, clip
from perfmodel.operators.record import Operator
from perfmodel.operators.step import body_operators, head_operators, step_operators
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


@dataclass(frozen=True, slots=True)
class StepSet:
    """Steps of a phase that share their operators, several along a trailing axis."""

    operators: tuple[Operator, ...]
    sequences: Quantity
    """In each step, on one replica."""
    mask: Array | None = None
    """(…, steps): which steps take place; None: one step without a trailing axis."""
    continues: bool = False
    """Further steps of the set before, which was cut to bound memory."""
    hosted: bool = True
    """False for a part of a step whose host time is counted with the other part."""


def _body(model: Model, step: Step, plan: Plan) -> tuple[Operator, ...]:
    fused = plan.deployment.attention == "fused"
    return body_operators(model, step, plan.formats, plan.parallel, fused_attention=fused)


def _chunked_body(model: Model, workload: Workload, plan: Plan, chunk: int) -> Iterator[StepSet]:
    """All chunks as a trailing axis: the j-th processes what is left after j·chunk tokens."""
    new = _expand(as_quantity(workload.prompt - workload.cached_prefix))
    sequences = _expand(plan.replica_sequences(workload))
    cached = _expand(workload.cached_prefix)
    chunks = -(-int(np.max(np.asarray(new))) // chunk)
    settings = np.broadcast(np.asarray(new), np.asarray(sequences), np.asarray(cached)).size
    for index in _slabs(chunks, settings):
        starts = chunk * index
        sizes = clip(new - starts, 0, chunk)
        step = Step("prefill", sequences, sizes, cached + starts)
        mask = (np.asarray(sizes) > 0).astype(np.float64)
        yield StepSet(_body(model, step, plan), sequences, mask, continues=bool(index[0]))


def prefill_steps(model: Model, workload: Workload, plan: Plan) -> list[StepSet]:
    """The steps of the whole batch's prefill: one, or the chunks and then the head.

    A chunk is the workload's, else the engine's micro-batch.
    """
    new = as_quantity(workload.prompt - workload.cached_prefix)
    sequences = plan.replica_sequences(workload)
    step = Step("prefill", sequences, new, workload.cached_prefix)
    head = head_operators(model, step, plan.formats, plan.parallel)
    chunk = workload.prefill_chunk or plan.engine.kernels.micro_batch_tokens
    if chunk is None:
        return [StepSet(_body(model, step, plan) + head, sequences)]
    body = _chunked_body(model, workload, plan, chunk)
    return [*body, StepSet(head, sequences, hosted=False)]


def price(steps: StepSet, model: Model, plan: Plan, device: Device, host: Host | None) -> PhaseCost:
    """Price a set of steps; ``host`` None leaves the host's time out."""
    time = None
    if host is not None and steps.hosted:
        time = HostTime(host, plan.engine.name, len(model.layers), steps.sequences)
    return phase_cost(steps.operators, device, steps.mask, time)


def prefill(
    model: Model, workload: Workload, plan: Plan, device: Device, host: Host | None = None
) -> PhaseCost:
    """Prefill of the whole batch, up to the first output token."""
    total = PhaseCost((), Cost())
    before = PhaseCost((), Cost())
    for steps in prefill_steps(model, workload, plan):
        part = price(steps, model, plan, device, host)
        if steps.continues:
            before = add(before, part)
        else:
            total, before = join(total, before), part
    return join(total, before)


def _decode_operators(
    model: Model, plan: Plan, sequences: Quantity, cached: Quantity
) -> tuple[Operator, ...]:
    step = Step("decode", sequences, 1, cached)
    fused = plan.deployment.attention == "fused"
    return step_operators(model, step, plan.formats, plan.parallel, fused_attention=fused)


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


def mean_context(workload: Workload, plan: Plan) -> tuple[Quantity, Quantity]:
    """Sequences of a replica, and the cached tokens that its mean decode step runs over."""
    cached = mean_cached(workload)
    if plan.engine.kernels.static_cache:
        whole = plan.deployment.max_model_len or as_quantity(workload.prompt + workload.output)
        cached = whole - 1
    return plan.replica_sequences(workload), cached


def mean_decode_step(model: Model, workload: Workload, plan: Plan) -> StepSet:
    """One decode step of the whole batch at the mean context."""
    sequences, cached = mean_context(workload, plan)
    return StepSet(_decode_operators(model, plan, sequences, cached), sequences)


def decode_step(
    model: Model, workload: Workload, plan: Plan, device: Device, host: Host | None = None
) -> PhaseCost:
    """One decode step of the whole batch at the mean context, priced."""
    return price(mean_decode_step(model, workload, plan), model, plan, device, host)


def decode_slabs(
    workload: Workload, plan: Plan, tokens: float = 1.0
) -> Iterator[tuple[Quantity, Quantity, Array]]:
    """Sequences, cached tokens and mask of the (output − 1)/tokens decode steps.

    Each step gives ``tokens`` of each sequence and stands on a trailing axis, cut to bound
    memory; the mask of the last one is the part of it that is needed.
    """
    steps = (np.asarray(workload.output, dtype=np.float64)[..., None] - 1) / tokens
    longest = int(np.ceil(steps.max()))
    sequences = _expand(plan.replica_sequences(workload))
    prompt = _expand(workload.prompt)
    settings = np.broadcast(steps, np.asarray(sequences), np.asarray(prompt)).size
    for index in _slabs(longest, settings):
        mask = np.clip(steps - index, 0.0, 1.0)
        yield sequences, _cached(workload, plan, prompt + tokens * index), mask


def decode_all(
    model: Model, workload: Workload, plan: Plan, device: Device, host: Host | None = None
) -> Cost:
    """All output − 1 decode steps, each at its own context, summed over a trailing axis."""
    total = Cost()
    for sequences, cached, mask in decode_slabs(workload, plan):
        operators = _decode_operators(model, plan, sequences, cached)
        part = price(StepSet(operators, sequences, mask), model, plan, device, host)
        total = total + part.total
    return total
