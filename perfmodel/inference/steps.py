"""The steps of a request: prefill at once or in chunks, one decode step, all decode steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfmodel.inference.phase import Cost, PhaseCost, add, join, phase_cost
from perfmodel.inference.plan import Plan
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.context import Step
from perfmodel.operators.quantity import Array, Quantity, as_quantity, clip
from perfmodel.operators.record import Operator
from perfmodel.operators.step import body_operators, head_operators, step_operators
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


def _head_cost(model: Model, step: Step, plan: Plan, device: DeviceModel) -> PhaseCost:
    return phase_cost(head_operators(model, step, plan.formats, plan.parallel), device)


def _chunked_body(
    model: Model, workload: Workload, plan: Plan, device: DeviceModel, chunk: int
) -> PhaseCost:
    """All chunks as a trailing axis: the j-th processes what is left after j·chunk tokens."""
    new = _expand(as_quantity(workload.prompt - workload.cached_prefix))
    sequences = _expand(plan.replica_sequences(workload))
    cached = _expand(workload.cached_prefix)
    chunks = -(-int(np.max(np.asarray(new))) // chunk)
    settings = np.broadcast(np.asarray(new), np.asarray(sequences), np.asarray(cached)).size
    fused = plan.deployment.attention == "fused"
    total: PhaseCost | None = None
    for index in _slabs(chunks, settings):
        starts = chunk * index
        sizes = clip(new - starts, 0, chunk)
        step = Step(phase="prefill", sequences=sequences, new=sizes, cached=cached + starts)
        operators = body_operators(model, step, plan.formats, plan.parallel, fused_attention=fused)
        part = phase_cost(operators, device, mask=(np.asarray(sizes) > 0).astype(np.float64))
        total = part if total is None else add(total, part)
    assert total is not None  # noqa: S101  (a prompt has at least one token to compute)
    return total


def prefill(model: Model, workload: Workload, plan: Plan, device: DeviceModel) -> PhaseCost:
    """Prefill of the whole batch, up to the first output token."""
    new = as_quantity(workload.prompt - workload.cached_prefix)
    step = Step("prefill", plan.replica_sequences(workload), new, workload.cached_prefix)
    head = _head_cost(model, step, plan, device)
    if workload.prefill_chunk is not None:
        return join(_chunked_body(model, workload, plan, device, workload.prefill_chunk), head)
    fused = plan.deployment.attention == "fused"
    body = body_operators(model, step, plan.formats, plan.parallel, fused_attention=fused)
    return join(phase_cost(body, device), head)


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


def decode_step(model: Model, workload: Workload, plan: Plan, device: DeviceModel) -> PhaseCost:
    """One decode step of the whole batch at the mean context."""
    sequences = plan.replica_sequences(workload)
    return phase_cost(_decode_operators(model, plan, sequences, mean_cached(workload)), device)


def decode_all(model: Model, workload: Workload, plan: Plan, device: DeviceModel) -> Cost:
    """All output − 1 decode steps, each at its own context, summed over a trailing axis."""
    steps = np.asarray(workload.output, dtype=np.float64)[..., None] - 1
    longest = int(steps.max())
    sequences = _expand(plan.replica_sequences(workload))
    prompt = _expand(workload.prompt)
    settings = np.broadcast(steps, np.asarray(sequences), np.asarray(prompt)).size
    total = Cost()
    for index in _slabs(longest, settings):
        mask = (index < steps).astype(np.float64)
        operators = _decode_operators(model, plan, sequences, prompt + index)
        total = total + phase_cost(operators, device, mask).total
    return total
