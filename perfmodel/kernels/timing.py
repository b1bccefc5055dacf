"""Operators in, seconds out: the roof of a device under its calibration.

This is the one interface between work and time. A better model of a family replaces the body of
`DeviceModel.time` for that family; what calls it sees `KernelTime` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perfmodel.errors import InputError
from perfmodel.kernels.calibration import Calibration
from perfmodel.operators.quantity import Quantity, maximum, where
from perfmodel.operators.record import Collective, Elementwise, Operator
from perfmodel.specs.hardware import Hardware
from perfmodel.units import MICROSECOND

NODE_GPUS = 8
"""GPUs of one server, which reach each other over PCIe where no faster link joins them."""

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
    launch_s: float
    roof_s: Quantity
    """The same work at the datasheet's peaks: no device does it faster."""
    source: str
    """Where the number comes from: datasheet and the origin of the calibration."""


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """One device, its calibration (None: the bare roof), and how kernels are launched."""

    hardware: Hardware
    calibration: Calibration | None
    execution: Literal["graph", "eager"] = "graph"

    def peak(self, arithmetic: str) -> float:
        """Dense peak in FLOP/s of a multiply-add that the device has.

        Raises:
            InputError: the profile has no such peak.
        """
        peak = self.hardware.peak(arithmetic)
        if peak is None:
            raise InputError(f"{self.hardware.name}: no peak for {arithmetic} in its profile")
        return peak

    @property
    def launch_s(self) -> float:
        """Seconds that a launch adds to each kernel."""
        if self.calibration is None:
            return 0.0
        launch = self.calibration.launch
        return MICROSECOND * (launch.graph_us if self.execution == "graph" else launch.eager_us)

    def time(self, operator: Operator) -> KernelTime:
        """Seconds of one execution of ``operator``; arrays broadcast."""
        if isinstance(operator, Collective):
            return self._exchange(operator)
        # An elementwise operator counts no FLOPs: it needs no peak, whatever the chip multiplies.
        counts = not isinstance(operator, Elementwise)
        compute = operator.flops / self.peak(operator.arithmetic) if counts else 0.0
        memory = operator.bytes / self.hardware.memory_bandwidth
        if self.calibration is None:
            return self._combine(compute, memory, 0.0, maximum(compute, memory), 1.0)
        share = self.calibration.families.of(operator)
        return self._combine(
            compute / share.compute,
            memory / share.memory,
            0.0,
            maximum(compute, memory),
            share.spread,
        )

    def wire_rate(self, span: int) -> tuple[float, bool]:
        """Bytes/s per direction between ``span`` neighbouring GPUs; whether one node holds them.

        Over the link inside its domain, over PCIe inside a server, else over the network.

        Raises:
            InputError: the profile lacks the way that is needed.
        """
        hardware = self.hardware
        if span <= hardware.link_domain:
            return hardware.link_bandwidth, True
        if span <= NODE_GPUS:
            if hardware.pcie_bandwidth is None:
                raise InputError(
                    f"{hardware.name}: {span} GPUs need a way to each other, and the profile has "
                    "neither a link for so many nor pcie.gb_s_per_direction"
                )
            return hardware.pcie_bandwidth, True
        if hardware.network_bandwidth is None:
            raise InputError(
                f"{hardware.name}: {span} GPUs span several nodes, and the profile has no "
                "network.gb_s_per_gpu"
            )
        return hardware.network_bandwidth, False

    def _exchange(self, operator: Collective) -> KernelTime:
        rate, inside = self.wire_rate(operator.span)
        memory = operator.bytes / self.hardware.memory_bandwidth
        network = operator.wire_bytes / rate
        roof = maximum(network, memory)
        if self.calibration is None:
            return self._combine(0.0, memory, network, roof, 1.0)
        own = self.calibration.collective
        share = own.link if inside else own.network
        latency = MICROSECOND * (own.link_latency_us if inside else own.network_latency_us)
        return self._combine(0.0, memory, network / share + latency, roof, own.spread)

    def _combine(
        self, compute: Quantity, memory: Quantity, network: Quantity, roof: Quantity, spread: float
    ) -> KernelTime:
        time = maximum(maximum(compute, memory), network) + self.launch_s
        return KernelTime(
            time_s=time,
            low_s=maximum(time / spread, roof),
            high_s=time * spread,
            compute_s=compute,
            memory_s=memory,
            network_s=network,
            launch_s=self.launch_s,
            roof_s=roof,
            source="datasheet roof" if self.calibration is None else self.calibration.origin,
        )


def bound_times(kernel: KernelTime) -> dict[Bound, Quantity]:
    """The kernel's time under the one resource that limits it, zero under the others.

    A launch limits a kernel whose own work takes less than starting it.
    """
    work = maximum(maximum(kernel.compute_s, kernel.memory_s), kernel.network_s)
    launch = where(work < kernel.launch_s, kernel.time_s, 0.0)
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
