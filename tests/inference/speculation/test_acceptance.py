"""Expected tokens of chains and trees: closed forms against hand-derived values and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.inference.speculation.acceptance import (
    chain_tokens,
    expected_tokens,
    implied_rate,
    round_tokens,
)
from perfmodel.specs.speculation import Speculation

ROUNDS = 100_000


def simulated(rates, branching, rng):
    """Tokens of each of `ROUNDS` rounds, drawn candidate by candidate, and nothing else."""
    tokens = np.ones(ROUNDS)
    alive = np.ones(ROUNDS, dtype=bool)
    for rate, children in zip(rates, branching, strict=True):
        accepted = np.zeros(ROUNDS, dtype=bool)
        for _ in range(children):
            accepted |= rng.random(ROUNDS) < rate
        alive &= accepted
        tokens += alive
    return tokens


@pytest.mark.parametrize(
    ("rates", "branching"),
    [
        ((0.7,) * 4, (1,) * 4),
        ((0.92, 0.72, 0.36, 0.71, 0.12), (1,) * 5),
        ((0.6, 0.5, 0.4), (4, 2, 1)),
        ((0.3,) * 3, (10, 1, 1)),
    ],
)
def test_expected_tokens_are_the_mean_of_simulated_rounds(rates, branching):
    tokens = simulated(rates, branching, np.random.default_rng(7))
    error = tokens.std() / np.sqrt(ROUNDS)
    assert abs(expected_tokens(rates, branching) - tokens.mean()) < 4 * error


@pytest.mark.parametrize(("tokens", "expected"), [(3, 2.533), (4, 2.773), (5, 2.941)])
def test_a_chain_at_seventy_per_cent(tokens, expected):
    """(1 − 0.7^{γ+1})/0.3: 0.7599/0.3, 0.83193/0.3, 0.882351/0.3."""
    assert expected_tokens([0.7] * tokens, [1] * tokens) == pytest.approx(expected, abs=5e-4)
    assert round_tokens(Speculation(method="ngram", tokens=tokens, acceptance=0.7)) == (
        pytest.approx((1 - 0.7 ** (tokens + 1)) / 0.3, rel=1e-12)
    )


def test_rates_by_depth_give_the_measured_lengths_where_one_rate_does_not():
    """DeepSeek-R1: 1 + .92 + .66 + .24 + .17 + .02 = 3.01; 0.92 at every depth gives 4.92."""
    rates = (0.92, 0.66 / 0.92, 0.24 / 0.66, 0.17 / 0.24, 0.02 / 0.17)
    assert expected_tokens(rates, [1] * 5) == pytest.approx(3.01, rel=1e-12)
    assert expected_tokens([0.92] * 5, [1] * 5) == pytest.approx(4.92, abs=5e-3)


@pytest.mark.parametrize("branching", [(1, 1, 1), (4, 2, 1), (8,)])
def test_nothing_accepted_and_all_accepted_are_exact(branching):
    assert expected_tokens([0.0] * len(branching), branching) == 1.0
    assert expected_tokens([1.0] * len(branching), branching) == len(branching) + 1


@given(st.floats(0.01, 0.99), st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_a_measured_length_implies_the_rate_that_gives_it(rate, branching):
    length = expected_tokens([rate] * len(branching), branching)
    again = implied_rate(length, branching)
    assert expected_tokens([again] * len(branching), branching) == pytest.approx(length, rel=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_all_chains_at_once_are_each_chain(rates):
    each = [expected_tokens(rates[:n], [1] * n) for n in range(len(rates) + 1)]
    assert np.allclose(chain_tokens(rates), each, rtol=1e-14, atol=0)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.floats(0, 1))
def test_a_wider_tree_never_gives_fewer_tokens(branching, rate):
    wider = [children + 1 for children in branching]
    rates = [rate] * len(branching)
    assert expected_tokens(rates, wider) >= expected_tokens(rates, branching)
