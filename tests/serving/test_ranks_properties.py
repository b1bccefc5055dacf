"""What holds for every number of ranks in lockstep and every stream of requests."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from perfmodel.serving.arrivals import ClosedLoop, Demand
from perfmodel.serving.blocks import Blocks
from perfmodel.serving.engine import Engine, Transfer
from perfmodel.serving.lockstep import LockstepSteps, Share
from perfmodel.serving.policy import POLICIES
from perfmodel.serving.ranks import Ranks
from perfmodel.serving.simulate import Disaggregation, simulate_engines
from perfmodel.serving.tier import Tier
from tests.serving.mean_field_case import RUNNING, asked, even, fast, run
from tests.serving.naive import Naive, NaiveRanks
from tests.serving.support import Recorder, Times, drive, ranked
from tests.serving.test_instance_properties import (
    CASES,
    ROWS,
    Case,
    ends,
    stream,
    with_steady_room,
)
from tests.serving.toy import REAL, lengths

RANKS = st.integers(1, 4)


def build(case: Case, ranks: int, *, jumps: bool = True) -> tuple[Ranks, Recorder]:
    """Ranks that are each an engine of ``case``."""
    return ranked(
        ranks,
        case.policy,
        Times(0.5, 0.125, case.token, 0.125, case.per_step, int(case.per_step), jumps),
        lambda: Blocks(case.capacity / case.block, case.block, case.fixed, block_bytes=8.0),
        case.seqs,
        case.budget,
        tuple(Tier(n, 32.0 / (i + 1)) for i, n in enumerate(case.tiers)) if case.caching else None,
        Tier(case.swap, 16.0) if case.swap else None,
    )


@given(CASES, ROWS, RANKS)
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_nothing_is_lost_on_any_rank(case: Case, rows: Any, ranks: int):
    # The recorder checks each rank's capacity, places and clock after every step.
    instance, told = build(replace(case, seqs=ceil(case.seqs / 2)), ranks)
    sent = stream(rows)
    done = drive(instance, sent)
    assert sorted(s.number for s in done) == list(range(len(sent)))
    for s in sent:
        assert s.generated == s.output
        assert s.arrival_s <= s.admitted_s < s.first_s <= s.finish_s
    assert told.tokens == sum(s.output - 1 for s in sent)
    assert len(told.preempted_numbers) == sum(s.preemptions for s in sent)
    assert instance.idle
    for rank in instance.ranks:
        blocks, batch = rank.blocks, rank.batch
        assert blocks.held == pytest.approx(0, abs=1e-9)
        assert (blocks.growing, blocks.grown(batch.tokens)) == (0, 0)
        assert (batch.slots, batch.context, batch.to_come, batch.due) == (0, 0, 0, [])
        assert rank.cache.in_host == 0


@given(CASES, ROWS)
@settings(max_examples=100, deadline=None)
def test_one_rank_is_an_engine(case: Case, rows: Any):
    one, engine = stream(rows), stream(rows)
    assert ends(drive(build(case, 1)[0], one)) == ends(drive(case.build()[0], engine))


@given(CASES, ROWS, RANKS)
@settings(max_examples=100, deadline=None)
def test_gaps_are_the_time_between_first_and_last_tokens(case: Case, rows: Any, ranks: int):
    instance, told = build(replace(case, per_step=1), ranks)
    sent = stream(rows)
    drive(instance, sent)
    assert told.seconds == pytest.approx(sum(s.finish_s - s.first_s for s in sent))


@given(CASES, ROWS, RANKS)
@settings(max_examples=150, deadline=None)
def test_every_step_by_itself_gives_the_same(case: Case, rows: Any, ranks: int):
    case = replace(case, fixed=(), caching=False, swap=0, per_step=1, seqs=ceil(case.seqs / 2))
    policy = POLICIES[case.policy]
    assume(not policy.padded)
    case = with_steady_room(case)
    instance, told = build(case, ranks)
    sent = stream(rows)
    drive(instance, sent)
    capacity = case.capacity / case.block
    times = instance.times.one
    naive = [
        Naive(policy, times, capacity, case.block, case.seqs, case.budget) for _ in range(ranks)
    ]
    expected = NaiveRanks(naive).run([(s.arrival_s, s.prompt, s.output) for s in sent])
    assert [s.number for s in sent] == [number for number, _, _ in expected]
    for s, (_, first, last) in zip(sent, expected, strict=True):
        assert s.first_s == pytest.approx(first)
        assert s.finish_s == pytest.approx(last)
    assert len(told.preempted_numbers) == sum(rank.preemptions for rank in naive)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 400)), min_size=1, max_size=6),
    st.integers(1, 200),
)
@settings(max_examples=200, deadline=None)
def test_a_stretch_is_its_steps_one_by_one(loads: list[tuple[int, int]], most: int):
    assume(any(n for n, _ in loads))
    lockstep = LockstepSteps(Times(1.0, 0.125, 2**-6), len(loads))
    shares = [Share(n, n * each) for n, each in loads]
    steps, first, last = lockstep.stretch(shares, most)
    assert 1 <= steps <= most

    def at(step: int) -> float:
        return lockstep.decode([Share(n, context + step * n) for n, context, *_ in shares])

    slope = (last - first) / max(steps - 1, 1)
    assert [first + slope * k for k in range(steps)] == pytest.approx([at(k) for k in range(steps)])


def toy(policy: str, ranks: int, capacity: float, budget: int = 2048, seqs: int = 256) -> Engine:
    """Ranks with the same step times as one engine of `REAL`."""
    return Engine(
        LockstepSteps(REAL, ranks), lambda: Blocks(capacity, 16), POLICIES[policy], seqs, budget
    )


@pytest.mark.parametrize("ranks", [2, 5])
def test_the_mean_field_holds_whole_sequences_on_each_rank(ranks):
    # 1,250 blocks of 16 tokens are 20,000: each rank holds 9 whole ones of 2,048 + 64, no 9.47.
    made = toy("inflight_no_evict_chunked", ranks, 1250)
    state = fast(made, asked(even(2048, 0), even(64, 0)), 12 * ranks)
    assert state.limited_by.tolist() == ["kv"]
    assert state.running[0] == pytest.approx(9 * ranks, rel=0.1)
    found = run(made, lengths(2048), lengths(64), 12 * ranks)
    assert found.mean_running == pytest.approx(9 * ranks, rel=0.01)


@pytest.mark.parametrize("policy", RUNNING)
@pytest.mark.parametrize(("ranks", "users", "capacity"), [(4, 10, 1e6), (8, 15, 800)])
def test_mean_field_and_simulation_agree(policy, ranks, users, capacity):
    """Even users on each rank; caches of 12,800 tokens hold some eleven of them each.

    Where a full cache evicts, prompts that are computed again make others wait: a rough part.
    """
    made = toy(policy, ranks, capacity, 4096)
    prompt, output = even(1000), even(300)
    state = fast(made, asked(prompt, output), ranks * users)
    found = run(made, prompt, output, ranks * users, cycles=40)
    rough = 0.1 if policy == "prefill_first" and capacity < 1e6 else 0.05
    assert state.requests_per_s[0] == pytest.approx(found.requests_per_s, rel=rough)
    assert state.tpot_s[0] == pytest.approx(found.tpot_s.mean, rel=rough)
    assert state.running[0] == pytest.approx(found.mean_running, rel=0.02)


def test_pools_of_ranks_hand_over_and_keep_nothing():
    """Prompts of one pool's ranks decode on those of another."""
    made = toy("chunked_mixed", 2, 800)
    demand = Demand(ClosedLoop(20), lengths("uniform:200:900"), lengths("uniform:2:90"), 300)
    found = simulate_engines(
        demand, made, disaggregation=Disaggregation(1, 2, Transfer(1e5, 1e9, 1e-3))
    )
    assert found.requests == 300
    assert found.output_tokens > 0


def test_an_even_load_on_ranks_is_that_of_one():
    """With times of a rank's own: each rank of four is one engine with a quarter of the users."""
    prompt, output = lengths(700), lengths(90)
    one, four = (toy("chunked_mixed", ranks, 2000) for ranks in (1, 4))
    alone = simulate_engines(Demand(ClosedLoop(8), prompt, output, 80), one)
    ranks = simulate_engines(Demand(ClosedLoop(32), prompt, output, 320), four)
    assert ranks.requests_per_s == pytest.approx(4 * alone.requests_per_s, rel=1e-9)
    assert ranks.tpot_s.mean == pytest.approx(alone.tpot_s.mean, rel=1e-9)
    assert ranks.mean_running == pytest.approx(4 * alone.mean_running, rel=1e-9)
