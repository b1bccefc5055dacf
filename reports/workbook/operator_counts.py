"""An operator's shape as cells, and its counts as formulas over them.

A formula stands where it gives the program's own count to the last digits that numbers have
(`SAME`); elsewhere the count itself does. So a phase of several steps, or sizes that a formula
doesn't know, never show another figure than the program's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np

from perfmodel.inference.phase import OperatorCost
from perfmodel.operators.record import (
    Attention,
    Collective,
    Elementwise,
    Gemm,
    GroupedGemm,
    Operator,
    Recurrence,
)
from perfmodel.units import GIGA, MEGA
from reports.workbook.cells import NONE, Content, Formula, plain
from reports.workbook.term import Number, Term, largest, smallest, term

SAME = 1e-12
CERTAIN = 40
"""Pairs per expert from which on every expert is hit to the last digit (e^-40 < 2^-53): the power
of more of them underflows, which LibreOffice calls an error."""
Shape = dict[str, Content]
Counts = dict[str, Term]
At = Callable[[str], str]
"""The address of one of the row's cells."""
KINDS: dict[type[Operator], str] = {
    Gemm: "GEMM",
    GroupedGemm: "experts",
    Attention: "attention",
    Recurrence: "recurrence",
    Elementwise: "elementwise",
    Collective: "exchange",
}
COUNTED = ("gflop", "weight_mb", "cache_mb", "activation_mb", "wire_mb")


@dataclass(slots=True)
class Row:
    """The cells of a row that describe work, as they are filled in."""

    at: At
    cells: Shape = field(default_factory=dict)

    def put(self, key: str, value: Number) -> Term:
        """A size: a number, or a formula over others; as a term for further formulas."""
        made = term(value)
        self.cells[key] = made.formula if isinstance(value, Term) else value
        return Term(self.at(key), made.value)

    def or_count(self, key: str, formula: Number, counted: float) -> Term:
        """A formula where it gives ``counted``, else ``counted`` itself."""
        made = term(formula)
        same = math.isclose(made.value, counted, rel_tol=SAME)
        return self.put(key, made if same else counted)


def _gemm(o: Gemm, r: Row, count: Term) -> Counts:
    m, n, k = r.put("m", float(o.m)), r.put("n", o.n), r.put("k", o.k)
    copies: Number = r.put("copies", o.batch) if o.batch > 1 else 1
    matrix = n * k if o.batch == 1 else copies * n * k
    width = r.put("weight_bytes", float(o.weight_bytes) / (o.batch * o.n * o.k))
    bytes_in, bytes_out = o.input_bytes_per_element, o.output_bytes_per_element
    row = r.put("row_bytes", bytes_in * k + bytes_out * n)
    rows = m if o.batch == 1 else copies * m
    return {
        "gflop": 2 * count * m * matrix / GIGA,
        "weight_mb": count * matrix * width / MEGA,
        "activation_mb": count * rows * row / MEGA,
    }


def _experts(o: GroupedGemm, r: Row, count: Term) -> Counts:
    x = o.layer
    tokens, k_of = r.put("tokens", float(x.tokens)), r.put("top_k", x.top_k)
    experts = r.put("experts", x.experts)
    ranks = r.put("ranks", x.ep)
    m = r.or_count("m", tokens * k_of / ranks, float(o.rows))
    enough = smallest(tokens, CERTAIN * experts / k_of)
    hit = experts * (1 - (1 - k_of / experts) ** enough) / ranks
    active = r.or_count("active_experts", hit, float(o.active_experts))
    n, k = r.put("n", o.n), r.put("k", o.k)
    each = float(o.weight_bytes) / float(o.active_experts) / (o.n * o.k)
    width = r.put("weight_bytes", each)
    row = r.put("row_bytes", o.input_bytes_per_element * k + o.output_bytes_per_element * n)
    return {
        "gflop": 2 * count * m * n * k / GIGA,
        "weight_mb": count * active * n * k * width / MEGA,
        "activation_mb": count * m * row / MEGA,
    }


def _pairs(o: Attention, queries: Term, context: Term, r: Row) -> Number:
    """(query, key) pairs of a causal mask, under a window where there is one."""
    cached = context - queries
    if o.window is None:
        return queries * cached + queries * (queries + 1) / 2
    window = Term(r.at("window"), o.window)
    growing = largest(0, smallest(window - cached, queries))
    return growing * cached + growing * (growing + 1) / 2 + (queries - growing) * window


