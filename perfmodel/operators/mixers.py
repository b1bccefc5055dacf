"""From a layer's sequence mixer to its operators. Sizes are one GPU's own (see `sharding`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from perfmodel.operators.cache import index_token_bytes, recent_bytes, token_bytes
from perfmodel.operators.context import HALF, Context, of_part
from perfmodel.operators.context_parallel import shared_attention
from perfmodel.operators.masks import (
    branched,
    causal_pairs,
    chunked_keys,
    chunked_pairs,
    windowed_keys,
)
from perfmodel.operators.quantity import minimum
from perfmodel.operators.record import Attention as AttentionOperator
from perfmodel.operators.record import Elementwise, Gemm, Operator, PartOf
from perfmodel.operators.weights import Weight, attention_weights, latent_weights
from perfmodel.specs.model import Attention, LatentAttention


def named(weights: Iterator[Weight]) -> dict[str, Weight]:
    """Weights by name."""
    return {weight.name: weight for weight in weights}


def _cache_write(
    a: Attention | LatentAttention, c: Context, wide: float, part_of: PartOf = ""
) -> Elementwise:
    """A token's keys and values into the cache, ``wide`` bytes of them read for it.

    Where the newest tokens stay in 16 bits, each is written so first and read when quantised.
    """
    twice = wide if c.formats.cache.recent else 0.0
    written = token_bytes(a, c.formats.cache) + twice
    return c.elementwise("kv_write", wide + twice, written, part_of=part_of)


def _scores(a: Attention, c: Context, sink_bytes: float) -> AttentionOperator:
    new, cached = c.step.new, c.step.cached
    if a.window is None and c.step.kept is not None:
        cached = minimum(cached, c.step.kept)
    if a.chunked and a.window is not None:
        mask = partial(chunked_pairs, chunk=a.window)
        keys = chunked_keys(new, cached, a.window)
    else:
        mask = partial(causal_pairs, window=a.window)
        keys = windowed_keys(new, cached, a.window)
    return AttentionOperator(
        name="attention",
        count=c.count,
        arithmetic=c.formats.base_arithmetic,
        weight_bytes=sink_bytes,
        phase=c.step.phase,
        sequences=c.step.sequences,
        queries=new,
        keys=keys,
        pairs=branched(c.step.branches, new, cached, mask),
        context=new + cached,
        heads=a.heads,
        kv_heads=a.kv_heads,
        qk_dim=a.head_dim,
        value_dim=a.value_dim,
        key_bytes=token_bytes(a, c.formats.cache),
        cache_format=c.formats.cache.name,
        recent_bytes=recent_bytes(a, c.formats.cache, keys),
        window=a.window,
        fused=c.fused_attention,
    )


def _keys_and_queries(
    a: Attention, c: Context, weights: dict[str, Weight], q_width: int, kv_widths: tuple[int, int]
) -> Iterator[Operator]:
    """Norms of queries and keys, rotary embedding, the cache's write.

    Fully fused, one kernel reads what the projection made and writes queries and the cache.
    """
    k_width, v_width = kv_widths
    normed, joint = a.qk_norm != "none", c.fusion == "full"
    if normed:
        read = HALF * (q_width + k_width)
        written = HALF * q_width if joint else read
        yield c.elementwise("qk_norm", read, written, weight_bytes=c.vectors(weights["qk_norm"]))
    if a.rotary_dim and not (joint and normed):
        read = HALF * (a.heads + a.kv_heads) * a.rotary_dim
        yield c.elementwise("rotary", read, HALF * a.heads * a.rotary_dim if joint else read)
    joined = joint and (normed or a.rotary_dim > 0)
    held = k_width if normed else min(a.kv_heads * a.rotary_dim, k_width)
    unread = k_width - held if joined else k_width
    yield _cache_write(a, c, HALF * (unread + v_width), "joined" if joined else "")


def attention_operators(a: Attention, c: Context) -> Iterator[Operator]:
    """MHA, GQA, MQA: projections, rotary embedding, cache write, attention, output."""
    weights = named(attention_weights(a, c.hidden))
    q_width, k_width, v_width = (
        a.heads * a.head_dim,
        a.kv_heads * a.head_dim,
        a.kv_heads * a.value_dim,
    )
    yield from c.linear(weights["qkv_proj"])
    yield from _keys_and_queries(a, c, weights, q_width, (k_width, v_width))
    sink_bytes = c.vectors(weights["sinks"]) if a.sinks else 0.0
    for part in c.parts():
        scores = _scores(a, part, sink_bytes)
        yield from of_part(shared_attention(scores, part, scores.key_bytes))
    out_width = a.heads * a.value_dim
    if a.output_gate:
        yield from c.gated("output_gate", out_width, weights["o_proj"])
    yield from c.linear(weights["o_proj"], after="written" if a.output_gate else "kernel")


def _down_projections(
    a: LatentAttention, weights: dict[str, Weight], c: Context
) -> Iterator[Operator]:
    if a.q_rank is None:
        yield from c.linear(weights["q_proj"])
        yield from c.linear(weights["kv_a_proj"], shares=weights["q_proj"])
    else:
        yield from c.linear(weights["qkv_a_proj"])
        moved = HALF * a.q_rank
        yield c.elementwise("q_a_norm", moved, moved, weight_bytes=c.vectors(weights["q_a_norm"]))
        yield from c.linear(weights["q_b_proj"])
    moved = HALF * a.kv_rank
    yield c.elementwise("kv_a_norm", moved, moved, weight_bytes=c.vectors(weights["kv_a_norm"]))
    # Fully fused, the norm's kernel rotates and writes the cache too.
    joint = c.fusion == "full"
    part: PartOf = "joined" if joint else ""
    moved = HALF * (a.heads + 1) * a.rope_dim
    rotated = HALF * a.heads * a.rope_dim if joint else moved
    yield c.elementwise("rotary", moved, rotated, part_of=part)
    yield _cache_write(a, c, 0.0 if joint else HALF * (a.kv_rank + a.rope_dim), part)


def _indexer(a: LatentAttention, weights: dict[str, Weight], c: Context) -> Iterator[Operator]:
    index = a.indexer
    if index is None or index.shared:
        return
    latent = weights["q_proj" if a.q_rank is None else "q_b_proj"]
    yield from c.linear(weights["indexer.q_proj"], shares=latent)
    yield from c.linear(
        weights["indexer.k_proj"], shares=weights["kv_a_proj" if a.q_rank is None else "qkv_a_proj"]
    )
    moved = HALF * index.head_dim
    norm = c.vectors(weights["indexer.k_norm"])
    yield c.elementwise("indexer.k_norm", moved, index_token_bytes(a), weight_bytes=norm)
    yield from c.linear(weights["indexer.weights_proj"])
    for part in c.step.parts:
        yield AttentionOperator(
            name="indexer.scores",
            count=c.count,
            arithmetic=c.formats.base_arithmetic,
            per_part=True,
            phase=part.phase,
            sequences=part.sequences,
            queries=part.new,
            keys=part.cached + part.new,
            pairs=branched(part.branches, part.new, part.cached, causal_pairs),
            context=part.new + part.cached,
            heads=index.heads,
            kv_heads=1,
            qk_dim=index.head_dim,
            value_dim=0,
            key_bytes=index_token_bytes(a),
        )


def _expanded(a: LatentAttention, weights: dict[str, Weight], c: Context) -> Iterator[Operator]:
    """Keys and values of every head are computed from the latents, cached ones included."""
    keys = c.step.cached + c.step.new
    yield from c.linear(weights["kv_b_proj"], rows=c.step.sequences * keys, after="kernel")
    qk = a.nope_dim + a.rope_dim
    whole = AttentionOperator(
        name="attention",
        count=c.count,
        arithmetic=c.formats.base_arithmetic,
        phase=c.step.phase,
        sequences=c.step.sequences,
        queries=c.step.new,
        keys=keys,
        pairs=causal_pairs(c.step.new, c.step.cached),
        context=c.step.new + c.step.cached,
        heads=a.heads,
        kv_heads=a.heads,
        qk_dim=qk,
        value_dim=a.value_dim,
        key_bytes=HALF * a.heads * (qk + a.value_dim),
        latent=True,
        fused=c.fused_attention,
    )
    yield from shared_attention(whole, c, token_bytes(a, c.formats.cache))


def _per_head(name: str, a: LatentAttention, c: Context, k: int, n: int) -> Gemm:
    weight = Weight(name, "linear", k, n, copies=a.heads, parts=(("kv_b_proj", n),))
    return Gemm(
        name=name,
        count=c.count,
        arithmetic=c.formats.base_arithmetic,
        weight_bytes=c.weight_bytes(weight),
        weight_format=c.formats.of(weight).stored.name,
        m=c.tokens,
        n=n,
        k=k,
        batch=a.heads,
    )


def _over_latents(a: LatentAttention, c: Context) -> AttentionOperator:
    """Attention over the latents, with one key/value head.

    With an indexer each query reads its top-k keys only.
    """
    new, cached = c.step.new, c.step.cached
    top_k = a.indexer.top_k if a.indexer else None
    keys = cached + new
    return AttentionOperator(
        name="attention",
        count=c.count,
        arithmetic=c.formats.base_arithmetic,
        phase=c.step.phase,
        sequences=c.step.sequences,
        queries=new,
        keys=keys if top_k is None else minimum(keys, new * top_k),
        pairs=branched(c.step.branches, new, cached, partial(causal_pairs, window=top_k)),
        context=new + cached,
        heads=a.heads,
        kv_heads=1,
        qk_dim=a.kv_rank + a.rope_dim,
        value_dim=a.kv_rank,
        key_bytes=token_bytes(a, c.formats.cache),
        cache_format=c.formats.cache.name,
        recent_bytes=recent_bytes(a, c.formats.cache, cached + new),
        latent=True,
        fused=c.fused_attention,
    )


def _absorbed(a: LatentAttention, c: Context) -> Iterator[Operator]:
    """The up-projections are folded into query and output, once for all parts of the step."""
    yield _per_head("absorb_q", a, c, a.nope_dim, a.kv_rank)
    for part in c.parts():
        whole = _over_latents(a, part)
        yield from shared_attention(whole, part, whole.key_bytes)
    yield _per_head("absorb_v", a, c, a.kv_rank, a.value_dim)


def latent_operators(a: LatentAttention, c: Context) -> Iterator[Operator]:
    """MLA: expanded in prefill, absorbed in decode (and wherever an indexer picks the keys)."""
    weights = named(latent_weights(a, c.hidden))
    yield from _down_projections(a, weights, c)
    yield from _indexer(a, weights, c)
    absorbed = [p for p in c.step.parts if p.phase == "decode" or a.indexer is not None]
    if absorbed:
        together = replace(absorbed[0], beside=tuple(absorbed[1:]))
        yield from of_part(_absorbed(a, replace(c, step=together)))
    for part in c.parts():
        if part.step.phase == "prefill" and a.indexer is None:
            yield from of_part(_expanded(a, weights, part))
    yield from c.linear(weights["o_proj"], after="kernel")
