"""Attention over a cache that several ranks share by tokens.

Prefill (``cp`` ranks): each rank takes new/cp of a prompt's tokens, an early and a late piece, so
that the causal pairs are shared evenly; keys and values of all tokens reach every rank, by a ring
or an all-gather, whose bytes are the same. Decode: every rank holds 1/(cp·dcp) of the tokens'
keys, computes each query's partial attention over them, and the partial outputs are merged by
their log-sum-exps (Flash-decoding across GPUs; vLLM's decode context parallel). ``dcp`` ranks are
tensor-parallel ranks with different heads, which gather each other's queries first and get their
own heads' outputs back by a reduce-scatter; ``cp`` ranks have the same heads and all-reduce.

Sources: Liu et al., Ring Attention (2023); vLLM, docs/serving/context_parallel_deployment.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfmodel.operators.context import HALF, Context
from perfmodel.operators.quantity import Quantity, ceil_div, maximum, minimum
from perfmodel.operators.record import Attention, CollectiveKind, Operator

LSE_BYTES = 4.0
"""A log-sum-exp is kept in fp32."""


def shared_attention(op: Attention, c: Context, token_bytes: float) -> Iterator[Operator]:
    """``op``, which has all tokens, as one of the ranks that share them executes it.

    Args:
        op: the attention of one tensor-parallel rank.
        c: where it stands, with the layout.
        token_bytes: bytes of one token in this layer's cache.
    """
    if c.parallel.cache_shares == 1:
        yield op
    elif op.phase == "prefill":
        yield from _prefill(op, c, token_bytes)
    else:
        yield from _decode(op, c)


def _across_cp(
    c: Context, name: str, kind: CollectiveKind, message: Quantity
) -> Iterator[Operator]:
    cp = c.parallel.cp
    if cp > 1:
        yield c.collective(f"{name}.{kind}", kind, message, cp, cp * c.parallel.tp)


def _across_dcp(
    c: Context, name: str, kind: CollectiveKind, message: Quantity
) -> Iterator[Operator]:
    dcp = c.parallel.dcp
    if dcp > 1:
        yield c.collective(f"{name}.{kind}", kind, message, dcp, dcp, near=dcp)


def _prefill(op: Attention, c: Context, token_bytes: float) -> Iterator[Operator]:
    """Keys gathered, then attention of this rank's queries over them.

    A window leaves the two pieces of a rank's queries their own keys and those before them.
    ``context`` is that of a kernel whose queries follow on as many keys as these see on average.
    """
    cp = c.parallel.cp
    cached = maximum(op.keys - op.queries, 0)
    yield from _across_dcp(c, "cached_keys", "all_gather", op.sequences * cached / cp * token_bytes)
    yield from _across_cp(c, "keys", "all_gather", op.sequences * op.keys * token_bytes)
    if cp == 1:
        yield op
        return
    queries = ceil_div(op.queries, cp)
    keys = op.keys if op.window is None else minimum(op.keys, queries + 2 * (op.window - 1))
    before = op.context - op.queries
    yield replace(
        op,
        queries=queries,
        keys=keys,
        pairs=op.pairs / cp,
        context=before + (op.queries + queries) / 2,
    )


def _decode(op: Attention, c: Context) -> Iterator[Operator]:
    """All queries against this rank's keys, and the merge of the partial outputs."""
    shares, dcp, cp = c.parallel.cache_shares, c.parallel.dcp, c.parallel.cp
    rows, heads = op.sequences * op.queries, op.heads * dcp
    yield from _across_dcp(c, "queries", "all_gather", HALF * rows * heads * op.qk_dim)
    yield replace(
        op,
        heads=heads,
        keys=op.keys / shares,
        pairs=op.pairs / shares,
        context=op.context / shares,
        window=None if op.window is None else -(-op.window // shares),
    )
    outputs = HALF * heads * op.value_dim
    yield from _across_dcp(c, "log_sum_exp", "all_gather", LSE_BYTES * rows * heads * dcp)
    yield from _across_cp(c, "log_sum_exp", "all_gather", LSE_BYTES * rows * op.heads * cp)
    yield c.elementwise("attention.merge", outputs, outputs, rows)
    yield from _across_dcp(c, "partial_outputs", "reduce_scatter", outputs * rows)
    yield from _across_cp(c, "partial_outputs", "all_reduce", outputs / dcp * rows)
