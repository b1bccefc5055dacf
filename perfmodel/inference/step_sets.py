"""Steps of a plan: their operators, what they transfer, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from perfmodel.inference.execution import ahead_of_device, beyond_graphs
from perfmodel.inference.host import HostTime
from perfmodel.inference.offload import Transfer
from perfmodel.inference.overlap import hides
from perfmodel.inference.phase import Device, Launches, PhaseCost, phase_cost
from perfmodel.inference.plan import Plan
from perfmodel.inference.stages import stage_weights
from perfmodel.operators.cache import cache_bytes
from perfmodel.operators.context import Step
from perfmodel.operators.quantity import Array, Quantity
from perfmodel.operators.record import Operator, Phase
from perfmodel.operators.sharding import stage_layers
from perfmodel.operators.step import body_operators, head_operators
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.model import Model


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
    verified: Quantity = 1
    """Tokens of each sequence in a decode step: several where drafted ones are verified."""


@dataclass(frozen=True, slots=True)
class Part:
    """One pipeline stage's share of a step, for one of the micro-batches in flight."""

    stage: int
    sequences: Quantity
    """Of the micro-batch."""

    def is_last(self, plan: Plan) -> bool:
        """Whether the stage has the head, whose host time is that of the whole step."""
        return self.stage == plan.parallel.pp - 1


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


def operators_of(
    model: Model, step: Step, plan: Plan, part: Part | None = None
) -> tuple[Operator, ...]:
    """The operators of a whole step of a replica, the head's too, or a part's share of them."""
    body = body_of(model, step, plan, part)
    return body + head_of(model, step, plan) if part is None or part.is_last(plan) else body


def group_s(operators: Iterable[Operator], device: Device) -> tuple[Quantity, Quantity]:
    """Seconds of a group of a step's operators, and the part of it that could be hidden."""
    whole: Quantity = 0.0
    exchanges: Quantity = 0.0
    for operator in operators:
        seconds = operator.count * device.time(operator).time_s
        whole = whole + seconds
        if hides(operator):
            exchanges = exchanges + seconds
    return whole, exchanges


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
    decodes = steps.tokens is None and steps.hosted
    alone = beyond_graphs(plan, steps.sequences, steps.verified) if decodes else 0
    if isinstance(device, Launches) and np.any(np.asarray(alone) > 0):
        return device.launched(alone)
    return device


def issue_s(steps: StepSet, plan: Plan, device: Device) -> Quantity:
    """What issuing a kernel takes a host that runs ahead of the device; 0 where graphs do."""
    if steps.tokens is None or not isinstance(device, Launches):
        return 0.0
    return ahead_of_device(plan, steps.tokens) * device.issue_s("eager")
