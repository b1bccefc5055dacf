"""Attention replicas that share experts: what each computes, and what all of them do together."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from perfmodel.errors import InputError
from perfmodel.serving.arrivals import ClosedLoop, Demand
from perfmodel.serving.kv_room import kv_room
from perfmodel.serving.lockstep import LockstepSteps, dealt
from perfmodel.serving.occupancy import Occupancy
from perfmodel.serving.policy import POLICIES
from perfmodel.serving.recorder import Recorder, Watch
from perfmodel.serving.sequence import Sequence
from perfmodel.serving.serve import Served, served
from perfmodel.serving.simulate import simulate_engines
from perfmodel.serving.steady_state import FastEngine, steady_state_of
from perfmodel.serving.step_arrays import LockstepArrays, PricedArrays
from perfmodel.serving.tables import TabulatedSteps
from perfmodel.specs.deployment import Deployment
from tests.serving.support import Times, drive, engine
from tests.serving.toy import lengths

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


class Told(Times):
    """Keeps the chunks of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[list[int]] = []

    def mixed(self, sequences, context, chunks, ended):
        self.steps.append([size for size, _ in chunks])
        return super().mixed(sequences, context, chunks, ended)


def steps_of(
    policy: str, ranks: int, budget: int, *prompts: int, seqs: int = 64, output: int = 2
) -> Told:
    times = Told()
    instance, _ = engine(policy, times, seqs=seqs, budget=ranks * budget, ranks=ranks)
    done = drive(instance, [Sequence(n, 0.0, tokens, output) for n, tokens in enumerate(prompts)])
    assert len(done) == len(prompts)
    return times


@pytest.mark.parametrize("policy", [name for name, policy in POLICIES.items() if policy.chunked])
def test_a_prompt_is_computed_on_one_rank(policy):
    """24 tokens with 8 a step and rank: three steps of one rank and not one of three."""
    assert steps_of(policy, 3, 8, 24).steps == [[8], [8], [8]]
    # Two prompts do so side by side, and a third, short one beside both.
    steps = steps_of(policy, 3, 8, 24, 16, 5, output=1).steps
    assert steps == [[8, 8, 5], [8, 8], [8]]


@pytest.mark.parametrize("policy", POLICIES)
def test_ranks_share_prompts_within_their_budgets(policy):
    times = steps_of(policy, 2, 8, 6, 6, 6, 6)
    if POLICIES[policy].chunked:  # what is left of each rank's 8 goes to the next prompts
        assert times.steps[0] == [6, 6, 2, 2]
    else:
        assert times.steps[0] == [6, 6]
    assert max(sum(step) for step in times.steps) <= 16


@pytest.mark.parametrize("policy", POLICIES)
def test_a_whole_prompt_beyond_a_ranks_budget(policy):
    """Where prompts aren't split, it gets its step; others find room on the ranks beside."""
    times = steps_of(policy, 2, 8, 12, 8)
    whole = [[12, 8]]
    assert times.steps[:2] == ([[8, 8], [4]] if POLICIES[policy].chunked else whole)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_chunk_fits_its_rank(policy):
    rng = random.Random(3)  # noqa: S311
    prompts = [rng.randint(1, 40) for _ in range(200)]
    ranks, budget = 4, 16
    times = steps_of(policy, ranks, budget, *prompts, seqs=24)
    assert sum(map(sum, times.steps)) == sum(prompts)
    for step in times.steps:
        piles = dealt([(size, 0) for size in step], ranks)
        for pile in piles:
            over = sum(size for size, _ in pile) > budget
            assert not over or (len(pile) == 1 and not POLICIES[policy].chunked)


def test_decoding_sequences_take_of_each_ranks_budget():
    """Six that decode are three on each of two ranks, which leave 5 of 8 tokens to a prompt."""
    times = Told()
    instance, _ = engine("chunked_mixed", times, seqs=64, budget=16, ranks=2)
    running = [Sequence(n, 0.0, 1, 50) for n in range(6)]
    drive(instance, [*running, Sequence(6, 1.5, 20, 2)])
    assert times.steps[0] == 6 * [1]
    assert times.steps[1:] == [[5], [5], [5], [5]]


def test_one_rank_is_the_engine_without_ranks():
    prompts = [5, 30, 64, 7, 130, 2]
    for policy in POLICIES:
        plain, _ = engine(policy, Told(), budget=32)
        one, _ = engine(policy, Told(), budget=32, ranks=1)
        ends = [
            [s.finish_s for s in drive(i, [Sequence(n, 0.0, p, 9) for n, p in enumerate(prompts)])]
            for i in (plain, one)
        ]
        assert ends[0] == ends[1]


def test_long_prompts_of_a_deployment_keep_to_their_ranks():
    """A prompt of two budgets takes two steps of a rank, beside others no longer than alone."""
    made = case()
    own = made.engine.max_num_batched_tokens // RANKS
    alone, full = (
        simulate_engines(
            Demand(ClosedLoop(users), lengths(2 * own), lengths(2), users), made.engine
        ).ttft_s.mean
        for users in (1, RANKS)
    )
    step = made.engine.times.mixed(0, 0.0, [(own, 0)], 0)
    assert alone > 1.9 * step
    assert alone < full < 3 * alone  # 8 prompts at once, with eightfold work of the experts


def test_a_request_longer_than_one_ranks_cache_never_fits():
    """DeepSeek-R1 leaves each of eight H200 25,247 whole blocks of 16 tokens: 403,952 tokens."""
    made, memory = case(), case().plan
    alone = kv_room(memory.model, made.hardware, memory)
    assert made.engine.blocks().capacity == RANKS * alone.capacity
    room = alone.blocks().longest()
    assert room == 16 * int(alone.capacity) == 403_952
    assert made.engine.misfit()(room - 1, 1) is None
    assert f"has room for {room:,}" in str(made.engine.misfit()(room, 1))
    instance = made.engine.instance(Watch(Recorder(), Occupancy(1.0, 1)))
    with pytest.raises(InputError, match=f"the cache holds {room} of one sequence"):
        instance.submit(Sequence(0, 0.0, room, 1), 0.0)
    with pytest.raises(InputError, match=f"room for {room:,}"):
        steady_state_of(FastEngine.of(made), concurrency=1, prompt=np.array(room), output=1)
