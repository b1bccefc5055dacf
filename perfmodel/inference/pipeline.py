"""Pipeline stages with several micro-batches in flight: what fills them, and the bubbles.

A replica's sequences are split into micro-batches of whole sequences. Stage s, with its own layers
(embedding on the first, head on the last), takes t_s for one micro-batch, the hand-over to the
next stage included; the slowest takes t_max.

* Prefill of m micro-batches takes Σ t_s + (m − 1)·t_max: the first passes all stages, the others
  follow at the pace of the slowest. Equal stages: (m + p − 1)·t, of which (p − 1)/(m + p − 1) is
  bubble. With a prompt in chunks, each chunk is a unit of its own; at most m are in flight, so
  that units beyond them come in rounds of max(Σ t_s, m·t_max).
* Decode: a sequence's next token waits for its last one. A round of all m micro-batches takes
  max(Σ t_s, m·t_max): stages idle until m fills them, and more only make each step smaller.

Assumed: micro-batches are as large as the largest, their steps differ over a phase by little
(which stage is the slowest is decided over the whole phase), hand-overs aren't hidden, and the
host's work for a step is done beside the last stage, that for layers beside each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from perfmodel.inference.phase import Cost, Device, OperatorCost, PhaseCost
from perfmodel.inference.plan import Plan
from perfmodel.inference.step_sets import Part
from perfmodel.inference.steps import decode_all, decode_step, prefill
from perfmodel.operators.quantity import Quantity, as_quantity, maximum, minimum
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload

BUBBLE_ROW = "pipeline.bubble"
"""The row of a phase's operators in which the slowest stage waits for the others."""


def _ceil(a: Quantity, b: Quantity) -> Quantity:
    return as_quantity(np.ceil(np.asarray(a) / np.asarray(b)))


@dataclass(frozen=True, slots=True)
class Flight:
    """How a replica's sequences fill the stages."""

    groups: Quantity
    """Micro-batches that the sequences are split into."""
    sequences: Quantity
    """Of the largest."""
    rounds: Quantity
    """Prefill: its units over those in flight."""
    chunks: Quantity
    """Prefill: units of each micro-batch."""

    @classmethod
    def of(cls, workload: Workload, plan: Plan) -> Flight:
        """The split that a plan asks for; fewer micro-batches where sequences run out."""
        asked, total = plan.deployment.pp_microbatches, plan.replica_sequences(workload)
        sequences = _ceil(total, minimum(asked, total))
        groups = _ceil(total, sequences)
        chunk = plan.prefill_chunk(workload)
        new = as_quantity(workload.prompt - workload.cached_prefix)
        chunks: Quantity = 1 if chunk is None else _ceil(new, chunk)
        return cls(groups, sequences, maximum(groups * chunks / asked, 1.0), chunks)

    def prefill_s(self, every: Quantity, slowest: Quantity) -> Quantity:
        """Seconds of a prefill whose stages take ``every`` in all for one micro-batch."""
        every, slowest = every / self.chunks, slowest / self.chunks
        in_flight = self.groups * self.chunks / self.rounds
        cycle = maximum(every, in_flight * slowest)
        return (self.rounds - 1) * cycle + every + (in_flight - 1) * slowest

    def decode_s(self, every: Quantity, slowest: Quantity) -> Quantity:
        """Seconds of as many decode steps as ``every`` and ``slowest`` are for, of all groups."""
        return maximum(every, self.groups * slowest)


Whole = Callable[[Quantity, Quantity], Quantity]
"""From a micro-batch's seconds over all stages, and on the slowest, to those of the phase."""


def _is_slowest(costs: list[Cost]) -> list[Quantity]:
    """For each stage 1 where it is the slowest, else 0."""
    times = np.stack(np.broadcast_arrays(*(np.asarray(cost.time_s) for cost in costs)))
    most = np.argmax(times, axis=0)
    return [as_quantity((most == stage).astype(np.float64)) for stage in range(len(costs))]


