"""What the walk from a model to its operators carries along, and the operators it shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from perfmodel.operators.format_bytes import Formats, matrix_bytes
from perfmodel.operators.quantity import Quantity
from perfmodel.operators.record import (
    Collective,
    CollectiveKind,
    Elementwise,
    Gemm,
    Operator,
    Phase,
)
from perfmodel.operators.sharding import Parallel
from perfmodel.operators.weights import Weight
from perfmodel.specs.model import Norm, Scheme

HALF = 2.0
"""Bytes of an activation element between kernels."""


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass of a replica: ``new`` tokens in each sequence after ``cached`` ones."""

    phase: Phase
    sequences: Quantity
    new: Quantity
    cached: Quantity
    logits: Quantity = 1
    """Tokens per sequence whose logits are computed."""
    kept: int | None = None
    """Earlier tokens that full attention still finds in the cache at most; None: all of them."""
    beside: tuple[Step, ...] = ()
    """Other sequences that take part in the step: linear layers run once over the tokens of all,
    attention and recurrences once for each."""

    @property
    def parts(self) -> tuple[Step, ...]:
        """The sequences of the step in groups that are alike."""
        return (replace(self, beside=()), *self.beside) if self.beside else (self,)

    @property
    def tokens(self) -> Quantity:
        """Tokens that pass through the layers."""
        own = self.sequences * self.new
        return own if not self.beside else sum((part.tokens for part in self.beside), own)

    @property
    def logit_rows(self) -> Quantity:
        """Tokens whose logits are computed."""
        own = self.sequences * self.logits
        return own if not self.beside else sum((part.logit_rows for part in self.beside), own)


@dataclass(frozen=True, slots=True)
class Context:
    """A step, the deployment's formats and layout, and where in the model the walk is."""

    step: Step
    formats: Formats
    parallel: Parallel
    hidden: int
    norm: Norm
    fused_attention: bool = True
    state_dtype: str = "bf16"
    """The format of recurrent states."""
    count: int = 1
    """How often the block being walked stands in the model."""

    def times(self, count: int) -> Context:
        """The same context for a block that stands ``count`` times in the model."""
        return replace(self, count=count)

    def parts(self) -> Iterator[Context]:
        """The same context for each part of the step: what runs once for each."""
        for part in self.step.parts:
            yield self if part is self.step else replace(self, step=part)

    def storing(self, stored: tuple[tuple[str, Scheme], ...]) -> Context:
        """The same context in a block whose modules are ``stored`` otherwise than their roles."""
        return replace(self, formats=self.formats.at(stored))

    def vectors(self, *weights: Weight) -> float:
        """Bytes of small unquantised tensors."""
        return HALF * sum(weight.elements for weight in weights)

    def weight_bytes(self, weight: Weight) -> float:
        """Stored bytes of a weight, biases in 16 bits."""
        return self.formats.weight_bytes(weight)

    def linear(
        self, weight: Weight, rows: Quantity | None = None, *, shares: Weight | None = None
    ) -> Iterator[Operator]:
        """A linear layer over ``rows`` (default: all tokens), its input quantised before.

        ``shares``: a weight that takes the same input; it is quantised once for both. A fused
        matrix whose modules are stored differently is as many products.
        """
        m = self.step.tokens if rows is None else rows
        parts = self.formats.parts(weight)
        shared = self.formats.parts(shares) if shares else ()
        ready = {product.inputs for product, _ in shared if product.quantises_inputs}
        bias = HALF * weight.bias
        for product, columns in parts:
            name = weight.name if len(parts) == 1 else f"{weight.name}.{product.stored.name}"
            if product.quantises_inputs and product.inputs not in ready:
                ready.add(product.inputs)
                yield self.elementwise(
                    f"{name}.quantise",
                    HALF * weight.rows,
                    product.input_bytes * weight.rows,
                    m,
                    part_of="quantise",
                )
            yield Gemm(
                name=name,
                count=self.count,
                arithmetic=product.arithmetic,
                weight_bytes=matrix_bytes(product.stored, weight.rows, columns) + bias,
                weight_format=product.stored.name,
                m=m,
                n=columns,
                k=weight.rows,
                input_bytes_per_element=product.input_bytes,
            )
            bias = 0.0

    def elementwise(
        self,
        name: str,
        read: float,
        write: float,
        tokens: Quantity | None = None,
        weight_bytes: float = 0.0,
        part_of: Literal["", "experts", "quantise"] = "",
    ) -> Elementwise:
        """An elementwise pass; ``read`` and ``write`` are bytes per token."""
        return Elementwise(
            name=name,
            count=self.count,
            arithmetic=self.formats.base_arithmetic,
            tokens=self.step.tokens if tokens is None else tokens,
            read_bytes=read,
            write_bytes=write,
            weight_bytes=weight_bytes,
            part_of=part_of,
        )

    def collective(
        self, name: str, kind: CollectiveKind, message_bytes: Quantity, ranks: int, span: int
    ) -> Collective:
        """An exchange; ``span`` GPUs lie between the first and the last rank."""
        return Collective(
            name=name,
            count=self.count,
            kind=kind,
            message_bytes=message_bytes,
            ranks=ranks,
            span=span,
        )

    def all_gather(self, name: str) -> Iterator[Operator]:
        """All tokens on every tensor-parallel rank, from ranks that hold their share each."""
        tp = self.parallel.tp
        if tp > 1:
            message = HALF * self.hidden * self.step.tokens
            yield self.collective(f"{name}.all_gather", "all_gather", message, tp, tp)

    def all_reduce(self, name: str) -> Iterator[Operator]:
        """The sum over the tensor-parallel ranks of what a row-parallel layer produced."""
        tp = self.parallel.tp
        if tp > 1:
            message = HALF * self.hidden * self.step.tokens
            yield self.collective(f"{name}.all_reduce", "all_reduce", message, tp, tp)
