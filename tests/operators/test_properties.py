"""Laws that the counts obey for any model: nothing is lost or invented by sharing, splitting
into chunks, stepping, or computing many settings at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfmodel.operators.cache import (
    cache_bytes,
    kv_bytes_per_token,
    state_bytes_per_sequence,
    window_cap_bytes,
)
from perfmodel.operators.context import Step
from perfmodel.operators.feed_forward import expected_experts
from perfmodel.operators.format_bytes import Formats, matrix_bytes, vector_bytes
from perfmodel.operators.masks import causal_pairs, chunked_keys, chunked_pairs, windowed_keys
from perfmodel.operators.parameters import count_parameters
from perfmodel.operators.record import Collective, GroupedGemm
from perfmodel.operators.sharding import Parallel, local_layer, stage_layers
from perfmodel.operators.step import body_operators, step_operators
from perfmodel.operators.stored_weights import stage_weight_bytes
from perfmodel.specs.formats import FORMATS
from perfmodel.specs.loading import model_names
from perfmodel.specs.model import Attention, LatentAttention, Layer, MoeFfn, Norm
from tests.operators.strategies import attention, dense, latent, models, moe, recurrent
from tests.operators.support import attentions, gemms, model, named, total

BF16 = FORMATS["bf16"]
EVERY_EXPERT = 10**7
catalogue = st.sampled_from(model_names()).map(model)
any_model = models() | catalogue
tokens = st.integers(1, 60)
cached_tokens = st.integers(0, 90)
windows = st.none() | st.integers(1, 70)


# --- weights -----------------------------------------------------------------------------------


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


# --- tensor, expert and pipeline parallelism ---------------------------------------------------


def rank_weights(m: Any, parallel: Parallel) -> float:
    layers = tuple(local_layer(layer, parallel) for layer in m.layers)
    return stage_weight_bytes(m, layers, Formats(), parallel, first=True, last=True)


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


# --- steps -------------------------------------------------------------------------------------


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


@settings(max_examples=60, deadline=None)
@given(models(attention()), tokens, cached_tokens)
def test_a_window_as_long_as_the_context_is_none(m, new, cached):
    def with_window(length: int | None) -> Any:
        layers = tuple(
            layer.model_copy(
                update={
                    "mixer": layer.mixer.model_copy(update={"window": length, "chunked": False})
                }
            )
            for layer in m.layers
            if isinstance(layer.mixer, Attention)
        )
        return m.model_copy(update={"layers": layers})

    free, bound = with_window(None), with_window(new + cached)
    for quantity in ("flops", "bytes"):
        step = Step("prefill", 2, new, cached)
        assert total(body_operators(free, step), quantity) == total(
            body_operators(bound, step), quantity
        )
    assert cache_bytes(free.layers, new + cached, BF16) == cache_bytes(
        bound.layers, new + cached, BF16
    )


@settings(max_examples=60, deadline=None)
@given(any_model, tokens, cached_tokens, st.sampled_from(["prefill", "decode"]))
def test_unfused_attention_moves_more_and_computes_the_same(m, new, cached, phase):
    step = Step(phase, 3, new, cached)
    fused, plain = (body_operators(m, step, fused_attention=f) for f in (True, False))
    assert total(plain) == total(fused)
    scores = sum(
        o.count * 3 * o.heads * new * o.keys * 4 * 2.0
        for o in attentions(fused)
        if o.name == "attention"
    )
    assert total(plain, "bytes") == pytest.approx(total(fused, "bytes") + scores, rel=1e-12)
    assert total(plain, "cache_bytes") == total(fused, "cache_bytes")


# --- caches ------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(any_model)
def test_a_long_cache_grows_by_the_layers_without_a_window(m):
    """Beyond every window: full windows, and the other layers' bytes for each token."""
    length = 2**24
    indexers = sum(
        a.indexer.head_dim + 4  # fp8 with one fp32 scale a token
        for layer in m.layers
        if isinstance(a := layer.mixer, LatentAttention) and a.indexer
    )
    growth = kv_bytes_per_token(m, beyond_window=True) + indexers
    assume(all((getattr(layer.mixer, "window", None) or 0) <= length for layer in m.layers))
    assert cache_bytes(m.layers, length) == growth * length + window_cap_bytes(m)


@settings(max_examples=60, deadline=None)
@given(models(attention() | latent()), st.integers(1, 100))
def test_a_decode_step_reads_what_the_sequence_keeps(m, length):
    """One query reads each key that its layer keeps; a chunk's start aside, and what an indexer
    leaves out.
    """
    assume(
        not any(
            getattr(layer.mixer, "chunked", False) or getattr(layer.mixer, "indexer", None)
            for layer in m.layers
        )
    )
    operators = step_operators(m, Step("decode", 5, 1, length - 1))
    assert total(operators, "cache_bytes") == 5 * cache_bytes(m.layers, length, BF16)


@settings(max_examples=60, deadline=None)
@given(models(recurrent()))
def test_a_step_reads_and_writes_the_whole_state(m):
    operators = step_operators(m, Step("decode", 5, 1, 100))
    assert total(operators, "cache_bytes") == 2 * 5 * state_bytes_per_sequence(m)


# --- masks -------------------------------------------------------------------------------------


def mask(new: int, cached: int, window: int | None = None, chunk: int | None = None) -> Any:
    """Rows are the new queries, columns all positions: True where a query sees a key."""
    query = np.arange(cached, cached + new)[:, None]
    key = np.arange(cached + new)[None, :]
    seen = key <= query
    if window is not None:
        seen &= key > query - window
    if chunk is not None:
        seen &= key // chunk == query // chunk
    return seen


