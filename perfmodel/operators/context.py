"""What the walk from a model to its operators carries along, and the operators it shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from perfmodel.operators.communication import compressed
from perfmodel.operators.format_bytes import Formats, matrix_bytes
from perfmodel.operators.fusion import After, Fusion
from perfmodel.operators.masks import Branches
from perfmodel.operators.quantity import Quantity, ceil_div
from perfmodel.operators.record import (
    Collective,
    CollectiveKind,
    Elementwise,
    Gemm,
    Operator,
    PartOf,
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
    branches: Branches = ()
    """Where the new tokens are in a tree instead of a row; see `masks.branched`."""

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


def of_part(operators: Iterable[Operator]) -> Iterator[Operator]:
    """``operators`` as those of one part of the step."""
    for operator in operators:
        yield replace(operator, per_part=True)


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
    fusion: Fusion = "engine"
    """Which elementwise passes share a kernel."""
    count: int = 1
    """How often the block being walked stands in the model."""

    @property
    def tokens(self) -> Quantity:
        """Tokens that pass through this GPU's layers: the fullest rank's of a split prompt."""
        ranks = self.parallel.cp
        if ranks == 1:
            return self.step.tokens
        first, *others = (
            part.tokens if part.phase == "decode" else part.sequences * ceil_div(part.new, ranks)
            for part in self.step.parts
        )
        return sum(others, first)

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

    def written_bytes(self, weight: Weight) -> float:
        """Bytes of an element that an elementwise pass writes for ``weight`` alone to read.

        Fully fused, it writes what the product takes.
        """
        products = {product for product, _ in self.formats.parts(weight)}
        if self.fusion != "full" or len({product.inputs for product in products}) > 1:
            return HALF
        return min(product.input_bytes for product in products)

    def linear(
        self,
        weight: Weight,
        rows: Quantity | None = None,
        *,
        shares: Weight | None = None,
        after: After = "pass",
    ) -> Iterator[Operator]:
        """A linear layer over ``rows`` (default: all tokens), its input quantised before.

        ``shares``: a weight that takes the same input; it is quantised once for both. A fused
        matrix whose modules are stored differently is as many products. ``after``: what made the
        input: an elementwise pass, which quantises it too where all is fused (``written`` when
        it wrote `written_bytes`), or a kernel that doesn't.
        """
        m = self.tokens if rows is None else rows
        parts = self.formats.parts(weight)
        shared = self.formats.parts(shares) if shares else ()
        ready = {product.inputs for product, _ in shared if product.quantises_inputs}
        joined = self.fusion == "full" and after != "kernel"
        if joined and after == "written" and self.written_bytes(weight) < HALF:
            ready |= {product.inputs for product, _ in parts if product.quantises_inputs}
        bias = HALF * weight.bias
        for product, columns in parts:
            name = weight.name if len(parts) == 1 else f"{weight.name}.{product.stored.name}"
            if product.quantises_inputs and product.inputs not in ready:
                ready.add(product.inputs)
                yield self.elementwise(
                    f"{name}.quantise",
                    0.0 if joined else HALF * weight.rows,
                    product.input_bytes * weight.rows,
                    m,
                    part_of="joined" if joined else "quantise",
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
        part_of: PartOf = "",
    ) -> Elementwise:
        """An elementwise pass; ``read`` and ``write`` are bytes per token."""
        return Elementwise(
            name=name,
            count=self.count,
            arithmetic=self.formats.base_arithmetic,
            tokens=self.tokens if tokens is None else tokens,
            read_bytes=read,
            write_bytes=write,
            weight_bytes=weight_bytes,
            part_of=part_of,
        )

    def gated(
        self, name: str, width: int, into: Weight, weight_bytes: float = 0.0
    ) -> Iterator[Operator]:
        """A function of one row of ``width`` times another, for ``into`` to read.

        Unfused, the function writes its row before the product.
        """
        if self.fusion == "none":
            yield self.elementwise(f"{name}.function", HALF * width, HALF * width)
        yield self.elementwise(
            name, 2 * HALF * width, self.written_bytes(into) * width, weight_bytes=weight_bytes
        )

    def collective(
        self,
        name: str,
        kind: CollectiveKind,
        message_bytes: Quantity,
        ranks: int,
        span: int,
        near: int = 1,
        stages: int = 0,
    ) -> Collective:
        """An exchange; ``span``, ``near`` and ``stages`` as of `Collective`."""
        return Collective(
            name=name,
            count=self.count,
            kind=kind,
            message_bytes=message_bytes,
            ranks=ranks,
            span=span,
            near=near,
            stages=stages,
        )

    def sent(self, exchange: Collective, sent_bytes: float = HALF) -> Iterator[Operator]:
        """``exchange`` of hidden rows, ``sent_bytes`` an element, in the deployment's format."""
        stored = self.formats.communication
        yield from compressed(exchange, stored, self.hidden, self.elementwise, sent_bytes)

    def across_tp(self, name: str, kind: CollectiveKind, message: Quantity) -> Iterator[Operator]:
        """An exchange of hidden rows by the tensor-parallel ranks; none for one rank."""
        tp = self.parallel.tp
        if tp > 1:
            exchange = self.collective(f"{name}.{kind}", kind, message, tp, tp, near=tp)
            yield from self.sent(exchange)

    def all_gather(self, name: str) -> Iterator[Operator]:
        """All tokens on every tensor-parallel rank, from ranks that hold their share each."""
        yield from self.across_tp(name, "all_gather", HALF * self.hidden * self.tokens)

    def all_reduce(self, name: str) -> Iterator[Operator]:
        """The sum over the tensor-parallel ranks of what a row-parallel layer produced.

        With sequence parallelism each rank gets the sum of its share of the tokens, and all get
        all of them back before the next layer: the same bytes, in two exchanges.
        """
        message = HALF * self.hidden * self.tokens
        if self.parallel.sequence_parallel:
            yield from self.across_tp(name, "reduce_scatter", message)
            yield from self.across_tp(name, "all_gather", message)
        else:
            yield from self.across_tp(name, "all_reduce", message)
