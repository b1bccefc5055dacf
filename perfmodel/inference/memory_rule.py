"""What an engine keeps back of the device memory: one rule per way of reading its memory share.

With C the device's memory, O what driver and communication take, W weights, A the activation
peak and u the share (``--gpu-memory-utilization``), the room for the cache is

* ``total`` (vLLM): u·C − O − W − A;
* ``static`` (SGLang's mem_fraction_static): u·(C − O) − W, activations in the rest;
* ``free`` (TensorRT-LLM's free_gpu_memory_fraction): u·(C − O − W − A);
* ``free_after_weights`` (LMDeploy's cache_max_entry_count): u·(C − O − W), activations in the
  rest.

Where the rest is too small for the activations, the room is what they leave: C − O − W − A.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.operators.quantity import Quantity, maximum
from perfmodel.specs.engine import MemoryRule


@dataclass(frozen=True, slots=True)
class Reserve:
    """A device's memory under an engine's rule."""

    rule: MemoryRule
    share: float
    capacity_bytes: float
    outside_bytes: float
    """What driver and communication libraries take."""

    def reserved_bytes(self, weights: Quantity, activation: Quantity) -> Quantity:
        """Bytes that neither weights, cache nor the activation peak use."""
        kept, outside = 1 - self.share, self.outside_bytes
        if self.rule == "total":
            return kept * self.capacity_bytes + outside
        seen: Quantity = self.capacity_bytes - outside
        if self.rule == "free":
            return outside + kept * maximum(seen - weights - activation, 0.0)
        if self.rule == "free_after_weights":
            seen = maximum(seen - weights, 0.0)
        return outside + maximum(kept * seen - activation, 0.0)

    def room_bytes(self, weights: Quantity, activation: Quantity) -> Quantity:
        """What is left for the cache; negative where nothing is."""
        if self.rule == "total":
            return self.share * self.capacity_bytes - self.outside_bytes - activation - weights
        reserved = self.reserved_bytes(weights, activation)
        return self.capacity_bytes - reserved - activation - weights

    def without_logits(self, weights: Quantity, fixed: Quantity) -> tuple[Quantity, float]:
        """Room beside the part of the peak that sequences don't change, and a logit's weight in it.

        Each sequence's logits take so many times their bytes from that room.
        """
        if self.rule == "free":
            return self.room_bytes(weights, fixed), self.share
        if self.rule == "total":
            return self.room_bytes(weights, fixed), 1.0
        return self.capacity_bytes - self.outside_bytes - weights - fixed, 1.0

    def ceiling_bytes(self, weights: Quantity) -> Quantity:
        """The most that the cache gets however small the activations are."""
        return self.room_bytes(weights, 0.0)
