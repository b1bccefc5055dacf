"""Rounds against plain steps, their limits and signs, memory, the best setting, break-even."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel import Speculation, Workload
from perfmodel.inference.estimate import Estimate
from perfmodel.inference.speculation.rounds import Rounds
from perfmodel.operators.context import Step
from perfmodel.operators.record import Attention, GroupedGemm, Recurrence
from perfmodel.operators.step import step_operators
from perfmodel.specs.loading import load_model
from tests.inference.speculation.rounds_case import METHODS, ngram, run


def mask_pairs(parents: list[int], cached: int, window: int | None) -> int:
    """Keys that each node of a tree sees, counted one by one; parents[0] is the root's, −1."""
    pairs = 0
    for node in range(len(parents)):
        depth, above = 0, node
        while parents[above] >= 0:
            depth, above = depth + 1, parents[above]
        position = cached + depth
        keys = range(position + 1)
        pairs += sum(window is None or position - key < window for key in keys)
    return pairs


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b", "deepseek-v3"])
def test_a_tree_is_counted_by_its_mask(name):
    """(2, 2): root 0; nodes 1, 2 below it; 3, 4 below 1 and 5, 6 below 2."""
    parents = [-1, 0, 0, 1, 1, 2, 2]
    step = Step("decode", 1, 7, 140, 7, branches=((1, 0), (2, 1), (4, 2)))
    for operator in step_operators(load_model(name), step):
        if isinstance(operator, Attention):
            assert operator.pairs == mask_pairs(parents, 140, operator.window)


def test_a_chain_as_a_tree_is_the_chain():
    chain = Step("decode", 2, 4, 500, 4)
    tree = replace(chain, branches=((1, 0), (1, 1), (1, 2), (1, 3)))
    for a, b in zip(
        *(step_operators(load_model("gpt-oss-20b"), s) for s in (chain, tree)), strict=True
    ):
        assert (a.flops, a.bytes) == (b.flops, b.bytes)


def test_verification_touches_more_experts_and_reads_the_cache_once():
    """256 experts, 8 per token: T = 1 → 8, T = 4 → 256·(1 − (31/32)⁴) = 30.53."""
    model = load_model("deepseek-v3")
    one, four = (step_operators(model, Step("decode", 1, n, 999, n)) for n in (1, 4))
    experts = [o.active_experts for o in four if isinstance(o, GroupedGemm)]
    assert experts == pytest.approx([30.53, 30.53], abs=5e-3)
    keys = [[o.keys for o in ops if isinstance(o, Attention)] for ops in (one, four)]
    assert keys == [[1000], [1003]]


def test_each_verified_token_of_a_recurrent_layer_keeps_its_state():
    model = load_model("qwen3-next-80b-a3b")
    found = [o for o in step_operators(model, Step("decode", 2, 3, 9, 3))
             if isinstance(o, Recurrence)]  # fmt: skip
    assert all(o.cache_bytes == (1 + 3) * o.state_bytes * 2 for o in found)
    assert found


def test_no_drafted_tokens_is_plain_decoding_exactly():
    plain, none = run(None), run(ngram(tokens=0))
    assert none.decode_total == plain.decode_total
    assert none.decode.cost == plain.decode.cost
    assert none.memory == plain.memory
    assert none.speculation is not None
    assert none.speculation.speedup == 1.0


@pytest.mark.parametrize("method", METHODS)
def test_nothing_accepted_gives_one_token_a_round_and_costs_more(method):
    given_ = METHODS[method].model_copy(update={"acceptance": 0.0})
    result = run(given_)
    answer = result.speculation
    assert answer is not None
    assert answer.expected_tokens == 1.0
    assert answer.speedup < 1
    assert result.tpot_s == pytest.approx(answer.round_s, rel=0.02)  # at the mean context


def test_all_accepted_gives_every_token_and_the_targets_own():
    """39 tokens after the first, 5 a round: 7.8 rounds."""
    result = run(ngram(tokens=4, acceptance=1.0))
    answer = result.speculation
    assert answer is not None
    assert answer.expected_tokens == 5
    assert result.decode_total.time_s == pytest.approx(7.8 * answer.round_s, rel=0.01)


@pytest.mark.parametrize("method", METHODS)
def test_all_rounds_are_the_loop_over_them(method):
    """Round r finds prompt + r·E tokens; the last counts by the part that is needed."""
    result = run(METHODS[method])
    answer = result.speculation
    assert answer is not None
    needed, seconds, r = 39 / answer.expected_tokens, 0.0, 0
    while r < needed:
        one = answer.rounds.cost(4, 300 + r * answer.expected_tokens).total.time_s
        seconds += min(1.0, needed - r) * one
        r += 1
    assert result.decode_total.time_s == pytest.approx(seconds, rel=1e-9)


