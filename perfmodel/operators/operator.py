"""What every operator of a step says of itself: its name, its count, its exact FLOPs and bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from perfmodel.operators.quantity import Quantity
from perfmodel.specs.formats import Arithmetic

Shape = dict[str, Quantity]


@dataclass(frozen=True, kw_only=True)
class Operator(ABC):
    """One operator of a step on one GPU."""

    name: str
    count: int = 1
    """Executions in the step."""
    arithmetic: Arithmetic = "bf16"
    """The multiply-add that is run."""
    weight_bytes: Quantity = 0
    """Weights read, scales included."""
    weight_format: str = "bf16"
    """The weights' number format."""
    per_part: bool = False
    """Runs for one of the groups of sequences in a step (`context.Step.beside`), and sizes follow
    from that group's; others run once over the tokens of all."""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The sizes that a reader needs to recognise the operator."""

    @property
    def flops(self) -> Quantity:
        """FLOPs of one execution."""
        return 0

    @property
    def cache_bytes(self) -> Quantity:
        """KV cache or recurrent state read and written."""
        return 0

    @property
    @abstractmethod
    def activation_bytes(self) -> Quantity:
        """Activations read and written."""

    @property
    def wire_bytes(self) -> Quantity:
        """Bytes that this GPU sends over its link."""
        return 0

    @property
    def bytes(self) -> Quantity:
        """Device-memory traffic of one execution."""
        return self.weight_bytes + self.cache_bytes + self.activation_bytes
