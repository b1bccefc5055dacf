"""The steps of a request: prefill at once or in chunks, one decode step, all decode steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfmodel.inference.execution import ahead_of_device, beyond_graphs
from perfmodel.inference.host import HostTime
from perfmodel.inference.offload import Transfer
from perfmodel.inference.phase import Cost, Device, Launches, PhaseCost, add, join, mean, phase_cost
from perfmodel.inference.plan import Plan
from perfmodel.inference.stages import stage_weights
from perfmodel.operators.cache import cache_bytes
from perfmodel.operators.context import Step
from perfmodel.operators.quantity import Array, Quantity, as_quantity, clip, is_array
from perfmodel.operators.record import Operator, Phase
from perfmodel.operators.sharding import stage_layers
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


def step_transfer(
    model: Model, step: Step, plan: Plan, part: Part | None = None
) -> Transfer | None:
    """What the offload makes a step, or a part of it, move; None where all lies on the device."""
    offload = plan.offload
    if not offload.active:
        return None
    stages = list(stage_weights(model, plan))
    if part is not None:
        stages = [stages[part.stage]]
    layers = tuple(layer for local, _ in stages for layer in local)
    ins: Quantity = 0.0
    outs: Quantity = 0.0
    for alike in step.parts:
        read = cache_bytes(layers, alike.cached, plan.formats.cache, cap=alike.kept)
        written = cache_bytes(layers, alike.new, plan.formats.cache)
        ins = ins + offload.kv_share * alike.sequences * read
        outs = outs + offload.kv_share * alike.sequences * written
    # Every stage reads its own weights from the host, one stage after the other.
    weights = sum(min(offload.weights_bytes, stored) for _, stored in stages)
    return Transfer(offload, ins, outs, weights)


@dataclass(frozen=True, slots=True)
class Part:
    """One pipeline stage's share of a step, for one of the micro-batches in flight."""

    stage: int
    sequences: Quantity
    """Of the micro-batch."""

    def is_last(self, plan: Plan) -> bool:
        """Whether the stage has the head, whose host time is that of the whole step."""
        return self.stage == plan.parallel.pp - 1


def _sequences(workload: Workload, plan: Plan, part: Part | None) -> Quantity:
    return plan.replica_sequences(workload) if part is None else part.sequences


def body_of(model: Model, step: Step, plan: Plan, part: Part | None = None) -> tuple[Operator, ...]:
    """The operators of a step before the head, or of a part of it."""
    return body_operators(
        model,
        step,
        plan.formats,
        plan.parallel,
        fused_attention=plan.deployment.attention != "unfused",
        stage=None if part is None else part.stage,
        fusion=plan.deployment.fusion,
    )


def head_of(model: Model, step: Step, plan: Plan) -> tuple[Operator, ...]:
    """The operators of a step's head."""
    return head_operators(model, step, plan.formats, plan.parallel, fusion=plan.deployment.fusion)


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


def price(
    steps: StepSet,
    model: Model,
    plan: Plan,
    device: Device,
    host: Host | None,
    part: Part | None = None,
) -> PhaseCost:
    """Price a set of steps; ``host`` None leaves the host's time out."""
    time = None
    if host is not None and steps.hosted:
        layers = len(model.layers)
        if part is not None:
            layers = len(stage_layers(model, plan.parallel.pp)[part.stage])
        fixed = part is None or part.is_last(plan)
        issue = issue_s(steps, plan, device)
        time = HostTime(host, plan.engine.name, layers, steps.sequences, issue, fixed)
    overlap = plan.deployment.comm_overlap
    device = launching(steps, plan, device)
    return phase_cost(steps.operators, device, steps.mask, time, overlap, steps.transfer)


def launching(steps: StepSet, plan: Plan, device: Device) -> Device:
    """The device, launching kernel by kernel where a decode batch is beyond the graphs."""
    alone = beyond_graphs(plan, steps.sequences) if steps.tokens is None and steps.hosted else 0
    if isinstance(device, Launches) and np.any(np.asarray(alone) > 0):
        return device.launched(alone)
    return device


def issue_s(steps: StepSet, plan: Plan, device: Device) -> Quantity:
    """What issuing a kernel takes a host that runs ahead of the device; 0 where graphs do."""
    if steps.tokens is None or not isinstance(device, Launches):
        return 0.0
    return ahead_of_device(plan, steps.tokens) * device.issue_s("eager")


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


def operators_of(
    model: Model, step: Step, plan: Plan, part: Part | None = None
) -> tuple[Operator, ...]:
    """The operators of a whole step of a replica, the head's too, or a part's share of them."""
    return step_operators(
        model,
        step,
        plan.formats,
        plan.parallel,
        fused_attention=plan.deployment.attention != "unfused",
        stage=None if part is None else part.stage,
        fusion=plan.deployment.fusion,
    )


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
