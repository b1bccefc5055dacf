"""The steps of a request: prefill at once or in chunks, one decode step, all decode steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfmodel.inference.host import HostTime
from perfmodel.inference.offload import Transfer
from perfmodel.inference.phase import Cost, Device, PhaseCost, add, join, mean, phase_cost
from perfmodel.inference.plan import Plan
from perfmodel.inference.stages import stage_weights
from perfmodel.operators.cache import cache_bytes
from perfmodel.operators.context import Step
from perfmodel.operators.quantity import Array, Quantity, as_quantity, clip, is_array
from perfmodel.operators.record import Operator, Phase
from perfmodel.operators.sharding import local_layer
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
    transfer: Transfer | None = None
    """What each step moves to and from the device."""


def made_step(
    plan: Plan,
    phase: Phase,
    sequences: Quantity,
    new: Quantity,
    cached: Quantity,
    logits: Quantity = 1,
) -> Step:
    """A step of a replica under what the plan keeps of the tokens before."""
    return Step(phase, sequences, new, cached, logits, plan.kept_tokens(phase))


def step_transfer(model: Model, step: Step, plan: Plan) -> Transfer | None:
    """What the offload makes a step move; None where nothing lies outside the device."""
    offload = plan.offload
    if not offload.active:
        return None
    layers = tuple(local_layer(layer, plan.parallel) for layer in model.layers)
    ins: Quantity = 0.0
    outs: Quantity = 0.0
    for part in step.parts:
        read = cache_bytes(layers, part.cached, plan.formats.cache, cap=part.kept)
        written = cache_bytes(layers, part.new, plan.formats.cache)
        ins = ins + offload.kv_share * part.sequences * read
        outs = outs + offload.kv_share * part.sequences * written
    return Transfer(offload, ins, outs, offloaded_weights(model, plan))


def offloaded_weights(model: Model, plan: Plan) -> float:
    """Bytes of weights that a pass reads from the host, summed over the pipeline stages."""
    stages = stage_weights(model, plan)
    return sum(min(plan.offload.weights_bytes, weights) for _, weights in stages)


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
        step = made_step(plan, "prefill", sequences, sizes, cached + starts)
        mask = (np.asarray(sizes) > 0).astype(np.float64)
        moved = step_transfer(model, step, plan)
        yield StepSet(_body(model, step, plan), sequences, mask, bool(index[0]), transfer=moved)


def prefill_steps(model: Model, workload: Workload, plan: Plan) -> list[StepSet]:
    """The steps of the whole batch's prefill: one, or the chunks and then the head.

    A chunk is the workload's, else the engine's micro-batch. Every prompt finds its prefix.
    """
    new = as_quantity(workload.prompt - workload.cached_prefix)
    sequences = plan.replica_sequences(workload)
    step = made_step(plan, "prefill", sequences, new, workload.cached_prefix)
    head = head_operators(model, step, plan.formats, plan.parallel)
    chunk = workload.prefill_chunk or plan.engine.kernels.micro_batch_tokens
    if chunk is None:
        moved = step_transfer(model, step, plan)
        return [StepSet(_body(model, step, plan) + head, sequences, transfer=moved)]
    body = _chunked_body(model, workload, plan, chunk)
    return [*body, StepSet(head, sequences, hosted=False)]


def price(steps: StepSet, model: Model, plan: Plan, device: Device, host: Host | None) -> PhaseCost:
    """Price a set of steps; ``host`` None leaves the host's time out."""
    time = None
    if host is not None and steps.hosted:
        time = HostTime(host, plan.engine.name, len(model.layers), steps.sequences)
    return phase_cost(steps.operators, device, steps.mask, time, steps.transfer)


def prefill(
    model: Model, workload: Workload, plan: Plan, device: Device, host: Host | None = None
) -> PhaseCost:
    """Prefill of the whole batch, up to the first output token.

    Where a share of the prompts finds the prefix, it is the mean of a prefill that does and one
    that doesn't: exact for one prompt, and for the work of any number.
    """
    hits = as_quantity(workload.prefix_hits)
    found = workload.model_copy(update={"prefix_share": None})
    missing = found.model_copy(update={"cached_prefix": 0})
    if not is_array(hits) and hits in (0, 1):
        return _prefill(model, found if hits else missing, plan, device, host)
    first, second = (_prefill(model, each, plan, device, host) for each in (found, missing))
    return mean(first, second, hits)


def _prefill(
    model: Model, workload: Workload, plan: Plan, device: Device, host: Host | None
) -> PhaseCost:
    total = PhaseCost((), Cost())
    before = PhaseCost((), Cost())
    for steps in prefill_steps(model, workload, plan):
        part = price(steps, model, plan, device, host)
        if steps.continues:
            before = add(before, part)
        else:
            total, before = join(total, before), part
    return join(total, before)


def operators_of(model: Model, step: Step, plan: Plan) -> tuple[Operator, ...]:
    """The operators of a whole step of a replica, the head's too."""
    fused = plan.deployment.attention == "fused"
    return step_operators(model, step, plan.formats, plan.parallel, fused_attention=fused)


def _decode_set(
    model: Model, plan: Plan, sequences: Quantity, cached: Quantity, mask: Array | None = None
) -> StepSet:
    step = made_step(plan, "decode", sequences, 1, cached)
    moved = step_transfer(model, step, plan)
    return StepSet(operators_of(model, step, plan), sequences, mask, transfer=moved)


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
    return _decode_set(model, plan, sequences, cached)


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
        steps_at = _decode_set(model, plan, sequences, cached, mask)
        total = total + price(steps_at, model, plan, device, host).total
    return total