@given(tokens, cached_tokens, windows)
def test_causal_pairs_and_keys(new, cached, window):
    seen = mask(new, cached, window)
    assert causal_pairs(new, cached, window) == seen.sum()
    assert windowed_keys(new, cached, window) == seen.any(axis=0).sum()


@given(tokens, cached_tokens, st.integers(1, 70))
def test_chunked_pairs_and_keys(new, cached, chunk):
    seen = mask(new, cached, chunk=chunk)
    assert chunked_pairs(new, cached, chunk) == seen.sum()
    assert chunked_keys(new, cached, chunk) == seen.any(axis=0).sum()


@given(st.lists(st.tuples(tokens, cached_tokens), min_size=1, max_size=20), st.integers(1, 70))
def test_masks_of_arrays_are_those_of_their_numbers(pairs, window):
    new, cached = np.array(pairs, dtype=np.float64).T
    for count in (causal_pairs, chunked_pairs, windowed_keys, chunked_keys):
        one_by_one: list[Any] = [count(n, c, window) for n, c in pairs]
        assert np.array_equal(count(new, cached, window), one_by_one)


# --- formats -----------------------------------------------------------------------------------


@given(st.sampled_from(sorted(FORMATS)), st.integers(1, 600), st.integers(1, 600))
def test_scales_only_add(name, rows, columns):
    f = FORMATS[name]
    elements = rows * columns * f.bits / 8
    assert matrix_bytes(f, rows, columns) >= elements
    assert vector_bytes(f, columns, rows) >= elements
    if f.grouping == "none":
        assert matrix_bytes(f, rows, columns) == vector_bytes(f, columns, rows) == elements


@given(st.sampled_from(sorted(FORMATS)), st.integers(1, 8))
def test_scales_of_whole_blocks(name, blocks):
    """A matrix of whole 128-row, 128-column blocks has no partly filled one."""
    f, n = FORMATS[name], 128 * blocks
    scale = f.scale_bits + f.zero_bits
    scales = {
        "none": 0,
        "tensor": scale,
        "channel": n * scale,
        "block": n * n / (f.block * f.block_rows) * scale,
    }
    assert matrix_bytes(f, n, n) * 8 == n * n * f.bits + scales[f.grouping]


@pytest.mark.parametrize("block", [16, 64, 1024, 4096])
def test_larger_groups_come_down_to_the_elements(block):
    f = FORMATS["int4"].model_copy(update={"block": block})
    assert matrix_bytes(f, 4096, 8) * 8 / (4096 * 8) == 4 + 20 / block


# --- experts -----------------------------------------------------------------------------------


@given(st.integers(1, 512), st.data())
def test_experts_touched_grow_to_all(experts, data):
    top_k = data.draw(st.integers(1, experts))
    touched = [expected_experts(experts, top_k, t) for t in (1, 2, 10, 100, EVERY_EXPERT)]
    assert touched[0] == pytest.approx(top_k)
    assert touched == sorted(touched)
    assert touched[-1] == experts


def test_routing_is_what_a_random_draw_shows():
    """12 tokens to 4 of 32 experts each: the mean over 400 draws lies within 1 %."""
    rng = np.random.default_rng(0)
    drawn = [
        len({e for _ in range(12) for e in rng.choice(32, 4, replace=False)}) for _ in range(400)
    ]
    assert expected_experts(32, 4, 12) == pytest.approx(np.mean(drawn), rel=0.01)


# --- one sharded step by hand ------------------------------------------------------------------


def test_biases_of_row_parallel_layers_are_on_every_rank():
    """h = 8, 2 heads × 4, two ranks: rank = (8·(4 + 4 + 4) + 12) QKV + (4·8 + 8) output."""
    a = Attention(heads=2, kv_heads=2, head_dim=4, q_bias=True, kv_bias=True, out_bias=True)
    m = model("llama-3.1-8b").model_copy(
        update={
            "hidden": 8, "vocab": 4, "layers": (Layer(mixer=a, ffn=None, norms=1),),
            "norm": Norm(weight=True),
        }
    )  # fmt: skip
    elements = (8 * 12 + 12) + (4 * 8 + 8) + 8  # and the layer's norm
    tables = 2 * 2 * 8 + 8  # half of both tables of 4 × 8, and the final norm
    assert rank_weights(m, Parallel(tp=2)) == 2 * (elements + tables)


def test_collectives_are_no_work_of_one_gpu_alone():
    operators = step_operators(model("llama-3.1-8b"), Step("decode", 4, 1, 100))
    assert not any(isinstance(o, Collective) for o in operators)
    assert total(operators, "wire_bytes") == 0


def test_gemms_take_the_shapes_of_their_layers():
    """Llama-3.1-8B on two ranks: QKV 4096 × (16 + 2·4)·128, output 16·128 × 4096, head 64,128."""
    step = Step("prefill", 3, 10, 0)
    operators = step_operators(model("llama-3.1-8b"), step, parallel=Parallel(tp=2))
    shapes = {o.name: (o.count, o.m, o.k, o.n) for o in gemms(operators)}
    assert shapes == {
        "qkv_proj": (32, 30, 4096, 3072),
        "o_proj": (32, 30, 2048, 4096),
        "ffn.gate_up_proj": (32, 30, 4096, 14_336),
        "ffn.down_proj": (32, 30, 7168, 4096),
        "lm_head": (1, 3, 4096, 64_128),
    }
    # An odd vocabulary is padded: 49,159 over two ranks is 24,580 each.
    granite = step_operators(model("granite-3.3-8b"), step, parallel=Parallel(tp=2))
    assert named(granite, "lm_head").n == 24_580
