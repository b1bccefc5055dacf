"""What a draft has beside the layers of a model: the join of its inputs, or Medusa's heads."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.operators.context import HALF, Context
from perfmodel.operators.quantity import ceil_div
from perfmodel.operators.record import Operator
from perfmodel.operators.sharding import Parallel
from perfmodel.operators.weights import Weight, norm_elements
from perfmodel.specs.model import Model


def join_weights(model: Model, joined: int, norms: int) -> Iterator[Weight]:
    """The matrix that joins embedding and hidden state to one input, and the norms of these.

    DeepSeek-V3's MTP modules (arXiv 2412.19437, section 2.2) and EAGLE (arXiv 2401.15077) have it
    2·hidden → hidden; every tensor-parallel rank holds it whole.
    """
    yield Weight("join", "router", joined * model.hidden, model.hidden)
    if norms:
        yield Weight("join_norms", "vector", 1, norms * norm_elements(model.norm, model.hidden))


def join_operators(model: Model, joined: int, norms: int, c: Context) -> Iterator[Operator]:
    """The norms of both inputs, and the matrix over all tokens of the step."""
    matrix, *vectors = join_weights(model, joined, norms)
    if vectors:
        row = HALF * joined * model.hidden
        yield c.elementwise("norm", row, row, weight_bytes=c.vectors(*vectors))
    yield from c.linear(matrix)


def medusa_weights(model: Model, heads: int, parallel: Parallel) -> Iterator[Weight]:
    """Medusa's heads on one rank: a residual block and a head of the vocabulary each.

    As in arXiv 2401.10774, section 2.1; the vocabulary is split over the ranks, blocks aren't.
    """
    h = model.hidden
    yield Weight("medusa.block", "linear", h, h, h, copies=heads)
    columns = int(ceil_div(model.vocab, parallel.tp))
    yield Weight("medusa.head", "head", h, columns, copies=heads)


def medusa_operators(model: Model, c: Context) -> Iterator[Operator]:
    """One head over the last accepted token of each sequence."""
    rows = c.step.sequences
    block, head = medusa_weights(model, 1, c.parallel)
    yield from c.linear(block, rows)
    row = HALF * model.hidden
    yield c.elementwise("medusa.activation", 2 * row, row, rows)
    yield from c.linear(head, rows)
    tp = c.parallel.tp
    if tp > 1:
        logits = HALF * model.vocab * rows
        yield c.collective("medusa.all_gather", "all_gather", logits, tp, tp)
    yield c.elementwise("medusa.sampling", HALF * model.vocab, 4.0, rows)
