"""From a layer's feed-forward block to its operators. Sizes are one GPU's own."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.operators.context import HALF, Context
from perfmodel.operators.expert_routing import busiest, expected_experts
from perfmodel.operators.mixers import named
from perfmodel.operators.quantity import Quantity
from perfmodel.operators.record import ExpertLayer, GroupedGemm, Operator
from perfmodel.operators.weights import Weight, dense_weights, moe_weights
from perfmodel.specs.model import DenseFfn, MoeFfn

__all__ = ["dense_operators", "expected_experts", "moe_operators"]


def dense_operators(
    f: DenseFfn, c: Context, prefix: str = "ffn", *, shares: Weight | None = None
) -> Iterator[Operator]:
    """Up (and gate), activation, down; ``shares`` as in `Context.linear`."""
    up, down, *learned = dense_weights(f, c.hidden, prefix)
    yield from c.linear(up, shares=shares)
    constants = sum(c.vectors(weight) for weight in learned)
    name = f"{prefix}.activation"
    if f.gated:
        yield from c.gated(name, f.width, down, constants)
    else:
        written = c.written_bytes(down) * f.width
        yield c.elementwise(name, HALF * up.columns, written, weight_bytes=constants)
    yield from c.linear(down, after="written")


def _grouped(
    weight: Weight, c: Context, layer: ExpertLayer, rows: Quantity, active: Quantity
) -> GroupedGemm:
    product = c.formats.of(weight)
    return GroupedGemm(
        name=weight.name,
        count=c.count,
        arithmetic=product.arithmetic,
        weight_bytes=c.weight_bytes(weight) / weight.copies * active,
        weight_format=product.stored.name,
        layer=layer,
        rows=rows,
        active_experts=active,
        experts=weight.copies,
        n=weight.columns,
        k=weight.rows,
        input_bytes_per_element=product.input_bytes,
    )


def _over_mean(f: MoeFfn, c: Context) -> float:
    """(token, expert) pairs of the busiest rank over the mean rank's."""
    p = c.parallel
    if p.expert_skew == 0 or p.ep == 1:
        return 1.0
    return busiest(f.experts * p.ep, f.top_k, p.ep, p.expert_skew).over_mean


def _active_here(f: MoeFfn, c: Context, tokens: Quantity) -> Quantity:
    """Experts of the busiest rank that get at least one of ``tokens`` tokens."""
    p, everywhere = c.parallel, f.experts * c.parallel.ep
    if p.expert_skew == 0 or p.ep == 1:
        return expected_experts(everywhere, f.top_k, tokens, p.expert_skew) / p.ep
    return busiest(everywhere, f.top_k, p.ep, p.expert_skew).active(tokens)


def _exchange(f: MoeFfn, c: Context, name: str, bytes_per_element: float) -> Iterator[Operator]:
    """Tokens to the ranks of their experts, or back, where attention replicas share experts.

    A rank holds tokens/tp of its replica's tokens; each goes to the distinct ranks among ep
    that its top-k experts live on: ep·(1 − (1 − 1/ep)^k) in expectation. Under a skew the busiest
    rank has a share of r/ep of the pairs and receives ep·(1 − (1 − r/ep)^k) times tokens/tp: the
    exchange takes as long as that.
    """
    parallel = c.parallel
    if parallel.expert_replicas == 1:
        return
    ranks = parallel.ep
    destinations = ranks * (1 - (1 - _over_mean(f, c) / ranks) ** f.top_k)
    message = c.tokens / parallel.tp * destinations * c.hidden * bytes_per_element
    exchange = c.collective(
        f"experts.{name}", "all_to_all", message, ranks, parallel.expert_span, near=parallel.tp
    )
    yield from c.sent(exchange, bytes_per_element)


def moe_operators(f: MoeFfn, c: Context) -> Iterator[Operator]:
    """Router, dispatch, the experts' two projections, combination, shared expert.

    ``f`` has this GPU's experts; its router still scores all of them.
    """
    everywhere = f.experts * c.parallel.ep
    weights = named(moe_weights(f.model_copy(update={"experts": everywhere}), c.hidden))
    local = named(moe_weights(f, c.hidden))
    here = c.tokens * c.parallel.expert_replicas
    rows = here * f.top_k / c.parallel.ep * _over_mean(f, c)
    active = _active_here(f, c, here)
    layer = ExpertLayer(
        tokens=here,
        hidden=c.hidden,
        width=f.width * c.parallel.expert_tp,
        top_k=f.top_k,
        experts=everywhere,
        tp=c.parallel.expert_tp,
        ep=c.parallel.ep,
        gated=f.gated,
        skew=c.parallel.expert_skew,
    )
    correction = c.vectors(weights["router.correction"]) if f.correction_bias else 0.0

    yield from c.linear(weights["router"])
    yield c.elementwise("router.top_k", HALF * everywhere, 8.0 * f.top_k, weight_bytes=correction)
    up = local["experts.gate_up_proj" if f.gated else "experts.up_proj"]
    down = local["experts.down_proj"]
    in_bytes = c.formats.of(up).input_bytes
    if c.formats.of(up).quantises_inputs:
        yield c.elementwise(
            "experts.quantise", HALF * c.hidden, in_bytes * c.hidden, part_of="experts"
        )
    yield from _exchange(f, c, "dispatch", in_bytes)
    yield _grouped(up, c, layer, rows, active)
    yield c.elementwise(
        "experts.activation",
        HALF * up.columns,
        c.formats.of(down).input_bytes * f.width,
        rows,
        part_of="experts",
    )
    yield _grouped(down, c, layer, rows, active)
    yield c.elementwise(
        "experts.sum", HALF * f.top_k * c.hidden, HALF * c.hidden, part_of="experts"
    )
    yield from _exchange(f, c, "combine", HALF)
    if f.shared is not None:
        yield from dense_operators(f.shared, c, "shared_expert", shares=up)
    if f.shared_gate:
        yield from c.linear(weights["shared_expert_gate"])
