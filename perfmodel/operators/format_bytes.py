"""Bytes of stored values in a number format, scales and zero points included."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from perfmodel.specs.formats import FORMATS, Arithmetic, NumberFormat
from perfmodel.units import BITS_PER_BYTE

BASE = FORMATS["bf16"]
"""What stays unquantised: embeddings, LM head, router, norms, activations between kernels."""


@dataclass(frozen=True, slots=True)
class Formats:
    """The number formats of one deployment, resolved against model and hardware."""

    linear: NumberFormat = BASE
    expert: NumberFormat = BASE
    head: NumberFormat = BASE
    inputs: NumberFormat = BASE
    """What quantised linear layers and experts take in."""
    cache: NumberFormat = BASE
    linear_arithmetic: Arithmetic = "bf16"
    expert_arithmetic: Arithmetic = "bf16"
    base_arithmetic: Arithmetic = "bf16"
    """Attention, router and head: fp16 on chips without bf16."""

    def of_role(self, role: str) -> NumberFormat:
        """The storage format of a weight's role."""
        return {"linear": self.linear, "expert": self.expert, "head": self.head}.get(role, BASE)

    def takes_quantised(self, role: str) -> bool:
        """Whether a role's inputs are quantised before its product: its weights must be too."""
        return self.inputs.bits < BASE.bits and self.of_role(role).bits < BASE.bits

    def arithmetic_of(self, role: str) -> Arithmetic:
        """The multiply-add that a weight's role is computed with."""
        named = {"linear": self.linear_arithmetic, "expert": self.expert_arithmetic}
        return named.get(role, self.base_arithmetic)


def matrix_bytes(number_format: NumberFormat, rows: int, columns: int) -> float:
    """Bytes of a weight matrix with ``rows`` contracted and ``columns`` produced elements.

    Blocks that the matrix only partly fills store a whole scale.

    >>> matrix_bytes(FORMATS["mxfp4"], 32, 1) * 8 / 32  # 4 + 8/32 bits per weight
    4.25
    """
    f = number_format
    bits = rows * columns * f.bits
    if f.grouping == "tensor":
        bits += f.scale_bits
    elif f.grouping == "channel":
        bits += columns * (f.scale_bits + f.zero_bits)
    elif f.grouping == "block":
        blocks = ceil(rows / f.block) * ceil(columns / f.block_rows)
        bits += blocks * (f.scale_bits + f.zero_bits)
    return bits / BITS_PER_BYTE


def vector_bytes(number_format: NumberFormat, heads: int, width: int) -> float:
    """Bytes of ``heads`` cached vectors of ``width`` elements (the keys or values of a token).

    A scale per tensor costs nothing per token; ``channel`` means one scale per token and head.
    """
    f = number_format
    bits = heads * width * f.bits
    if f.grouping == "channel":
        bits += heads * (f.scale_bits + f.zero_bits)
    elif f.grouping == "block":
        bits += heads * ceil(width / f.block) * (f.scale_bits + f.zero_bits)
    return bits / BITS_PER_BYTE
