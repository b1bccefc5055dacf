"""Bytes of stored values in a number format, scales and zero points included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from perfmodel.operators.weights import Weight
from perfmodel.specs.cache_formats import CacheFormat, as_cache
from perfmodel.specs.formats import FORMATS, Arithmetic, NumberFormat
from perfmodel.specs.model import Scheme
from perfmodel.units import BITS_PER_BYTE

BASE = FORMATS["bf16"]
"""What stays unquantised: embeddings, LM head, router, norms, activations between kernels."""
WIDE_CACHE = as_cache(BASE)


@dataclass(frozen=True, slots=True)
class Product:
    """How a matrix is stored, what enters it, and what multiplies."""

    stored: NumberFormat = BASE
    inputs: NumberFormat = BASE
    arithmetic: Arithmetic = "bf16"

    @property
    def quantises_inputs(self) -> bool:
        """Whether inputs are quantised before the product: the weights must be too."""
        return self.inputs.bits < BASE.bits and self.stored.bits < BASE.bits

    @property
    def input_bytes(self) -> float:
        """Bytes of an element of the input as the product reads it."""
        return (self.inputs if self.quantises_inputs else BASE).bits / BITS_PER_BYTE


@dataclass(frozen=True, slots=True)
class Formats:
    """The number formats of one deployment, resolved against model and hardware.

    Whether a weight is quantised, and how, is said in one place: `parts`.
    """

    roles: Mapping[str, Product] = field(default_factory=dict)
    """By role: ``linear``, ``expert``, ``head``, ``embedding``; what isn't named is in 16 bits."""
    schemes: Mapping[Scheme, Product] = field(default_factory=dict)
    """What the exceptions of layers come to; empty where the deployment overrides them."""
    modules: Mapping[str, Product] = field(default_factory=dict)
    """Exceptions from the roles in the layer being walked."""
    cache: CacheFormat = WIDE_CACHE
    communication: NumberFormat = BASE
    """What crosses links between GPUs; experts' inputs that are narrower go as they are."""
    base_arithmetic: Arithmetic = "bf16"
    """Attention, router and head: fp16 on chips without bf16."""

    def at(self, stored: tuple[tuple[str, Scheme], ...]) -> Formats:
        """The formats in a layer (or block) whose exceptions are ``stored``."""
        found = {name: self.schemes[scheme] for name, scheme in stored if scheme in self.schemes}
        return replace(self, modules=found) if found or self.modules else self

    def product(self, role: str) -> Product:
        """How the matrices of a role are stored and multiplied, exceptions apart."""
        return self.roles.get(role) or Product(arithmetic=self.base_arithmetic)

    def of_role(self, role: str) -> NumberFormat:
        """The storage format of a role's matrices, exceptions apart."""
        return self.product(role).stored

    def parts(self, weight: Weight) -> tuple[tuple[Product, int], ...]:
        """The produced columns of a weight by how they are stored.

        The modules that a fused matrix joins are one part where they are stored alike.
        """
        columns: dict[Product, int] = {}
        for module, width in weight.modules:
            product = self.modules.get(module) or self.product(weight.role)
            columns[product] = columns.get(product, 0) + width
        return tuple(columns.items())

    def of(self, weight: Weight) -> Product:
        """How a weight is stored and multiplied: its widest part."""
        return max((product for product, _ in self.parts(weight)), key=lambda p: p.stored.bits)

    def weight_bytes(self, weight: Weight) -> float:
        """Stored bytes of a weight; biases and vectors in 16 bits."""
        if weight.role == "vector":
            return BASE.bits / BITS_PER_BYTE * weight.elements
        bias = BASE.bits / BITS_PER_BYTE * weight.bias
        one = sum(matrix_bytes(p.stored, weight.rows, n) for p, n in self.parts(weight))
        return weight.copies * (one + bias)

    @property
    def linear(self) -> NumberFormat:
        """The storage format of linear layers."""
        return self.of_role("linear")

    @property
    def expert(self) -> NumberFormat:
        """The storage format of experts."""
        return self.of_role("expert")

    @property
    def head(self) -> NumberFormat:
        """The storage format of the LM head."""
        return self.of_role("head")

    @property
    def main(self) -> Product:
        """What stands for the whole: linear layers, or experts where only those are quantised."""
        linear, expert = self.product("linear"), self.product("expert")
        return expert if linear.stored.bits >= BASE.bits > expert.stored.bits else linear

    @property
    def inputs(self) -> NumberFormat:
        """What quantised layers take in."""
        return self.main.inputs

    @property
    def linear_arithmetic(self) -> Arithmetic:
        """The multiply-add of linear layers."""
        return self.product("linear").arithmetic

    @property
    def expert_arithmetic(self) -> Arithmetic:
        """The multiply-add of experts."""
        return self.product("expert").arithmetic


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

    A scale per tensor costs nothing per token; ``channel`` means one scale per token and head,
    ``token`` one for all heads. A channel's scale over ``block`` tokens costs each its share.
    """
    f = number_format
    bits = heads * width * f.bits
    if f.grouping == "channel":
        bits += heads * (f.scale_bits + f.zero_bits)
    elif f.grouping == "block":
        bits += heads * ceil(width / f.block) * (f.scale_bits + f.zero_bits)
    elif f.grouping == "token":
        bits += f.scale_bits + f.zero_bits
    elif f.grouping == "tokens":
        bits += heads * width * (f.scale_bits + f.zero_bits) / f.block
    return bits / BITS_PER_BYTE
