"""What pricing an operator gives: seconds with their interval, parts, and the limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfmodel.operators.quantity import Quantity, maximum, where

Bound = Literal["compute", "memory", "network", "launch"]


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
    launches: int = 1
    """Kernels started: 0 for a pass inside another kernel."""
    saves_s: float = 0.0
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
