"""Experts under a skew against seeded draws, and its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.operators.context import Step
from perfmodel.operators.expert_routing import busiest, expected_experts, taken
from perfmodel.operators.record import GroupedGemm
from perfmodel.operators.sharding import Parallel
from perfmodel.operators.step import body_operators
from tests.operators.support import model, named

skews = st.floats(0, 2.5)
layers = st.sampled_from([(8, 2, 4), (32, 4, 8), (128, 8, 16), (64, 6, 2), (16, 1, 4)])


def drawn(chances: Any, tokens: int, rounds: int, rng: Any) -> Any:
    """(rounds, tokens, k) experts by systematic sampling: each expert with its own chance, no
    expert twice in a token.
    """
    k = round(float(chances.sum()))
    points = rng.random((rounds, tokens, 1)) + np.arange(k)
    ends = np.cumsum(chances)
    ends[-1] = k
    return np.searchsorted(ends, points, side="right")


@pytest.mark.parametrize("skew", [0.0, 0.6, 1.2])
def test_distinct_experts_against_drawn_tokens(skew):
    """32 experts, 4 of them for each of 16 tokens, 5,000 rounds."""
    chances = taken(32, 4, skew)
    picks = drawn(chances, 16, 5000, np.random.default_rng(1))
    assert (np.diff(np.sort(picks, axis=2), axis=2) > 0).all()  # distinct within a token
    distinct = np.mean([len(np.unique(one)) for one in picks])
    assert expected_experts(32, 4, 16, skew) == pytest.approx(distinct, rel=0.005)


@pytest.mark.parametrize("skew", [0.6, 1.2])
def test_the_busiest_rank_against_dealt_experts(skew):
    """32 experts dealt to 8 ranks 20,000 times by another seed: the heaviest rank's pairs over the
    mean, and how many of its four experts 16 tokens touch.
    """
    chances = taken(32, 4, skew)
    rng = np.random.default_rng(2)
    deals = rng.permuted(np.tile(chances, (20_000, 1)), axis=1).reshape(-1, 8, 4)
    loads = deals.sum(axis=2)
    most = deals[np.arange(len(deals)), loads.argmax(axis=1)]
    there = busiest(32, 4, 8, skew)
    assert there.over_mean == pytest.approx(loads.max(axis=1).mean() / (4 / 8), rel=0.01)
    assert there.active(16) == pytest.approx((1 - (1 - most) ** 16).sum(axis=1).mean(), rel=0.01)


def test_chances_by_hand():
    """Weights 1, 1/2, 1/3, 1/4 and two of four: twice 12/25 = 0.96 for the first. At exponent 2 it
    would get 2·144/205 > 1: it is always taken, and the others share one by 1/4 : 1/9 : 1/16.
    """
    assert taken(4, 2, 1.0) == pytest.approx([0.96, 0.48, 0.32, 0.24])
    assert taken(4, 2, 2.0) == pytest.approx([1, 36 / 61, 16 / 61, 9 / 61])
    assert taken(4, 4, 2.0) == pytest.approx([1, 1, 1, 1])


@given(layers, skews, st.integers(1, 500))
def test_even_popularity_is_the_plain_formula(layer, skew, tokens):
    experts, k, ranks = layer
    assert expected_experts(experts, k, tokens, 0.0) == experts * (1 - (1 - k / experts) ** tokens)
    even = busiest(experts, k, ranks, 0.0)
    assert even.over_mean == pytest.approx(1)
    assert even.active(tokens) * ranks == pytest.approx(expected_experts(experts, k, tokens))
    chances = taken(experts, k, skew)
    assert chances.sum() == pytest.approx(k)
    assert (chances <= 1 + 1e-12).all()
    assert (np.diff(chances) <= 1e-12).all()


@settings(deadline=None, max_examples=50)
@given(layers, skews, skews, st.integers(1, 500))
def test_more_skew_touches_fewer_experts_and_loads_the_busiest_rank_more(layer, a, b, tokens):
    """The mean over so many deals is within 1 % of that over all."""
    experts, k, ranks = layer
    less, more = sorted((a, b))
    assert expected_experts(experts, k, tokens, more) <= expected_experts(
        experts, k, tokens, less
    ) * (1 + 1e-12)
    loads = [busiest(experts, k, ranks, skew).over_mean for skew in (less, more)]
    assert loads[1] >= loads[0] * 0.99
    assert all(0.999 <= load <= min(ranks, experts / k) + 1e-9 for load in loads)


def test_many_tokens_are_counted_as_each():
    counts = np.array([[1.0, 7.0, 7.0], [64.0, 1.0, 3.0]])
    there = busiest(32, 4, 8, 0.8)
    counted = (
        lambda t: expected_experts(32, 4, t, 0.8), there.active, lambda t: there.tiles(t, 16),
    )  # fmt: skip
    for many in counted:
        together: Any = many(counts)
        assert np.allclose(together, [[many(t) for t in row] for row in counts], rtol=1e-12)


def test_the_step_waits_for_the_busiest_rank():
    """Rows and messages of qwen3-30b-a3b's 128 experts on four ranks at exponent 1."""
    step = Step("decode", 8, 1, 100)
    even, skewed = (
        body_operators(model("qwen3-30b-a3b"), step, parallel=Parallel(ep=4, dp=4, expert_skew=s))
        for s in (0.0, 1.0)
    )
    over = busiest(128, 8, 4, 1.0).over_mean
    gemms = [[o for o in ops if isinstance(o, GroupedGemm)] for ops in (even, skewed)]
    for plain, uneven in zip(*gemms, strict=True):
        assert uneven.rows == pytest.approx(over * plain.rows)
        assert uneven.active_experts < plain.active_experts
        assert uneven.weight_bytes < plain.weight_bytes
    sent = [named(ops, "experts.dispatch").message_bytes for ops in (even, skewed)]
    assert sent[1] / sent[0] == pytest.approx((1 - (1 - over / 4) ** 8) / (1 - 0.75**8))
