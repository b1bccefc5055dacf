"""Time that the engine's host adds to a step beside the kernels on the device."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.operators.quantity import Quantity, maximum
from perfmodel.specs.engine_timing import Host
from perfmodel.units import MICROSECOND

HOST_ROW = "engine.host"
"""The name of the host's row among a phase's operators."""


@dataclass(frozen=True, slots=True)
class HostTime:
    """The host's part in each step of a phase."""

    host: Host
    engine: str
    layers: int
    sequences: Quantity
    issue_s: Quantity = 0.0
    """Seconds that the host needs to issue a kernel, where it runs ahead of the device."""
    fixed: bool = True
    """False for a part of a step whose fixed time is counted with another part."""

    @property
    def serial_s(self) -> Quantity:
        """What no kernel overlaps."""
        h = self.host
        layers = h.layer_us * self.layers
        if not self.fixed:
            return MICROSECOND * h.speed * layers
        return MICROSECOND * h.speed * (h.step_us + layers + h.sequence_us * self.sequences)

    @property
    def floor_s(self) -> float:
        """The shortest step."""
        h = self.host
        fixed = h.floor_us if self.fixed else 0.0
        return MICROSECOND * h.speed * (fixed + h.floor_layer_us * self.layers)

    def added_s(self, kernels_s: Quantity, launches: int = 0) -> Quantity:
        """Seconds beside ``kernels_s``: the step takes max(kernels + serial, floor).

        Issuing the step's ``launches`` is a floor too.
        """
        floor = maximum(self.floor_s, self.issue_s * launches)
        return maximum(self.serial_s, floor - kernels_s)
