"""Mixed steps: their limits are the plain steps, and no step is cheaper than its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.inference.mixed import mixed_step, step_cost
from perfmodel.inference.step_sets import made_step
from perfmodel.operators.masks import causal_pairs
from tests.inference.kv_case import case
from tests.inference.test_steps import FAMILIES
from tests.operators.strategies import models


@pytest.mark.parametrize("name", FAMILIES)
def test_without_a_chunk_it_is_the_decode_step(name):
    plain = case(name, roof=False, batch=7, prompt=901, output=2)
    mixed = mixed_step(*plain.context, 7, 901, 0, 0)
    assert mixed == plain.decode()


@pytest.mark.parametrize("name", FAMILIES)
def test_without_decodes_it_is_the_prefill_step(name):
    plain = case(name, roof=False, prompt=1500, cached_prefix=1000, output=1)
    assert mixed_step(*plain.context, 0, 0, 500, 1000) == plain.prefill()


@pytest.mark.parametrize("name", FAMILIES[::2])
def test_arrays_are_the_loop_over_their_numbers(name):
    """Settings without decodes or without a chunk among others."""
    plain = case(name, roof=False)
    decodes = np.array([0.0, 5.0, 5.0, 300.0])
    chunk = np.array([100.0, 0.0, 64.0, 1.0])
    together = mixed_step(*plain.context, decodes, 700.0, chunk, 250).total
    for i in range(4):
        one = mixed_step(*plain.context, int(decodes[i]), 700, int(chunk[i]), 250).total
        for field in ("time_s", "low_s", "high_s", "roof_s", "flops", "bytes"):
            ours: Any = getattr(together, field)
            assert ours[i] == pytest.approx(getattr(one, field), rel=1e-12), field


def test_linear_layers_run_once_and_attention_for_each_part():
    """Llama-3.1-8B, 3 decodes at 100 and a chunk of 50 after 20: 53 rows in every product, the
    head's 3 + 1; weights as of one step; pairs 3·101 and 50·20 + 50·51/2.
    """
    mixed = mixed_step(*case("llama-3.1-8b").context, 3, 100, 50, 20)
    rows = {row.name: row for row in mixed.operators if row.name != "attention"}
    assert rows["qkv_proj"].shape["m"] == rows["ffn.down_proj"].shape["m"] == 53
    assert rows["lm_head"].shape["m"] == 4
    weights = 2 * (8_030_261_248 - 128_256 * 4096)
    assert mixed.total.weight_bytes == weights
    attention = [row for row in mixed.operators if row.name == "attention"]
    per_pair = 4 * 32 * 128 * 32
    assert [row.cost.flops for row in attention] == [
        per_pair * 3 * 101,
        per_pair * (50 * 20 + 50 * 51 / 2),
    ]


@pytest.mark.parametrize("name", FAMILIES)
def test_flops_and_cache_add_up_and_weights_are_read_once(name):
    """Parts apart and together: the same arithmetic and keys, and no weight twice."""
    plain = case(name)
    both = mixed_step(*plain.context, 4, 600, 128, 64).total
    first = mixed_step(*plain.context, 4, 600, 0, 0).total
    second = mixed_step(*plain.context, 0, 0, 128, 64).total
    assert both.flops == pytest.approx(first.flops + second.flops, rel=1e-12)
    assert both.cache_bytes == pytest.approx(first.cache_bytes + second.cache_bytes, rel=1e-12)
    assert both.weight_bytes < first.weight_bytes + second.weight_bytes
    assert both.time_s <= first.time_s + second.time_s


@settings(max_examples=20, deadline=None)
@given(
    models().filter(lambda m: not m.position_rows),
    st.integers(1, 50),
    st.integers(0, 3000),
    st.integers(1, 900),
    st.integers(0, 2000),
)
def test_never_cheaper_than_a_part_at_the_roof(m, decodes, context, chunk, cached):
    context_of = case(m).context
    both = mixed_step(*context_of, decodes, context, chunk, cached).total.time_s
    first = mixed_step(*context_of, decodes, context, 0, 0).total.time_s
    second = mixed_step(*context_of, 0, 0, chunk, cached).total.time_s
    assert both >= max(first, second) * (1 - 1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_never_cheaper_than_a_part_on_fitted_kernels(name):
    """Rows at the edges of tiles, where a fitted kernel may be faster with more of them."""
    plain = case(name, roof=False)
    decodes, chunk = (a.ravel() for a in np.meshgrid([1.0, 63, 64, 129, 256], [1.0, 64, 65, 512]))
    both = mixed_step(*plain.context, decodes, 1000.0, chunk, 300.0).total.time_s
    first = mixed_step(*plain.context, decodes, 1000.0, 0, 0).total.time_s
    second = mixed_step(*plain.context, 0, 0, chunk, 300.0).total.time_s
    assert np.all(both >= np.maximum(first, second) * (1 - 1e-12))


def test_several_prompts_are_several_parts():
    plain = case("llama-3.1-8b")
    parts = [
        made_step(plain.plan, "prefill", 1, new, cached, 0) for new, cached in ((9, 0), (5, 7))
    ]
    cost = step_cost(*plain.context, parts)
    pairs = causal_pairs(9, 0) + causal_pairs(5, 7)
    attention = [row for row in cost.operators if row.name == "attention"]
    assert sum(row.cost.flops for row in attention) == 4 * 32 * 128 * 32 * pairs
    rows = {row.name: row for row in cost.operators}
    assert rows["lm_head"].cost.flops == 0  # no logits asked for
    assert rows["qkv_proj"].shape["m"] == 14


@pytest.mark.parametrize("sizes", [(0, 100, 0, 0), (-1, 100, 5, 0), (2, -1, 5, 0), (2, 5, 5, -3)])
def test_an_empty_or_negative_step_is_refused(sizes):
    with pytest.raises(InputError, match="a step"):
        mixed_step(*case("llama-3.1-8b").context, *sizes)


# --- chunks against the whole prompt -----------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_a_chunk_as_long_as_the_prompt_is_the_whole(name):
    """As chunks the body and the head are two parts of the phase: the same rows, summed apart."""
    whole = case(name, roof=False, batch=3, prompt=700, output=1).prefill().total
    chunk = case(name, roof=False, batch=3, prompt=700, output=1, prefill_chunk=700).prefill().total
    assert chunk.time_s == pytest.approx(whole.time_s, rel=1e-12)
    assert chunk.bytes == pytest.approx(whole.bytes, rel=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("roof", [True, False])
def test_chunks_cost_no_less_than_the_whole(name, roof):
    """And they attend to the same pairs: FLOPs are equal, but for latents expanded again."""
    whole = case(name, roof=roof, prompt=4000, output=1).prefill().total
    chunks = case(name, roof=roof, prompt=4000, output=1, prefill_chunk=512).prefill().total
    assert chunks.time_s >= whole.time_s
    assert chunks.cache_bytes >= whole.cache_bytes
    if name == "deepseek-v2-lite":
        assert chunks.flops > whole.flops
    else:
        assert chunks.flops == pytest.approx(whole.flops, rel=1e-9)


def test_the_chunks_of_a_prompt_by_mixed_steps():
    """Llama-3.1-8B, 1,000 tokens in chunks of 400: 400, 400, 200 after 0, 400, 800; keys read
    400 + 800 + 1,000 where the whole prompt reads 1,000.
    """
    plain = case("llama-3.1-8b", prompt=1000, output=1, prefill_chunk=400)
    parts = [(400, 0, 0), (400, 400, 0), (200, 800, 1)]
    steps = [
        step_cost(*plain.context, [made_step(plain.plan, "prefill", 1, *sizes)]) for sizes in parts
    ]
    total = sum(step.total.flops for step in steps)
    chunked = plain.prefill().total
    assert chunked.flops == pytest.approx(total, rel=1e-12)
    assert chunked.cache_bytes == 2200 * 131_072
    attended = sum(row.cost.flops for row in plain.prefill().operators if row.name == "attention")
    assert attended == 4 * 32 * 128 * 32 * 1000 * 1001 / 2
