"""What pricing an operator gives: seconds with their interval, parts, and the limit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from perfmodel.operators.quantity import Quantity, maximum, where
from perfmodel.units import MICROSECOND

Bound = Literal["compute", "memory", "network", "launch"]
QUANTITIES = ("time_s", "low_s", "high_s", "compute_s", "memory_s", "network_s", "roof_s")
"""The fields that a kernel's size decides."""

LATENCY_BOUND = 3.0
"""A measured kernel that takes longer than so many roofs is limited by neither arithmetic nor
memory, but by its start and its latencies: it counts as launch-bound."""
LATENCY_S = 50 * MICROSECOND
"""No start takes longer: a slower kernel far above its roof is a poor kernel, not a latency."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Seconds of one execution, with the parts that it is the larger of.

    ``time_s`` = max(compute_s, memory_s, network_s) + launch_s. The interval is where about nine
    of ten true times lie; its lower end never passes under the roof.
    """

    time_s: Quantity
    low_s: Quantity
    high_s: Quantity
    compute_s: Quantity
    memory_s: Quantity
    network_s: Quantity
    launch_s: Quantity
    roof_s: Quantity
    """The same work at the datasheet's peaks: no device does it faster."""
    source: str
    """Where the number comes from: datasheet and the origin of the calibration."""
    latency_s: Quantity | None = None
    """Time that is neither arithmetic nor traffic, where it limits; None: the launch."""
    launches: Quantity = 1
    """Kernels started: 0 for a pass inside another kernel."""
    saves_s: Quantity = 0.0
    """What starting it in a captured graph saves, or would save, against a launch by itself."""
    reread_bytes: Quantity = 0.0
    """Device-memory traffic beyond the operator's bytes: what a kernel's tiles read again."""


def bound_times(kernel: KernelTime) -> dict[Bound, Quantity]:
    """The kernel's time under the one resource that limits it, zero under the others.

    A launch limits a kernel whose own work takes less than starting it.
    """
    work = maximum(maximum(kernel.compute_s, kernel.memory_s), kernel.network_s)
    latency = kernel.launch_s if kernel.latency_s is None else kernel.latency_s
    launch = where(np.asarray(work < latency), kernel.time_s, 0.0)
    rest = kernel.time_s - launch
    network = where(kernel.network_s >= work, rest, 0.0)
    rest = rest - network
    compute = where(kernel.compute_s >= work, rest, 0.0)
    return {
        "compute": compute,
        "memory": rest - compute,
        "network": network,
        "launch": launch,
    }


def slower(first: KernelTime, second: KernelTime) -> KernelTime:
    """The slower of two, element by element; its source is that of ``first``."""
    behind = np.asarray(second.time_s) > np.asarray(first.time_s)
    if not np.any(behind):
        return first
    taken: dict[str, Any] = {
        n: where(behind, getattr(second, n), getattr(first, n)) for n in QUANTITIES
    }
    latency = [k.launch_s if k.latency_s is None else k.latency_s for k in (first, second)]
    return replace(first, **taken, latency_s=where(behind, latency[1], latency[0]))


def latency(time: Quantity, roof: Quantity) -> Quantity:
    """The part of a measured time that is start and latencies: none near the roof."""
    far = np.asarray(time) > LATENCY_BOUND * roof
    return where(far, np.minimum(time, LATENCY_S), 0.0)
