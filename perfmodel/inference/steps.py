"""The steps of a request: prefill at once or in chunks, one decode step, all decode steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfmodel.inference.engine_kernels import EngineDevice
from perfmodel.inference.execution import ahead_of_device, beyond_graphs
from perfmodel.inference.host import HostTime
from perfmodel.inference.phase import Cost, Device, PhaseCost, add, join, phase_cost
from perfmodel.inference.plan import Plan
from perfmodel.kernels.timing import DeviceModel
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
    tokens: Quantity | None = None
    """In each step of a prefill; None for decode steps."""
    hosted: bool = True
    """False for a part of a step whose host time is counted with the other part."""


def _body(model: Model, step: Step, plan: Plan) -> tuple[Operator, ...]:
    return body_operators(
        model,
        step,
        plan.formats,
        plan.parallel,
        fused_attention=plan.deployment.attention != "unfused",
        fusion=plan.deployment.fusion,
    )


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
        operators = _body(model, step, plan)
        yield StepSet(operators, sequences, mask, bool(index[0]), as_quantity(step.tokens))


def prefill_steps(model: Model, workload: Workload, plan: Plan) -> list[StepSet]:
    """The steps of the whole batch's prefill: one, or the chunks and then the head.

    A chunk is the workload's, else the engine's micro-batch.
    """
    new = as_quantity(workload.prompt - workload.cached_prefix)
    sequences = plan.replica_sequences(workload)
    step = Step("prefill", sequences, new, workload.cached_prefix)
    fusion = plan.deployment.fusion
    head = head_operators(model, step, plan.formats, plan.parallel, fusion=fusion)
    chunk = plan.prefill_chunk(workload)
    if chunk is None:
        return [StepSet(_body(model, step, plan) + head, sequences, tokens=step.tokens)]
    body = _chunked_body(model, workload, plan, chunk)
    return [*body, StepSet(head, sequences, hosted=False)]


def price(steps: StepSet, model: Model, plan: Plan, device: Device, host: Host | None) -> PhaseCost:
    """Price a set of steps; ``host`` None leaves the host's time out."""
    time = None
    if host is not None and steps.hosted:
        issue = _issue_s(steps, plan, device)
        time = HostTime(host, plan.engine.name, len(model.layers), steps.sequences, issue)
    return phase_cost(steps.operators, _launching(steps, plan, device), steps.mask, time)


def _launching(steps: StepSet, plan: Plan, device: Device) -> Device:
    """The device, launching kernel by kernel where a decode batch is beyond the graphs."""
    alone = beyond_graphs(plan, steps.sequences) if steps.tokens is None and steps.hosted else 0
    if isinstance(device, DeviceModel | EngineDevice) and np.any(np.asarray(alone) > 0):
        return device.launched(alone)
    return device


def _issue_s(steps: StepSet, plan: Plan, device: Device) -> Quantity:
    """What issuing a kernel takes a host that runs ahead of the device; 0 where graphs do."""
    if steps.tokens is None or not isinstance(device, DeviceModel | EngineDevice):
        return 0.0
    return ahead_of_device(plan, steps.tokens) * device.issue_s("eager")


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
    return step_operators(
        model,
        step,
        plan.formats,
        plan.parallel,
        fused_attention=plan.deployment.attention != "unfused",
        fusion=plan.deployment.fusion,
    )


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


def mean_decode_step(model: Model, workload: Workload, plan: Plan) -> StepSet:
    """One decode step of the whole batch at the mean context."""
    sequences = plan.replica_sequences(workload)
    cached = mean_cached(workload)
    if plan.engine.kernels.static_cache:
        whole = plan.deployment.max_model_len or as_quantity(workload.prompt + workload.output)
        cached = whole - 1
    return StepSet(_decode_operators(model, plan, sequences, cached), sequences)


def decode_step(
    model: Model, workload: Workload, plan: Plan, device: Device, host: Host | None = None
) -> PhaseCost:
    """One decode step of the whole batch at the mean context, priced."""
    return price(mean_decode_step(model, workload, plan), model, plan, device, host)


def decode_all(
    model: Model, workload: Workload, plan: Plan, device: Device, host: Host | None = None
) -> Cost:
    """All output − 1 decode steps, each at its own context, summed over a trailing axis."""
    steps = np.asarray(workload.output, dtype=np.float64)[..., None] - 1
    longest = int(steps.max())
    sequences = _expand(plan.replica_sequences(workload))
    prompt = _expand(workload.prompt)
    settings = np.broadcast(steps, np.asarray(sequences), np.asarray(prompt)).size
    total = Cost()
    for index in _slabs(longest, settings):
        mask = (index < steps).astype(np.float64)
        cached = _cached(workload, plan, prompt + index)
        operators = _decode_operators(model, plan, sequences, cached)
        part = price(StepSet(operators, sequences, mask), model, plan, device, host)
        total = total + part.total
    return total
