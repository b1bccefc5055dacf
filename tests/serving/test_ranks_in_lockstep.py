"""Attention replicas that share experts: what each computes, and what all of them do together."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from perfmodel.serving.lockstep import LockstepSteps
from perfmodel.serving.serve import Served, served
from perfmodel.serving.steady_state import FastEngine
from perfmodel.serving.step_arrays import LockstepArrays, PricedArrays
from perfmodel.serving.tables import TabulatedSteps
from perfmodel.specs.deployment import Deployment

RANKS = 8
LONGEST = 16_384


@cache
def case(overlap: float = 0.0) -> Served:
    deployment = Deployment(dp=RANKS, ep=RANKS, comm_overlap=overlap)
    return served("deepseek-r1", "h200-sxm", deployment)


@cache
def tables() -> TabulatedSteps:
    return TabulatedSteps(case().pricer, LONGEST)


def test_a_ranks_own_work_and_the_experts_are_the_shared_work():
    pricer = case().pricer
    tokens = np.array([1.0, 7.0, 512.0, 8192.0])
    for decoding in (0.0, tokens):
        own, sent = pricer.own(tokens, decoding)
        whole, exchanges = pricer.shared(tokens, decoding)
        experts = pricer.experts(RANKS * tokens, decoding)
        assert own + experts == pytest.approx(whole, rel=1e-12)
        assert sent == pytest.approx(exchanges, rel=1e-12)
    assert pricer.fixed(tokens, RANKS * tokens) == pytest.approx(pricer.fixed(tokens), rel=1e-12)


def test_experts_compute_the_tokens_of_all_ranks_and_not_the_fullest_ones():
    """One prompt of 8,192 tokens: as on one rank, beside experts that get 1,024 from each."""
    pricer = case().pricer
    full, even = (float(pricer.shared(tokens)[0]) for tokens in (8192.0, 1024.0))
    experts = float(pricer.experts(8192.0))
    uneven = float(pricer.own(8192.0)[0]) + experts
    assert full == pytest.approx(1.05, abs=0.01)
    assert uneven == pytest.approx(0.47, abs=0.01)
    assert full / RANKS < uneven < full
    # The experts of an even step with as many tokens in all take as long.
    assert experts == pytest.approx(even - float(pricer.own(1024.0)[0]), rel=1e-12)
    lockstep, alone = LockstepSteps(tables(), RANKS), tables()
    told = lockstep.mixed(0, 0.0, [(8192, 0)], 1)
    assert alone.mixed(0, 0.0, [(8192, 0)], 1) - told == pytest.approx(full - uneven, rel=1e-9)


def test_even_ranks_step_as_each_of_them():
    alone, lockstep = tables(), LockstepSteps(tables(), RANKS)
    for own in (1, 16, 300):
        everywhere = RANKS * own
        expected = alone.decode(own, 900.0 * own)
        assert lockstep.decode(everywhere, 900.0 * everywhere) == pytest.approx(expected, rel=1e-12)
        chunks = [(1024, 64)]
        expected = alone.mixed(own, 900.0 * own, chunks, 1)
        told = lockstep.mixed(everywhere, 900.0 * everywhere, RANKS * chunks, RANKS)
        assert told == pytest.approx(expected, rel=1e-9)


def test_few_sequences_touch_few_experts():
    """One sequence of eight ranks takes 8 experts of 256 and not 8 times as many."""
    lockstep = LockstepSteps(tables(), RANKS)
    one, eight = lockstep.decode(1, 1000.0), lockstep.decode(RANKS, 1000.0 * RANKS)
    assert one < 0.8 * eight
    pricer = case().pricer
    experts = float(pricer.experts(1.0, 1.0)), float(pricer.experts(8.0, 1.0))
    assert eight - one == pytest.approx(experts[1] - experts[0], rel=1e-9)


def test_more_tokens_never_make_a_step_shorter():
    lockstep = LockstepSteps(tables(), RANKS)
    sizes = (64, 512, 2048, 8192)
    steps = [lockstep.mixed(0, 0.0, [(n, 0)], 1) for n in sizes]
    assert steps == sorted(steps)
    # Further prompts on ranks that idle cost their share of the experts alone.
    counts = [lockstep.mixed(0, 0.0, n * [(2048, 0)], n) for n in (1, 2, 4, 8, 9)]
    assert counts == sorted(counts)
    assert counts[3] < 2.5 * counts[0]
    assert counts[4] > 1.3 * counts[3]


def test_the_slowest_rank_counts():
    """A short chunk far into its prompt may take longer than a long one at its start."""
    lockstep = LockstepSteps(tables(), 2)
    early, late = (2048, 0), (1536, 14_000)
    both = lockstep.mixed(0, 0.0, [early, late], 0)
    assert both >= lockstep.mixed(0, 0.0, [late, early], 0) * (1 - 1e-12)
    alone = tables().mixed(0, 0.0, [late], 0, early[0] + late[0])
    assert both == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_arrays_are_the_tables(overlap):
    pricer = case(overlap).pricer
    arrays = LockstepArrays(PricedArrays(pricer, LONGEST), RANKS)
    lockstep = LockstepSteps(TabulatedSteps(pricer, LONGEST), RANKS)
    counts, each = np.array([1.0, 12.0, 64.0]), np.array([800.0, 2000.0, 1200.0])
    new, prompts = np.array([500.0, 508.0, 256.0]), np.array([1.0, 1.0, 3.0])
    decodes = arrays.decode(counts, each)
    attention = arrays.attention(prompts, new, 0 * new)
    mixes = arrays.mixed(counts, each, prompts * new, attention, prompts)
    for i, n in enumerate(counts.astype(int).tolist()):
        assert decodes[i] == pytest.approx(lockstep.decode(n, n * each[i]), rel=0.005)
        chunks = int(prompts[i]) * [(int(new[i]), 0)]
        told = lockstep.mixed(n, n * each[i], chunks, len(chunks))
        assert mixes[i] == pytest.approx(told, rel=0.01)
    zero = 0 * counts
    assert arrays.mixed(counts, each, zero, zero, zero) == pytest.approx(decodes, rel=1e-12)


def test_a_prompt_beyond_a_ranks_budget_takes_several_steps():
    arrays = FastEngine.of(case()).times
    own = case().engine.max_num_batched_tokens / RANKS
    zero, one = np.zeros(1), np.ones(1)
    whole = arrays.mixed(zero, one, np.array([own]), zero, one)
    several = arrays.mixed(zero, one, np.array([4 * own]), zero, one)
    assert several == pytest.approx(4 * whole, rel=0.02)
    # Beside decoding sequences each further step takes what its chunk adds.
    beside, each = np.array([8.0]), np.array([500.0])
    alone = arrays.decode(beside, each)
    first = arrays.mixed(beside, each, np.array([own - 1]), zero, one)
    several = arrays.mixed(beside, each, np.array([3 * (own - 1)]), zero, one)
    assert several - alone == pytest.approx(3 * (first - alone), rel=0.02)
    # A chunk of no prompt that ends isn't free.
    assert arrays.mixed(zero, one, np.array([own]), zero, zero) > 0.9 * whole
