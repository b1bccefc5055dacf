"""Laws that the counts obey for any model: nothing is lost or invented by sharing, splitting
into chunks, stepping, or computing many settings at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfmodel.operators.cache import (
    cache_bytes,
)
from perfmodel.operators.context import Step
from perfmodel.operators.format_bytes import Formats
from perfmodel.operators.parameters import count_parameters
from perfmodel.operators.record import GroupedGemm
from perfmodel.operators.sharding import Parallel, local_layer, stage_layers
from perfmodel.operators.step import body_operators, step_operators
from perfmodel.operators.stored_weights import stage_weight_bytes
from perfmodel.specs.model import LatentAttention, Layer, MoeFfn
from tests.operators.properties_case import (
    BF16,
    EVERY_EXPERT,
    any_model,
    cached_tokens,
    rank_weights,
    tokens,
)
from tests.operators.strategies import attention, dense, models, moe, recurrent
from tests.operators.support import model, total


@settings(max_examples=120, deadline=None)
@given(any_model)
def test_a_step_that_touches_everything_reads_every_parameter_once(m):
    """2 B each; of the embedding tables a step reads rows alone, which count as activations."""
    read = total(step_operators(m, Step("decode", EVERY_EXPERT, 1, 0)), "weight_bytes") / 2
    table = m.vocab * (m.embedding_width or m.hidden)
    read_as_head = m.tied and m.head
    tables = (0 if read_as_head else table) + m.position_rows * m.hidden
    assert read + tables == pytest.approx(count_parameters(m).text, rel=1e-12)


@settings(max_examples=120, deadline=None)
@given(any_model)
def test_stored_weights_are_two_bytes_a_parameter(m):
    stored = stage_weight_bytes(m, m.layers, Formats(), Parallel(), first=True, last=True)
    assert stored == 2 * count_parameters(m).total


def replicated_bytes(m: Any) -> Any:
    """What every rank holds whole: norms, position rows, embedding projections, routers."""
    norm = m.norm.weight + m.norm.bias
    norms = sum(layer.norms for layer in m.layers) + m.final_norm + m.embedding_norms
    routers = sum(layer.ffn.experts for layer in m.layers if isinstance(layer.ffn, MoeFfn))
    projections = 2 * m.hidden * (m.embedding_width or 0)
    rows = m.position_rows + routers + norm * norms
    return 2.0 * (rows * m.hidden + projections)


sharded_models = models(attention(4, plain=True), dense(4, plain=True) | moe(4, True), 4)


@settings(max_examples=80, deadline=None)
@given(sharded_models, st.sampled_from([2, 4]))
def test_tensor_parallel_ranks_hold_the_model_once(m, tp):
    every_rank = tp * rank_weights(m, Parallel(tp=tp))
    assert every_rank - (tp - 1) * replicated_bytes(m) == pytest.approx(
        rank_weights(m, Parallel()), rel=1e-12
    )


@settings(max_examples=80, deadline=None)
@given(sharded_models, st.sampled_from([2, 4]), tokens, cached_tokens)
def test_tensor_parallel_ranks_share_the_flops(m, tp, new, cached):
    """Matrix products and attention add up; routers and embedding projections run on each rank."""
    everywhere = {"router", "embedding_in", "embedding_out"}

    def shared(parallel: Parallel) -> Any:
        operators = step_operators(m, Step("prefill", 3, new, cached), parallel=parallel)
        return total(o for o in operators if o.name not in everywhere)

    assert tp * shared(Parallel(tp=tp)) == pytest.approx(shared(Parallel()), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(attention(), st.sampled_from([1, 2, 4, 8, 16, 48]), st.integers(1, 100))
def test_kv_heads_are_split_down_to_one_and_then_replicated(a, tp, length):
    assume(a.heads % tp == 0 and (a.kv_heads % tp == 0 or tp % a.kv_heads == 0))
    (local,) = (local_layer(Layer(mixer=a, ffn=None), Parallel(tp=tp)),)
    kept = length if a.window is None else min(length, a.window)
    per_rank = max(1, a.kv_heads // tp) * (a.head_dim + a.value_dim) * 2
    assert cache_bytes([local], length, BF16) == per_rank * kept


@settings(max_examples=60, deadline=None)
@given(moe(8, plain=True), st.sampled_from([(2, 1), (4, 2), (8, 8), (4, 4), (8, 2)]), tokens)
def test_experts_inside_the_tensor_parallel_group(f, layout, batch):
    """ep ≤ tp: each rank has experts/ep of them at width·ep/tp; a tp-th of the work and bytes."""
    tp, ep = layout
    whole, rank = (expert_operators(f, batch, p) for p in (Parallel(), Parallel(tp=tp, ep=ep)))
    assert tp * total(rank) == pytest.approx(total(whole), rel=1e-12)
    assert tp * total(rank, "weight_bytes") == pytest.approx(
        total(whole, "weight_bytes"), rel=1e-12
    )


@settings(max_examples=60, deadline=None)
@given(moe(8, plain=True), st.sampled_from([(1, 2, 2), (2, 4, 2), (2, 8, 4), (1, 2, 4)]), tokens)
def test_experts_across_attention_replicas(f, layout, batch):
    """ep > tp: the tokens of ep/tp replicas meet, each at its own experts, and none twice."""
    tp, ep, dp = layout
    replicas = ep // tp
    whole = expert_operators(f, replicas * batch, Parallel())
    rank = expert_operators(f, batch, Parallel(tp=tp, ep=ep, dp=dp))
    assert ep * total(rank) == pytest.approx(total(whole), rel=1e-12)
    assert ep * total(rank, "weight_bytes") == pytest.approx(
        total(whole, "weight_bytes"), rel=1e-12
    )


def expert_operators(f: MoeFfn, batch: int, parallel: Parallel) -> list[Any]:
    m = model("llama-3.1-8b").model_copy(
        update={"hidden": 16, "layers": (Layer(mixer=None, ffn=f, norms=1),)}
    )
    operators = body_operators(m, Step("decode", batch, 1, 0), parallel=parallel)
    return [o for o in operators if isinstance(o, GroupedGemm)]


@settings(max_examples=80, deadline=None)
@given(any_model, st.integers(1, 4))
def test_pipeline_stages_hold_the_model_once(m, pp):
    """A last stage apart from the first keeps its own copy of a tied table."""
    assume(pp <= len(m.layers))
    parallel = Parallel(pp=pp)
    stages = [
        stage_weight_bytes(m, part, Formats(), parallel, first=i == 0, last=i == pp - 1)
        for i, part in enumerate(stage_layers(m, pp))
    ]
    copy = m.vocab * (m.embedding_width or m.hidden) if pp > 1 and m.tied and m.head else 0
    assert sum(stages) == pytest.approx(2 * (count_parameters(m).total + copy), rel=1e-12)


@given(st.integers(1, 200), st.integers(1, 200))
def test_stages_differ_by_one_layer_at_most(layers, pp):
    assume(pp <= layers)
    m = model("llama-3.1-8b").model_copy(
        update={"layers": model("llama-3.1-8b").layers[:1] * layers}
    )
    sizes = [len(part) for part in stage_layers(m, pp)]
    assert (len(sizes), sum(sizes)) == (pp, layers)
    assert max(sizes) - min(sizes) <= 1


def body_flops(m: Any, new: int, cached: int, phase: Any = "prefill") -> Any:
    return total(body_operators(m, Step(phase, 2, new, cached)))


@settings(max_examples=120, deadline=None)
@given(any_model, st.lists(tokens, min_size=1, max_size=5), cached_tokens)
def test_chunks_of_a_prefill_compute_what_it_computes_at_once(m, chunks, cached):
    """MLA expands the cached latents again in each chunk: 2·rank·heads·(nope + v) FLOPs for each
    token that earlier chunks had expanded.
    """
    starts = [cached + sum(chunks[:i]) for i in range(len(chunks))]
    parts = sum(body_flops(m, n, start) for n, start in zip(chunks, starts, strict=True))
    again = sum(
        2 * a.kv_rank * a.heads * (a.nope_dim + a.value_dim)
        for layer in m.layers
        if isinstance(a := layer.mixer, LatentAttention) and a.indexer is None
    )
    extra = 2 * again * sum(starts[1:])
    assert parts == pytest.approx(body_flops(m, sum(chunks), cached) + extra, rel=1e-12)


@settings(max_examples=80, deadline=None)
@given(models(attention() | recurrent()), st.integers(1, 12), st.integers(0, 40))
def test_a_prefill_computes_what_decoding_its_tokens_would(m, new, cached):
    one_by_one = sum(body_flops(m, 1, cached + i, "decode") for i in range(new))
    assert body_flops(m, new, cached) == pytest.approx(one_by_one, rel=1e-12)
