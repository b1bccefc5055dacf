"""A step in which some sequences decode while others prefill: what chunked prefill makes of it.

Linear layers run once over the tokens of all, so a chunk's products carry the decodes along at
little cost. Attention and recurrences run once for each part, as kernels of their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.host import HostTime
from perfmodel.inference.overlap import exposed, sent
from perfmodel.inference.phase import Device, PhaseCost, sum_cost
from perfmodel.inference.plan import Plan
from perfmodel.inference.step_sets import (
    StepSet,
    issue_s,
    launching,
    made_step,
    operators_of,
    step_transfer,
)
from perfmodel.kernels.kernel_time import QUANTITIES, KernelTime, slower
from perfmodel.operators.context import Step
from perfmodel.operators.quantity import Quantity, is_array, where
from perfmodel.operators.record import Attention, Gemm, GroupedGemm, Operator, Recurrence
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.model import Model


def mixed_step(
    model: Model,
    plan: Plan,
    device: Device,
    host: Host | None,
    decodes: Quantity,
    context: Quantity,
    chunk: Quantity,
    cached: Quantity = 0,
) -> PhaseCost:
    """Price one step of a replica in which sequences decode while a prompt prefills a chunk.

    Numbers or arrays that broadcast. Without a chunk it is the decode step, without decodes the
    prefill step; with both it is never cheaper than either.

    Args:
        model: the model.
        plan: the resolved deployment.
        device: what prices operators.
        host: the engine's host times; None leaves them out.
        decodes: sequences that decode one token; 0 for none.
        context: tokens that each of them has in the cache.
        chunk: new tokens of the prompt; 0 for none. Logits are computed for the last of them, at a
            prompt's end and (as vLLM does) before it; `step_cost` takes chunks without.
        cached: tokens of the prompt that earlier chunks or a cached prefix left in the cache.

    Raises:
        InputError: no sequence takes part in a step, or a count is negative.
    """
    decode = made_step(plan, "decode", decodes, 1, context)
    prefill = made_step(plan, "prefill", 1, chunk, cached)
    return step_cost(model, plan, device, host, [decode, prefill])


def step_cost(
    model: Model, plan: Plan, device: Device, host: Host | None, parts: Sequence[Step]
) -> PhaseCost:
    """Price one step of any groups of sequences (`steps.made_step` makes one).

    A part without tokens takes no time and no room in the batch. Several prompts of unequal
    chunks are several parts; an engine's one launch over all of them is priced as one each.

    Raises:
        InputError: as of `mixed_step`.
    """
    _check(parts)
    taking = [_taking_part(part) for part in parts if np.any(np.asarray(part.tokens) > 0)]
    step = replace(taking[0], beside=tuple(taking[1:]))
    operators = operators_of(model, step, plan)
    floors = _alone(operators, taking, model, plan) if len(taking) > 1 else {}
    sequences = sum((part.sequences for part in taking[1:]), start=taking[0].sequences)
    prefills = any(part.phase == "prefill" for part in taking)
    steps = StepSet(operators, sequences, tokens=step.tokens if prefills else None)
    runs = launching(steps, plan, device)
    priced = [_priced(operator, floors.get(i, []), runs) for i, operator in enumerate(operators)]
    time = None
    if host is not None:
        issue = issue_s(steps, plan, device)
        time = HostTime(host, plan.engine.name, len(model.layers), sequences, issue)
    priced = exposed(priced, plan.deployment.comm_overlap)
    return sum_cost(priced, None, time, step_transfer(model, step, plan))


def _check(parts: Sequence[Step]) -> None:
    tokens: Quantity = 0
    for part in parts:
        for size in (part.sequences, part.new, part.cached):
            if np.any(np.asarray(size) < 0):
                raise InputError("a step: sequences and tokens can't be negative")
        tokens = tokens + part.tokens
    if not np.all(np.asarray(tokens) > 0):
        raise InputError("a step: no sequence takes part; decodes or a chunk are needed")


def _taking_part(part: Step) -> Step:
    """The part without the sequences of those settings in which it has no tokens."""
    if not is_array(part.tokens):
        return part
    return replace(part, sequences=where(np.asarray(part.tokens) > 0, part.sequences, 0.0))


def _keys(operators: Sequence[Operator]) -> list[tuple[object, ...]]:
    """What tells apart the operators that run once for all parts."""
    seen: Counter[tuple[object, ...]] = Counter()
    keys: list[tuple[object, ...]] = []
    for op in operators:
        sizes = (op.n, op.k) if isinstance(op, Gemm | GroupedGemm) else ()
        key = (type(op), op.name, op.count, *sizes)
        seen[key] += 1
        keys.append((*key, seen[key]))
    return keys


def _alone(
    operators: Sequence[Operator], parts: Sequence[Step], model: Model, plan: Plan
) -> dict[int, list[Operator]]:
    """By index, what each shared operator would be if a part were alone in the step."""
    index = {key: i for i, key in enumerate(_keys(operators))}
    found: dict[int, list[Operator]] = defaultdict(list)
    for part in parts:
        own = operators_of(model, part, plan)
        for key, op in zip(_keys(own), own, strict=True):
            if key in index and not isinstance(op, Attention | Recurrence):
                found[index[key]].append(op)
    return found


def _priced(
    operator: Operator, alone: Sequence[Operator], device: Device
) -> tuple[Operator, KernelTime]:
    """The operator with its time: none where nothing runs, and no less than for a part alone.

    Fitted kernels may be faster at a larger size that suits their tiles; a smaller call could be
    padded to it, so more rows never make a step cheaper than its parts.
    """
    kernel = sent(operator, _time(operator, device))
    for each in alone:
        kernel = slower(kernel, _time(each, device))
    if is_array(operator.activation_bytes):
        runs = np.asarray(operator.activation_bytes) > 0
        operator = replace(operator, weight_bytes=where(runs, operator.weight_bytes, 0.0))
    return operator, kernel


SIZES = ("sequences", "queries", "keys", "pairs", "context")


def _time(operator: Operator, device: Device) -> KernelTime:
    """The operator's time; nothing where an array's element has no tokens for it."""
    if not is_array(operator.activation_bytes):
        return device.time(operator)
    runs = np.asarray(operator.activation_bytes) > 0
    asked = operator
    if isinstance(operator, Attention | Recurrence):  # whose kernels know no empty batch
        sizes = {n: getattr(operator, n) for n in SIZES if hasattr(operator, n)}
        filled: dict[str, Any] = {n: where(runs, size, 1.0) for n, size in sizes.items()}
        asked = replace(operator, **filled)
    kernel = device.time(asked)
    taken: dict[str, Any] = {n: where(runs, getattr(kernel, n), 0.0) for n in QUANTITIES}
    return replace(kernel, **taken)
