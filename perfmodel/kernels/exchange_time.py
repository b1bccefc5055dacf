"""Exchanges that no measured set covers: over links inside a node, over the network between."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from perfmodel.kernels.kernel_time import KernelTime
from perfmodel.kernels.network import between_nodes, mixed
from perfmodel.operators.quantity import maximum
from perfmodel.operators.record import Collective
from perfmodel.units import MICROSECOND

if TYPE_CHECKING:
    from perfmodel.kernels.calibration_file import LoadedSet
    from perfmodel.kernels.timing import DeviceModel


STAGED = 0.5
"""Where a fitted rate of 8 ranks is less than this share of that of 2, all messages pass the
memory of a host, which the ranks share: its devices don't reach each other."""


def of_another_machine(device: DeviceModel, operator: Collective, found: LoadedSet | None) -> bool:
    """Whether a set was measured without peer access, and the device has it.

    NVIDIA's L40S were: 20 GB/s for 2 ranks, under 2 for 8, where served models exchange as quickly
    as PCIe lets them (docs/served-published.md). For two ranks either way is about as quick.
    """
    if found is None or operator.ranks <= 2 or not device.hardware.peer_access:
        return False
    rates = found.kernels.values
    return rates.get("rate_8", inf) < STAGED * rates.get("rate_2", 0.0)


def exchange_time(device: DeviceModel, operator: Collective) -> KernelTime:
    """Seconds of one exchange, by phases where it spans nodes."""
    if operator.stages:
        return _hand_over(device, operator)
    _, inside = device.wire_rate(operator.span)
    if inside or operator.ranks_inside(device.network.node) == 1:
        return _flat(device, operator)
    return between_nodes(operator, device.network, device.time)


def _hand_over(device: DeviceModel, operator: Collective) -> KernelTime:
    """A send from stage to stage: inside a node, between nodes, or some of each."""
    node = device.network.node
    share = operator.hops_between(node)
    near = min(2 * operator.span // operator.stages, node)
    ways = [replace(operator, span=span, stages=0) for span in (near, 2 * node)]
    if share in {0.0, 1.0}:
        return _flat(device, ways[int(share)])
    return mixed(_flat(device, ways[0]), _flat(device, ways[1]), share)


def _flat(device: DeviceModel, operator: Collective) -> KernelTime:
    """All ranks over the same wire, at its assumed share and latency."""
    rate, inside = device.wire_rate(operator.span)
    memory = operator.bytes / device.hardware.memory_bandwidth
    network = operator.wire_bytes / rate
    roof = maximum(network, memory)
    if device.calibration is None:
        return device.combine(0.0, memory, network, roof, 1.0)
    own = device.calibration.collective
    share = own.link if inside else own.network
    latency = MICROSECOND * (own.link_latency_us if inside else own.network_latency_us)
    return device.combine(0.0, memory, network / share + latency, roof, own.spread)
