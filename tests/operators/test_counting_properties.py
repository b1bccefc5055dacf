"""Properties of masks, scales, experts and exchanges over random sizes."""

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
from perfmodel.operators.format_bytes import matrix_bytes, vector_bytes
from perfmodel.operators.masks import causal_pairs, chunked_keys, chunked_pairs, windowed_keys
from perfmodel.operators.record import Collective
from perfmodel.operators.sharding import Parallel
from perfmodel.operators.step import body_operators, step_operators
from perfmodel.specs.formats import FORMATS
from perfmodel.specs.model import Attention, LatentAttention, Layer, Norm
from tests.operators.properties_case import (
    BF16,
    EVERY_EXPERT,
    any_model,
    cached_tokens,
    rank_weights,
    tokens,
)
from tests.operators.strategies import attention, latent, models, recurrent
from tests.operators.support import attentions, gemms, model, named, total

windows = st.none() | st.integers(1, 70)


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
