"""Keys, values and weights that lie outside the device: what a step moves, and how long it takes.

The links are the profile's, at their nominal rate and in both directions at once; an SSD lies
behind the host and is as fast as the user says. Bytes are those of one GPU of each pipeline stage,
as all bytes of a step are: one batch passes the stages in turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.operators.quantity import Quantity, maximum, minimum
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.units import GIB, GIGA

TRANSFER_ROW = "offload.transfer"
"""The name of the transfers' row among a phase's operators."""
SLOWEST = 1.25
"""Assumed: copies reach at least 80 % of the link's nominal rate."""
LAYERS_IN_FLIGHT = 2
"""One layer's keys are used while the next one's arrive: room for both stays on the device."""


@dataclass(frozen=True, slots=True)
class Offload:
    """What of a deployment lies outside the device, and the way there."""

    kv_share: float = 0.0
    kv_rate: float = 0.0
    """Bytes/s per direction to where keys and values lie."""
    weights_bytes: float = 0.0
    """Of each GPU."""
    weights_rate: float = 0.0
    overlap: float = 0.0
    """Share of the transfers that can run beside the kernels."""

    @property
    def active(self) -> bool:
        """Whether anything lies outside the device."""
        return self.kv_share > 0 or self.weights_bytes > 0

    def resident(self, layers: int) -> float:
        """Share of a cache of so many layers that takes room on the device.

        What isn't offloaded, and the part of the rest that is in flight.
        """
        return 1 - self.kv_share + self.kv_share * min(1.0, LAYERS_IN_FLIGHT / max(layers, 1))


def rate_to(place: str, hardware: Hardware, deployment: Deployment) -> float | None:
    """Bytes/s per direction between a GPU and the host or the SSDs; None where it isn't known."""
    rate = hardware.pcie_bandwidth
    if place == "host" or rate is None:
        return rate
    return None if deployment.ssd_gb_s is None else min(rate, GIGA * deployment.ssd_gb_s)


def offload_of(hardware: Hardware, deployment: Deployment) -> Offload:
    """The offload of a deployment that `kv_checks.check_kv_store` let pass."""
    return Offload(
        kv_share=deployment.kv_offload,
        kv_rate=rate_to(deployment.kv_offload_to, hardware, deployment) or 0.0,
        weights_bytes=GIB * deployment.cpu_offload_gb,
        weights_rate=rate_to("host", hardware, deployment) or 0.0,
        overlap=deployment.offload_overlap,
    )


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one step moves to and from the device."""

    offload: Offload
    kv_in: Quantity
    """Bytes of keys and values read."""
    kv_out: Quantity
    """Bytes of new keys and values written out."""
    weights_in: float

    @property
    def bytes(self) -> Quantity:
        """All bytes, both ways."""
        return self.kv_in + self.kv_out + self.weights_in

    @property
    def time_s(self) -> Quantity:
        """Seconds of the transfers by themselves; both directions run at once."""
        o = self.offload
        weights = self.weights_in / o.weights_rate if self.weights_in else 0.0
        kv = maximum(self.kv_in, self.kv_out) / o.kv_rate if o.kv_share else 0.0
        return weights + kv

    def added_s(self, step_s: Quantity) -> Quantity:
        """Seconds beyond a step of ``step_s``: its transfers less what runs beside it."""
        time = self.time_s
        return time - self.offload.overlap * minimum(time, step_s)
