"""Rounds against plain steps, their limits and signs, memory, the best setting, break-even."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel import Deployment, Speculation, Workload, estimate
from perfmodel.inference.estimate import Estimate
from perfmodel.inference.speculation.best import parts_of, with_tree
from perfmodel.inference.speculation.rounds import Rounds
from perfmodel.inference.steps import mean_context
from perfmodel.operators.context import Step
from perfmodel.operators.record import Attention, GroupedGemm, Recurrence
from perfmodel.operators.step import step_operators
from perfmodel.specs.loading import load_model

CASE = Workload(batch=4, prompt=300, output=40)


def run(
    speculation: Speculation | None, model: str = "llama-3.1-8b", case: Workload = CASE, tp: int = 1
) -> Estimate:
    deployment = Deployment(stack="generic", tp=tp, speculation=speculation)
    return estimate(model, "h100-sxm", case, deployment)


def ngram(tokens: int = 4, acceptance: float = 0.6) -> Speculation:
    return Speculation(method="ngram", tokens=tokens, acceptance=acceptance)


METHODS = {
    "draft": Speculation(method="draft", draft_model="llama-3.2-1b", tokens=3, acceptance=0.7),
    "eagle": Speculation(method="eagle", tree=(3, 2, 1), acceptance=0.7),
    "medusa": Speculation(method="medusa", tree=(4, 2), acceptance=0.6),
    "ngram": ngram(),
    "lookahead": Speculation(method="lookahead", tree=(5, 1, 1), acceptance=0.3),
}


# --- operators: what a tree and a chain count -------------------------------------------------


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


# --- limits -----------------------------------------------------------------------------------


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


# --- memory -----------------------------------------------------------------------------------


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


# --- signs ------------------------------------------------------------------------------------


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


# --- best setting and break-even ----------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 96])
@pytest.mark.parametrize("method", ["draft", "ngram", "eagle"])
def test_the_best_chain_is_the_best_of_all_tried_one_by_one(method, batch):
    case = Workload(batch=batch, prompt=300, output=40)
    drafted_by = METHODS[method].draft_model
    answers = []
    for tokens in range(17):
        asked = Speculation(
            method=METHODS[method].method, draft_model=drafted_by, tokens=tokens, acceptance=0.7
        )
        answer = run(asked, case=case).speculation
        assert answer is not None
        answers.append(answer)
    speedups = [float(answer.speedup) for answer in answers]
    best = answers[4].best  # asked for four, tries up to 16
    assert best.tokens == int(np.argmax(speedups))
    assert best.speedup == pytest.approx(max(speedups), rel=1e-9)


def test_the_best_tree_is_the_best_of_its_parts():
    asked = Speculation(method="eagle", tree=(4, 2, 1), acceptance=0.6)
    case = Workload(batch=24, prompt=300, output=40)
    whole = run(asked, case=case).speculation
    assert whole is not None
    gains = {}
    for tree in parts_of((4, 2, 1)):
        answer = run(with_tree(asked, tree), case=case).speculation
        assert answer is not None
        gains[tree] = answer.speedup
    assert whole.best.tree == max(gains, key=lambda tree: gains[tree])
    assert whole.best.speedup == pytest.approx(max(gains.values()), rel=1e-9)


def test_rates_by_depth_bound_the_best_chain():
    asked = Speculation(method="ngram", tokens=3, acceptance=(0.9, 0.9, 0.0))
    answer = run(asked).speculation
    assert answer is not None
    assert answer.best.tokens == 2  # the third is never accepted


@pytest.mark.parametrize("dp", [1, 2])
def test_the_break_even_is_the_first_batch_that_does_not_pay(dp):
    deployment = Deployment(stack="generic", dp=dp, speculation=ngram(6, 0.3))
    result = estimate("llama-3.1-8b", "h100-sxm", Workload(batch=2, prompt=200), deployment)
    answer = result.speculation
    assert answer is not None
    _, cached = mean_context(result.workload, result.plan)
    batches = np.arange(1.0, 200.0)
    plain = answer.rounds.plain(batches, cached).total.time_s
    paid = answer.expected_tokens * plain > answer.rounds.cost(batches, cached).total.time_s
    replica = 1 + int(np.argmin(paid))
    assert not paid.all()
    assert answer.break_even_batch == (replica - 1) * dp + 1


def test_where_every_batch_that_fits_pays_there_is_no_break_even():
    answer = run(ngram(1, 1.0), case=Workload(prompt=8000, output=64)).speculation
    assert answer is not None
    assert np.isnan(answer.break_even_batch)


# --- arrays -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["eagle", "draft"])
def test_arrays_are_the_loop_over_their_elements(method):
    batches, prompts = np.array([1, 40]), np.array([[100], [5000]])
    whole = run(METHODS[method], case=Workload(batch=batches, prompt=prompts, output=20))
    answer = whole.speculation
    assert answer is not None
    for i in range(2):
        for j in range(2):
            case = Workload(batch=int(batches[j]), prompt=int(prompts[i, 0]), output=20)
            one = run(METHODS[method], case=case)
            assert one.speculation is not None
            assert np.asarray(whole.tpot_s)[i, j] == pytest.approx(one.tpot_s, rel=1e-9)
            assert np.asarray(answer.speedup)[i, j] == pytest.approx(one.speculation.speedup)
            assert np.asarray(answer.best.tokens)[i, j] == one.speculation.best.tokens
            assert np.array_equal(
                np.asarray(answer.break_even_batch)[i, 0],
                one.speculation.break_even_batch,
                equal_nan=True,
            )


def test_logits_of_drafted_tokens_need_room_beyond_the_samplers_own():
    """vLLM's 1,024 rows of 38.04 B cover 1,024·38.04/(38.04 + 8·7) = 414 sequences of 1 + 7."""
    below, above = (
        run(ngram(7), case=Workload(batch=batch, prompt=20, output=4)).memory.activation_bytes
        for batch in (414, 415)
    )
    assert below == run(None).memory.activation_bytes
    each = (38.04 + 56) * 128_256
    assert above == pytest.approx(below - 1024 * 38.04 * 128_256 + 415 * each, rel=1e-5)
