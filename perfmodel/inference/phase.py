"""Sums over the operators of a phase: time with its interval, FLOPs, bytes, what limits it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from perfmodel.inference.host import HOST_ROW, HostTime
from perfmodel.inference.offload import SLOWEST, TRANSFER_ROW, Transfer
from perfmodel.inference.overlap import exposed, sent
from perfmodel.kernels.kernel_time import Bound, KernelTime, bound_times
from perfmodel.operators.quantity import Array, Quantity, as_quantity, is_array, maximum
from perfmodel.operators.record import Operator, Shape


class Device(Protocol):
    """What prices operators: a device, or a device under an engine's kernels."""

    def time(self, operator: Operator) -> KernelTime:
        """Seconds of one execution."""


@runtime_checkable
class Launches(Device, Protocol):
    """A device that knows what launching kernels takes, in a graph or one by one."""

    def launched(self, eager_where: Quantity) -> Launches:
        """The same device where some settings launch their kernels one by one."""

    def issue_s(self, execution: Literal["graph", "eager"]) -> float:
        """Seconds from launch to launch of kernels without work."""


BOUNDS: tuple[Bound, ...] = ("compute", "memory", "network", "launch")


@dataclass(frozen=True, slots=True)
class Cost:
    """Totals of an operator over all its executions in a phase."""

    time_s: Quantity = 0.0
    low_s: Quantity = 0.0
    high_s: Quantity = 0.0
    roof_s: Quantity = 0.0
    flops: Quantity = 0
    weight_bytes: Quantity = 0
    cache_bytes: Quantity = 0
    activation_bytes: Quantity = 0
    wire_bytes: Quantity = 0
    compute_bound_s: Quantity = 0.0
    memory_bound_s: Quantity = 0.0
    network_bound_s: Quantity = 0.0
    launch_bound_s: Quantity = 0.0
    launches: Quantity = 0
    """Kernels started."""
    graph_saves_s: Quantity = 0.0
    """What starting them in captured graphs saves, or would save, against one by one."""
    reread_bytes: Quantity = 0.0
    """Device-memory traffic beyond ``bytes``: keys and values that tiles read again."""

    def __add__(self, other: Cost) -> Cost:
        """Field by field.

        Intervals add up end by end: the errors of one device's kernels are shared (the same
        calibration made them), so they don't average out.
        """
        return Cost(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Cost)}
        )

    def scaled(self, time: Quantity, work: Quantity) -> Cost:
        """Times multiplied by ``time``, FLOPs and bytes by ``work``."""
        factor = {f.name: time if f.name.endswith("_s") else work for f in fields(Cost)}
        return Cost(**{name: getattr(self, name) * by for name, by in factor.items()})

    @property
    def bytes(self) -> Quantity:
        """Device-memory traffic."""
        return self.weight_bytes + self.cache_bytes + self.activation_bytes

    @property
    def arithmetic_intensity(self) -> Quantity:
        """FLOPs per byte of device memory."""
        return self.flops / maximum(self.bytes, 1e-30)

    @property
    def bound(self) -> str | NDArray[np.str_]:
        """The resource that limits most of the time; an array of names for arrays."""
        times = [getattr(self, f"{name}_bound_s") for name in BOUNDS]
        if not is_array(*times):
            return BOUNDS[times.index(max(times))]
        stacked = np.stack(np.broadcast_arrays(*times))
        names: NDArray[np.str_] = np.asarray(BOUNDS)[np.argmax(stacked, axis=0)]
        return names


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One operator of a phase with its totals."""

    name: str
    count: int
    """Executions in one step."""
    shape: Shape
    """Sizes in the phase's first step."""
    arithmetic: str
    source: str
    cost: Cost
    """Totals over all executions in all steps."""
    steps: Quantity = 1
    """Steps of the phase that execute it: the chunks of a chunked prefill."""
    operator: Operator | None = field(default=None, repr=False, compare=False)
    """What was counted; None for time that no operator takes. Sums over other steps keep that of
    the first."""


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """A phase: its operators, and their sum."""

    operators: tuple[OperatorCost, ...]
    total: Cost

    @property
    def assumed_share(self) -> Quantity:
        """Share of the time that rests on assumed shares of the datasheet, not on a fit."""
        assumed = sum(o.cost.time_s for o in self.operators if o.source == "assumed")
        return assumed / self.total.time_s


def total_of(value: Quantity, count: int, mask: Array | None) -> Quantity:
    """Total of one execution's ``value``: times ``count``, and over a trailing axis of steps."""
    if mask is None:
        return count * value
    return as_quantity(count * (np.asarray(value, dtype=np.float64) * mask).sum(axis=-1))


def _first_step(shape: Shape) -> Shape:
    """The sizes of the first step where arrays have a trailing axis of steps."""
    return {
        name: as_quantity(size[..., 0]) if isinstance(size, np.ndarray) else size
        for name, size in shape.items()
    }


def _steps(mask: Array) -> Quantity:
    total = mask.sum(axis=-1)
    return as_quantity(total) if np.ndim(total) else int(total)