def _attention(o: Attention, r: Row, count: Term) -> Counts:
    sequences, queries = r.put("sequences", float(o.sequences)), r.put("m", float(o.queries))
    context = r.put("context", float(o.context))
    if o.window is not None:
        window = r.put("window", o.window)
        kept = smallest(context, window + queries - 1)
    else:
        kept = context
    keys = r.or_count("keys", kept, float(o.keys))
    pairs = r.or_count("pairs", _pairs(o, queries, context, r), float(o.pairs))
    heads, width = r.put("heads", o.heads), r.put("head_width", o.qk_dim + o.value_dim)
    read = float(o.cache_bytes) / max(float(o.sequences * o.keys), 1.0)
    key = r.put("key_bytes", read)
    passes = 2 * heads * width
    row = r.put("row_bytes", passes if o.fused else passes + 8 * heads * keys)
    return {
        "gflop": 2 * count * heads * width * pairs * sequences / GIGA,
        "cache_mb": count * key * keys * sequences / MEGA,
        "activation_mb": count * row * queries * sequences / MEGA,
    }


def _recurrence(o: Recurrence, r: Row, count: Term) -> Counts:
    sequences, queries = r.put("sequences", float(o.sequences)), r.put("m", float(o.queries))
    flops = r.put("token_flops", o.flops_per_token)
    state = r.put("key_bytes", float(o.state_bytes))
    passes = 1 + float(o.states_kept)
    row = r.put("row_bytes", 2 * o.io_elements)
    return {
        "gflop": count * flops * queries * sequences / GIGA,
        "cache_mb": passes * count * state * sequences / MEGA,
        "activation_mb": count * row * queries * sequences / MEGA,
    }


def _elementwise(o: Elementwise, r: Row, count: Term) -> Counts:
    m, row = r.put("m", float(o.tokens)), r.put("row_bytes", o.read_bytes + o.write_bytes)
    return {"activation_mb": count * m * row / MEGA}


def _collective(o: Collective, r: Row, count: Term) -> Counts:
    message, ranks = r.put("message_bytes", float(o.message_bytes)), r.put("ranks", o.ranks)
    sent = message
    if o.kind != "send_recv":
        passes = 2 if o.kind == "all_reduce" else 1
        sent = passes * (ranks - 1) / ranks * message
    return {
        "activation_mb": 2 * count * message / MEGA,
        "wire_mb": count * sent / MEGA,
    }


_COUNTS: dict[type[Operator], Callable[..., Counts]] = {
    Gemm: _gemm,
    GroupedGemm: _experts,
    Attention: _attention,
    Recurrence: _recurrence,
    Elementwise: _elementwise,
    Collective: _collective,
}


def _totals(row: OperatorCost) -> dict[str, float]:
    cost = row.cost
    return {
        "gflop": float(cost.flops) / GIGA,
        "weight_mb": float(cost.weight_bytes) / MEGA,
        "cache_mb": float(cost.cache_bytes) / MEGA,
        "activation_mb": float(cost.activation_bytes) / MEGA,
        "wire_mb": float(cost.wire_bytes) / MEGA,
    }


def kind_of(row: OperatorCost) -> str:
    """What sort of operator it is; nothing for time that no operator takes."""
    return NONE if row.operator is None else KINDS[type(row.operator)]


def _several(operator: Operator) -> bool:
    """Whether its sizes are those of several steps."""
    return any(isinstance(getattr(operator, f.name), np.ndarray) for f in fields(operator))


def _first_sizes(row: OperatorCost) -> Shape:
    """The sizes of a phase's first step, as far as there are columns for them."""
    names = {"queries": "m", "rows": "m", "tokens": "m", "batch": "copies"}
    return {names.get(name, name): plain(size) for name, size in row.shape.items()}


def counted(row: OperatorCost, at: At) -> Shape:
    """The shape and counts of an operator, by the name of their column."""
    cells = Row(at)
    found: Counts = {}
    if row.operator is not None and _several(row.operator):
        cells.cells |= _first_sizes(row)
    elif row.operator is not None:
        count = Term(at("count"), float(row.count) * float(row.steps))
        found = _COUNTS[type(row.operator)](row.operator, cells, count)
    totals = _totals(row)
    for key, total in totals.items():
        formula = found.get(key)
        same = formula is not None and math.isclose(formula.value, total, rel_tol=SAME)
        # The program's count stands in the file, not the formula's, which may differ by rounding.
        cells.cells[key] = Formula(formula.text, total) if same and formula is not None else total
    return cells.cells
