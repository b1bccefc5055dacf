"""The best number of drafted tokens, where it stops paying, and arrays of settings."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel import Deployment, Speculation, Workload, estimate
from perfmodel.inference.speculation.best import parts_of, with_tree
from perfmodel.inference.steps import mean_context
from tests.inference.speculation.rounds_case import METHODS, ngram, run


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