def test_the_drafts_rows_stand_apart_and_add_up():
    answer = run(METHODS["draft"]).speculation
    assert answer is not None
    names = {row.name for row in answer.round.operators}
    assert {"draft.lm_head", "lm_head", "draft.attention"} <= names
    assert answer.draft_s > 0
    total = sum(row.cost.time_s for row in answer.round.operators)
    assert answer.round_s == pytest.approx(total, rel=1e-12)


def test_a_drafts_pass_over_the_prompt_is_in_the_first_token():
    plain, drafted = run(None), run(METHODS["draft"])
    alone = run(None, "llama-3.2-1b")
    assert drafted.ttft_s > plain.ttft_s + 0.8 * alone.ttft_s
    assert run(METHODS["ngram"]).ttft_s == plain.ttft_s


def test_a_stated_cost_prices_a_round_alone():
    """Four tokens at 0.08 of a step each: a round takes 1.32 steps, whatever the operators."""
    stated = Speculation(method="mtp", tokens=4, acceptance=0.7, draft_cost=0.08)
    answer = run(stated, "glm-4.5", tp=8).speculation
    assert answer is not None
    assert answer.speedup == pytest.approx(2.7731 / 1.32, rel=1e-4)
    assert answer.draft_cost == pytest.approx(0.08, rel=1e-9)
    assert answer.break_even_batch is None


@pytest.mark.parametrize(
    ("method", "weights"),
    [
        # 1,235,814,400 parameters of Llama-3.2-1B (tied table once), 2 bytes each
        ("draft", 2 * 1_235_814_400),
        # join 8192·4096; layer 4096·(6144 + 4096) + 3·4096·14336 and two norms
        ("eagle", 2 * (8192 * 4096 + 4096 * 10240 + 3 * 4096 * 14336 + 2 * 4096)),
        # two heads: 4096² + 4096, and 4096·128256
        ("medusa", 2 * 2 * (4096 * 4096 + 4096 + 4096 * 128256)),
        ("ngram", 0),
    ],
)
def test_weights_of_the_draft_are_counted(method, weights):
    more = run(METHODS[method]).memory.weights_bytes - run(None).memory.weights_bytes
    assert more == weights


def test_the_draft_has_a_cache_and_drafted_tokens_have_slots():
    """Llama-3.1-8B 131,072 B a token and EAGLE's layer 4,096 more; 3 + 6 + 6 tokens of a tree."""
    result = run(METHODS["eagle"], case=Workload(batch=1, prompt=1000, output=24))
    assert result.memory.kv_bytes_per_token == 131_072 + 4_096
    assert result.memory.kv_stored_bytes == (1024 + 15) * (131_072 + 4_096)


def test_the_mtp_module_is_counted():
    asked = Speculation(method="mtp", tokens=1, acceptance=0.8)
    plain, module = (run(s, "qwen3-next-80b-a3b", tp=4).memory for s in (None, asked))
    assert module.weights_bytes > plain.weights_bytes
    assert module.kv_bytes > plain.kv_bytes


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 7), st.sampled_from([100, 2000, 30_000]))
def test_more_drafted_tokens_never_leave_room_for_more_sequences(tokens, prompt):
    case = Workload(prompt=prompt, output=64)
    fewer, more = (run(ngram(n), case=case).memory.max_sequences for n in (tokens, tokens + 1))
    assert more <= fewer <= run(None, case=case).memory.max_sequences


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(sorted(METHODS)), st.floats(0, 1), st.floats(0, 1), st.sampled_from([1, 16, 64])
)
def test_more_acceptance_is_never_slower(method, a, b, batch):
    case = Workload(batch=batch, prompt=500, output=64)
    low, high = (
        run(METHODS[method].model_copy(update={"acceptance": rate}), case=case)
        for rate in sorted((a, b))
    )
    assert high.tpot_s <= low.tpot_s * (1 + 1e-9)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite"]),
    st.integers(0, 6),
    st.integers(1, 200),
    st.integers(1, 56),
)
def test_verification_is_never_cheaper_at_a_larger_batch_or_with_more_tokens(
    name, tokens, batch, more
):
    rounds = rounds_of(run(ngram(), name))
    base = rounds.verify(batch, 700, None, tokens).total.time_s
    assert rounds.verify(batch + more, 700, None, tokens).total.time_s >= base
    assert rounds.verify(batch, 700, None, tokens + 1).total.time_s >= base


def rounds_of(result: Estimate) -> Rounds:
    assert result.speculation is not None
    return result.speculation.rounds
