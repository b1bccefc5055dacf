"""Attention replicas that share experts: what each computes, and what all of them do together."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from perfmodel.errors import InputError
from perfmodel.serving.arrivals import ClosedLoop, Demand
from perfmodel.serving.kv_room import kv_room
from perfmodel.serving.lockstep import LockstepSteps, Share
from perfmodel.serving.occupancy import Occupancy
from perfmodel.serving.recorder import Recorder, Watch
from perfmodel.serving.sequence import Sequence
from perfmodel.serving.serve import Served, served
from perfmodel.serving.simulate import simulate_engines
from perfmodel.serving.steady_state import FastEngine, steady_state_of
from perfmodel.serving.step_arrays import LockstepArrays, PricedArrays
from perfmodel.serving.step_times import Chunk
from perfmodel.serving.tables import TabulatedSteps
from perfmodel.specs.deployment import Deployment
from tests.serving.support import Times
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


def prompts(*chunks: Chunk) -> list[Share]:
    """Each ends on a rank of its own."""
    return [Share(0, 0.0, (chunk,), 1) for chunk in chunks]


def shared(sequences: int, each: float, chunks: list[Chunk]) -> list[Share]:
    """``sequences`` of ``each`` cached tokens and chunks that end, over all ranks in turn."""
    counts = [len(range(rank, sequences, RANKS)) for rank in range(RANKS)]
    own = [tuple(chunks[rank::RANKS]) for rank in range(RANKS)]
    return [Share(n, n * each, mine, len(mine)) for n, mine in zip(counts, own, strict=True)]


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
    told = lockstep.mixed(prompts((8192, 0)))
    assert alone.mixed(0, 0.0, [(8192, 0)], 1) - told == pytest.approx(full - uneven, rel=1e-9)


def test_even_ranks_step_as_each_of_them():
    alone, lockstep = tables(), LockstepSteps(tables(), RANKS)
    for own in (1, 16, 300):
        even = RANKS * [Share(own, 900.0 * own)]
        expected = alone.decode(own, 900.0 * own)
        assert lockstep.decode(even) == pytest.approx(expected, rel=1e-12)
        assert lockstep.stretch(even, 1) == (1, pytest.approx(expected), pytest.approx(expected))
        chunks = [(1024, 64)]
        expected = alone.mixed(own, 900.0 * own, chunks, 1)
        told = lockstep.mixed(RANKS * [Share(own, 900.0 * own, tuple(chunks), 1)])
        assert told == pytest.approx(expected, rel=1e-9)


def test_few_sequences_touch_few_experts():
    """One sequence of eight ranks takes 8 experts of 256 and not 8 times as many."""
    lockstep = LockstepSteps(tables(), RANKS)
    one, eight = (lockstep.decode(n * [Share(1, 1000.0)]) for n in (1, RANKS))
    assert one < 0.8 * eight
    pricer = case().pricer
    experts = float(pricer.experts(1.0, 1.0)), float(pricer.experts(8.0, 1.0))
    assert eight - one == pytest.approx(experts[1] - experts[0], rel=1e-9)


def test_more_tokens_never_make_a_step_shorter():
    lockstep = LockstepSteps(tables(), RANKS)
    sizes = (64, 512, 2048, 8192)
    steps = [lockstep.mixed(prompts((n, 0))) for n in sizes]
    assert steps == sorted(steps)
    # Further prompts on ranks that idle cost their share of the experts alone.
    chunk = (2048, 0)
    counts = [lockstep.mixed(prompts(*n * [chunk])) for n in (1, 2, 4, 8)]
    two = Share(0, 0.0, (chunk, chunk), 2)
    counts.append(lockstep.mixed([*prompts(*7 * [chunk]), two]))
    assert counts == sorted(counts)
    assert counts[3] < 2.5 * counts[0]
    assert counts[4] > 1.3 * counts[3]


def test_the_slowest_rank_counts():
    """A short chunk far into its prompt may take longer than a long one at its start."""
    lockstep = LockstepSteps(tables(), 2)
    early, late = (2048, 0), (1536, 14_000)
    shares = [Share(0, 0.0, (early,)), Share(0, 0.0, (late,))]
    both = lockstep.mixed(shares)
    assert both == lockstep.mixed(shares[::-1])
    alone = tables().mixed(0, 0.0, [late], 0, early[0] + late[0])
    assert both == pytest.approx(alone, rel=1e-12)
    # One that only decodes may as well: 600 sequences of 8,000 tokens beside 8 tokens of a prompt.
    shares = [Share(600, 4.8e6), Share(0, 0.0, ((8, 0),))]
    alone = tables().mixed(600, 4.8e6, [], 0, 608)
    assert lockstep.mixed(shares) == alone > tables().mixed(0, 0.0, [(8, 0)], 0, 608)


def test_a_stretch_ends_where_another_rank_becomes_the_slowest():
    """Two take 1 + n/8 + c/64 a step: 11 and 12 at first, level after 8 steps, 13 then."""
    lockstep = LockstepSteps(Times(1.0, 0.125, 2**-6), 2)
    many, long = Share(16, 512), Share(8, 640)  # gains of 16/64 and 8/64 a step
    assert [lockstep.decode([share]) for share in (many, long)] == [11, 12]
    assert lockstep.stretch([many, long], 5) == (5, 12, 12.5)
    assert lockstep.stretch([many, long], 40) == (9, 12, 13)
    after = Share(16, 512 + 16 * 8), Share(8, 640 + 8 * 8)
    assert lockstep.decode(after) == 13
    assert lockstep.stretch(after, 40) == (40, 13, 13 + 39 / 4)
    # A third with fewer sequences and tokens than one of them is never asked for.
    assert lockstep.stretch([many, long, Share(8, 600)], 40) == (9, 12, 13)


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
        told = lockstep.decode(shared(n, float(each[i]), []))
        assert decodes[i] == pytest.approx(told, rel=0.005)
        chunks = int(prompts[i]) * [(int(new[i]), 0)]
        told = lockstep.mixed(shared(n, float(each[i]), chunks))
        assert mixes[i] == pytest.approx(told, rel=0.01)
    zero = 0 * counts
    assert arrays.mixed(counts, each, zero, zero, zero) == pytest.approx(decodes, rel=1e-12)


def test_a_prompt_beyond_a_ranks_budget_takes_several_steps():
    arrays = FastEngine.of(case()).times
    own = float(case().engine.max_num_batched_tokens)
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


def test_long_prompts_of_a_deployment_keep_to_their_ranks():
    """A prompt of two budgets takes two steps of a rank, beside others no longer than alone."""
    made = case()
    own = made.engine.max_num_batched_tokens
    alone, full = (
        simulate_engines(
            Demand(ClosedLoop(users), lengths(2 * own), lengths(2), users), made.engine
        ).ttft_s.mean
        for users in (1, RANKS)
    )
    assert isinstance(made.engine.times, LockstepSteps)
    step = made.engine.times.mixed([Share(0, 0.0, ((own, 0),))])
    assert alone > 1.9 * step
    assert alone < full < 3 * alone  # 8 prompts at once, with eightfold work of the experts


def test_a_request_longer_than_one_ranks_cache_never_fits():
    """DeepSeek-R1 leaves each of eight H200 25,247 whole blocks of 16 tokens: 403,952 tokens."""
    made, memory = case(), case().plan
    alone = kv_room(memory.model, made.hardware, memory)
    assert made.engine.capacity == RANKS * alone.capacity
    room = alone.blocks().longest()
    assert room == 16 * int(alone.capacity) == 403_952
    assert made.engine.misfit()(room - 1, 1) is None
    assert f"has room for {room:,}" in str(made.engine.misfit()(room, 1))
    instance = made.engine.instance(Watch(Recorder(), Occupancy(1.0, 1)))
    with pytest.raises(InputError, match=f"the cache holds {room} of one sequence"):
        instance.submit(Sequence(0, 0.0, room, 1), 0.0)
    with pytest.raises(InputError, match=f"room for {room:,}"):
        steady_state_of(FastEngine.of(made), concurrency=1, prompt=np.array(room), output=1)