def _bubble(costs: list[Cost], slowest: list[Quantity], groups: Quantity, whole: Whole) -> Cost:
    """The time in which the slowest stage waits, limited by what limits the other stages."""
    every = sum(costs, Cost())
    own = sum((c.scaled(s, s) for c, s in zip(costs, slowest, strict=True)), Cost())
    others = sum((c.scaled(1 - s, 0) for c, s in zip(costs, slowest, strict=True)), Cost())
    # Rounding may leave less than nothing where the stages are full.
    waits = maximum(whole(every.time_s, own.time_s) - groups * own.time_s, 0.0)
    return others.scaled(waits / maximum(others.time_s, 1e-30), 0)


def _joined(stages: list[PhaseCost], groups: Quantity, whole: Whole) -> PhaseCost:
    """The slowest stage's operators for every micro-batch, and the bubble."""
    costs = [stage.total for stage in stages]
    slowest = _is_slowest(costs)
    rows = [
        replace(row, cost=row.cost.scaled(times, times), steps=row.steps * groups)
        for stage, mine in zip(stages, slowest, strict=True)
        if np.any(mine)
        for times in (mine * groups,)
        for row in stage.operators
    ]
    bubble = _bubble(costs, slowest, groups, whole)
    rows.append(OperatorCost(BUBBLE_ROW, 1, {"stages": len(stages)}, "none", "pipeline", bubble))
    return PhaseCost(tuple(rows), sum((row.cost for row in rows), Cost()))


def bubble_share(phase: PhaseCost) -> Quantity:
    """Share of a phase's time in which the slowest stage waits; 0 for one batch at a time."""
    waits = sum(row.cost.time_s for row in phase.operators if row.name == BUBBLE_ROW)
    return waits / phase.total.time_s


def _parts(flight: Flight, plan: Plan) -> list[Part]:
    return [Part(stage, flight.sequences) for stage in range(plan.parallel.pp)]


def _phase(
    priced: Callable[..., PhaseCost],
    seconds: Callable[[Flight, Quantity, Quantity], Quantity],
    model: Model,
    workload: Workload,
    plan: Plan,
    device: Device,
    host: Host | None,
) -> PhaseCost:
    """A phase by what prices it, or its part of one stage, and by how stages follow each other."""
    if plan.deployment.pp_microbatches == 1:
        return priced(model, workload, plan, device, host)
    flight = Flight.of(workload, plan)
    stages = [priced(model, workload, plan, device, host, p) for p in _parts(flight, plan)]
    return _joined(stages, flight.groups, partial(seconds, flight))


def prefill_phase(
    model: Model, workload: Workload, plan: Plan, device: Device, host: Host | None = None
) -> PhaseCost:
    """Prefill of the whole batch; with micro-batches, of one GPU of the slowest stage."""
    return _phase(prefill, Flight.prefill_s, model, workload, plan, device, host)


def decode_phase(
    model: Model, workload: Workload, plan: Plan, device: Device, host: Host | None = None
) -> PhaseCost:
    """One decode step of every sequence at the mean context, as `prefill_phase`."""
    return _phase(decode_step, Flight.decode_s, model, workload, plan, device, host)


def decode_total(
    model: Model, workload: Workload, plan: Plan, device: Device, host: Host | None = None
) -> Cost:
    """All decode steps of every sequence, as `prefill_phase`."""
    if plan.deployment.pp_microbatches == 1:
        return decode_all(model, workload, plan, device, host)
    flight = Flight.of(workload, plan)
    costs = [decode_all(model, workload, plan, device, host, p) for p in _parts(flight, plan)]
    slowest = _is_slowest(costs)
    own = sum((c.scaled(s, s) for c, s in zip(costs, slowest, strict=True)), Cost())
    return own.scaled(flight.groups, flight.groups) + _bubble(
        costs, slowest, flight.groups, flight.decode_s
    )