def operator_cost(operator: Operator, kernel: KernelTime, mask: Array | None) -> OperatorCost:
    """Total a priced operator. ``mask`` (…, steps): which steps of a trailing axis take place."""
    limits = bound_times(kernel)
    values = {
        "time_s": kernel.time_s,
        "low_s": kernel.low_s,
        "high_s": kernel.high_s,
        "roof_s": kernel.roof_s,
        "flops": operator.flops,
        "weight_bytes": operator.weight_bytes,
        "cache_bytes": operator.cache_bytes,
        "activation_bytes": operator.activation_bytes,
        "wire_bytes": operator.wire_bytes,
        "launches": kernel.launches,
        "graph_saves_s": kernel.saves_s,
        "reread_bytes": kernel.reread_bytes,
    } | {f"{name}_bound_s": seconds for name, seconds in limits.items()}
    totals = {name: total_of(value, operator.count, mask) for name, value in values.items()}
    return OperatorCost(
        name=operator.name,
        count=operator.count,
        shape=operator.shape if mask is None else _first_step(operator.shape),
        arithmetic=operator.arithmetic,
        source=kernel.source,
        cost=Cost(**totals),
        steps=1 if mask is None else _steps(mask),
        operator=operator,
    )


def phase_cost(
    operators: Iterable[Operator],
    device: Device,
    mask: Array | None = None,
    host: HostTime | None = None,
    overlap: float = 0.0,
    transfer: Transfer | None = None,
) -> PhaseCost:
    """Price and sum the operators of a phase, the host's time in each step of it, and transfers.

    ``overlap``: the share of the exchanges that may run behind other kernels (`exposed`).
    """
    priced = [(operator, sent(operator, device.time(operator))) for operator in operators]
    return sum_cost(exposed(priced, overlap), mask, host, transfer)


def sum_cost(
    priced: Iterable[tuple[Operator, KernelTime]],
    mask: Array | None = None,
    host: HostTime | None = None,
    transfer: Transfer | None = None,
) -> PhaseCost:
    """Sum priced operators, with the host's time in each step and what each step transfers."""
    rows = []
    step_s: Quantity = 0.0
    launches: Quantity = 0
    for operator, kernel in priced:
        step_s = step_s + operator.count * kernel.time_s
        launches = launches + operator.count * kernel.launches
        rows.append(operator_cost(operator, kernel, mask))
    if host is not None:
        rows.append(_host_cost(host, step_s, launches, mask))
    if transfer is not None:
        rows.append(_transfer_cost(transfer, step_s, mask))
    return PhaseCost(tuple(rows), sum((row.cost for row in rows), Cost()))


def _host_cost(
    host: HostTime, step_s: Quantity, launches: Quantity, mask: Array | None
) -> OperatorCost:
    seconds = total_of(host.added_s(step_s, launches), 1, mask)
    spread = host.host.spread
    cost = Cost(
        time_s=seconds, low_s=seconds / spread, high_s=seconds * spread, launch_bound_s=seconds
    )
    shape: Shape = {"layers": host.layers, "sequences": host.sequences}
    return OperatorCost(
        name=HOST_ROW,
        count=1,
        shape=shape if mask is None else _first_step(shape),
        arithmetic="none",
        source=f"engine {host.engine}",
        cost=cost,
    )


def _transfer_cost(transfer: Transfer, step_s: Quantity, mask: Array | None) -> OperatorCost:
    seconds = total_of(transfer.added_s(step_s), 1, mask)
    moved = total_of(transfer.bytes, 1, mask)
    shape: Shape = {"kv_in": transfer.kv_in, "kv_out": transfer.kv_out,
                    "weights_in": transfer.weights_in}  # fmt: skip
    cost = Cost(
        time_s=seconds,
        low_s=seconds,
        high_s=SLOWEST * seconds,
        roof_s=seconds,
        wire_bytes=moved,
        network_bound_s=seconds,
    )
    return OperatorCost(
        name=TRANSFER_ROW,
        count=1,
        shape=shape if mask is None else _first_step(shape),
        arithmetic="none",
        source="assumed",
        cost=cost,
        steps=1 if mask is None else _steps(mask),
    )


def mean(first: PhaseCost, second: PhaseCost, share: Quantity) -> PhaseCost:
    """The same operators at other sizes, ``share`` of the time as ``first``, else as ``second``."""

    def between(a: Quantity, b: Quantity) -> Quantity:
        return share * a + (1 - share) * b

    def blend(a: Cost, b: Cost) -> Cost:
        return Cost(**{f.name: between(getattr(a, f.name), getattr(b, f.name))
                       for f in fields(Cost)})  # fmt: skip

    rows = tuple(
        replace(
            a,
            shape={name: between(size, b.shape[name]) for name, size in a.shape.items()},
            cost=blend(a.cost, b.cost),
            steps=between(a.steps, b.steps),
        )
        for a, b in zip(first.operators, second.operators, strict=True)
    )
    return PhaseCost(rows, blend(first.total, second.total))


def add(first: PhaseCost, second: PhaseCost) -> PhaseCost:
    """The same operators over further steps."""
    rows = tuple(
        replace(a, cost=a.cost + b.cost, steps=a.steps + b.steps)
        for a, b in zip(first.operators, second.operators, strict=True)
    )
    return PhaseCost(rows, first.total + second.total)


def join(first: PhaseCost, second: PhaseCost) -> PhaseCost:
    """Two parts of a phase that follow each other."""
    return PhaseCost(first.operators + second.operators, first.total + second.total)
