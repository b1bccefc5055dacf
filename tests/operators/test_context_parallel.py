"""Caches and prompts shared by tokens; what the ranks exchange; where ranks stand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.operators.context import Step
from perfmodel.operators.record import Attention, Collective
from perfmodel.operators.sharding import Parallel
from perfmodel.operators.step import body_operators, step_operators
from tests.operators.strategies import attention, dense, models, moe
from tests.operators.support import attentions, model, named, total


def exchanges(name: str, parallel: Parallel, step: Step) -> dict[str, Collective]:
    return {
        o.name: o
        for o in step_operators(model(name), step, parallel=parallel)
        if isinstance(o, Collective)
    }


def test_prompt_shared_by_four_ranks():
    """Llama-3.1-8B, 2 prompts of 4096 after 1024: 4096 B of keys and values a token and layer reach
    every rank, (4 − 1)/4 of them over the wire; a rank's linear layers see 2·1024 tokens.
    """
    parallel, step = Parallel(cp=4), Step("prefill", 2, 4096, 1024)
    operators = body_operators(model("llama-3.1-8b"), step, parallel=parallel)
    keys = named(operators, "keys.all_gather")
    assert keys.message_bytes == 2 * (4096 + 1024) * 4096
    assert keys.wire_bytes == 3 / 4 * keys.message_bytes
    assert named(operators, "qkv_proj").m == 2 * 1024
    (found,) = attentions(operators)
    # pairs 4096·1024 + 4096·4097/2 over four ranks; as many as of a kernel with that context
    assert found.pairs == (4096 * 1024 + 4096 * 4097 / 2) / 4
    assert found.queries * (found.context - found.queries) + 1024 * 1025 / 2 == found.pairs


@settings(max_examples=60, deadline=None)
@given(
    models(attention(), dense() | moe()), st.sampled_from([2, 3, 4]), st.integers(1, 9),
    st.integers(0, 40),
)  # fmt: skip
def test_ranks_share_a_prompts_flops(m, cp, pieces, cached):
    step = Step("prefill", 2, cp * pieces, cached)
    whole, rank = (body_operators(m, step, parallel=Parallel(cp=n)) for n in (1, cp))
    assert cp * total(rank) == pytest.approx(total(whole), rel=1e-12)


def test_decode_over_a_shared_cache():
    """Llama-3.1-70B at TP 16, 8 KV heads: two ranks of 4 query heads share each head's cache.

    The pair's 8 queries of 128 are gathered in 2 B, the outputs scattered back, and a log-sum-exp
    of 4 B for each head comes from both.
    """
    parallel, step = Parallel(tp=16, dcp=2), Step("decode", 5, 1, 3999)
    found = exchanges("llama-3.1-70b", parallel, step)
    assert found["queries.all_gather"].message_bytes == 5 * 8 * 128 * 2
    assert found["partial_outputs.reduce_scatter"].message_bytes == 5 * 8 * 128 * 2
    assert found["log_sum_exp.all_gather"].message_bytes == 5 * 8 * 4 * 2
    plain, shared = (
        attentions(body_operators(model("llama-3.1-70b"), step, parallel=p))[0]
        for p in (Parallel(tp=16), parallel)
    )
    assert (shared.heads, shared.keys) == (2 * plain.heads, plain.keys / 2)
    assert shared.flops == plain.flops
    assert shared.cache_bytes == plain.cache_bytes / 2


def test_decode_over_context_ranks_sums_partial_outputs():
    """The same heads on both ranks: no queries to gather, and outputs are all-reduced."""
    found = exchanges("llama-3.1-8b", Parallel(cp=2), Step("decode", 5, 1, 999))
    assert {o.kind for o in found.values()} == {"all_gather", "all_reduce"}
    assert found["partial_outputs.all_reduce"].message_bytes == 5 * 32 * 128 * 2
    assert found["log_sum_exp.all_gather"].message_bytes == 5 * 32 * 4 * 2


def test_latents_are_gathered_not_heads():
    """DeepSeek-V3: 576·2 B a token and layer."""
    found = exchanges("deepseek-v3", Parallel(tp=8, cp=2), Step("prefill", 1, 1000, 0))
    assert found["keys.all_gather"].message_bytes == 1000 * 576 * 2
    assert found["keys.all_gather"].span == 16
    cached = exchanges("deepseek-v3", Parallel(tp=8, dcp=8), Step("prefill", 1, 1000, 500))
    assert cached["cached_keys.all_gather"].message_bytes == 500 * 576 * 2


def test_one_of_each_is_the_plain_step():
    for phase, new in (("prefill", 7), ("decode", 1)):
        step: Any = Step(phase, 3, new, 20)
        for name in ("gpt-oss-20b", "deepseek-v2-lite"):
            plain = body_operators(model(name), step, parallel=Parallel(tp=2))
            same = Parallel(tp=2, pp=1, ep=1, dp=1, cp=1, dcp=1, expert_skew=0.0)
            assert body_operators(model(name), step, parallel=same) == plain


def test_sequence_parallelism_moves_the_same_bytes_and_shares_the_norms():
    """An all-reduce is 2(n − 1)/n of the message, a reduce-scatter and an all-gather half each."""
    step = Step("prefill", 1, 1000, 0)
    plain, split = (
        body_operators(
            model("llama-3.1-8b"), step, parallel=Parallel(tp=4, sequence_parallel=shared)
        )
        for shared in (False, True)
    )
    assert total(split, "wire_bytes") == pytest.approx(total(plain, "wire_bytes"))
    assert {o.kind for o in split if isinstance(o, Collective)} == {"reduce_scatter", "all_gather"}
    norms = [named(ops, "norm_residual") for ops in (plain, split)]
    assert (norms[0].tokens, norms[1].tokens) == (1000, 250)
    alone = body_operators(model("llama-3.1-8b"), step, parallel=Parallel(sequence_parallel=True))
    assert alone == body_operators(model("llama-3.1-8b"), step)


def test_stages_of_a_replica_lie_between_its_experts_ranks():
    """tp 2, pp 2, dp 4, ep 8: pairs of ranks, every other pair belongs to the other stage."""
    found = exchanges("qwen3-30b-a3b", Parallel(tp=2, pp=2, dp=4, ep=8), Step("decode", 8, 1, 9))
    dispatch = found["experts.dispatch"]
    assert (dispatch.ranks, dispatch.near, dispatch.span) == (8, 2, 16)
    assert isinstance(dispatch, Collective)
    assert dispatch.ranks_inside(8) == 4


@settings(max_examples=60, deadline=None)
@given(models(), st.integers(1, 4), st.sampled_from(["prefill", "decode"]))
def test_stages_compute_what_the_model_does(m, pp, phase):
    """Each operator belongs to one stage: the embedding to the first, the head to the last."""
    pp = min(pp, len(m.layers))
    step: Any = Step(phase, 3, 5 if phase == "prefill" else 1, 20)
    parallel = Parallel(pp=pp)
    whole = step_operators(m, step, parallel=parallel)
    stages = [step_operators(m, step, parallel=parallel, stage=s) for s in range(pp)]
    for quantity in ("flops", "bytes", "wire_bytes"):
        parts = sum(total(ops, quantity) for ops in stages)
        assert parts == pytest.approx(total(whole, quantity), rel=1e-12)
    assert sum(isinstance(o, Attention) for ops in stages for o in ops) >= sum(
        isinstance(o, Attention) for o in whole
    )
