"""What holds for every engine and every stream of requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from perfmodel.serving.blocks import Blocks
from perfmodel.serving.instance import Instance
from perfmodel.serving.policy import POLICIES
from perfmodel.serving.prefix_cache import PrefixCache
from perfmodel.serving.sequence import Sequence
from perfmodel.serving.tier import Tier
from tests.serving.naive import Naive
from tests.serving.support import Recorder, Times, drive, engine
from tests.serving.test_radix import PARTS, check, common, explicit

ROWS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0, 0.5, 3.0]), st.integers(1, 40), st.integers(1, 25), PARTS),
    min_size=4,
    max_size=14,
)


@dataclass(frozen=True)
class Case:
    """An engine, small enough to be full often."""

    policy: str
    capacity: int
    block: int
    fixed: tuple[float, ...]
    seqs: int
    budget: int
    caching: bool
    tiers: tuple[int, ...]
    swap: int
    per_step: float
    token: float

    def build(self, jumps: bool = True) -> tuple[Instance, Recorder]:
        blocks = Blocks(self.capacity / self.block, self.block, self.fixed, block_bytes=8.0)
        tiers = tuple(Tier(blocks, 32.0 / (n + 1)) for n, blocks in enumerate(self.tiers))
        return engine(
            self.policy,
            Times(0.5, 0.125, self.token, 0.125, self.per_step, int(self.per_step), jumps),
            blocks,
            self.seqs,
            self.budget,
            prefixes=PrefixCache(blocks, tiers) if self.caching else None,
            swap=Tier(self.swap, 16.0) if self.swap else None,
        )


CASES = st.builds(
    Case,
    policy=st.sampled_from(sorted(POLICIES)),
    capacity=st.integers(85, 130),
    block=st.integers(1, 7),
    fixed=st.sampled_from([(), (0.5,), (0.0, 1.0, 1.5)]),
    seqs=st.integers(2, 8),
    budget=st.sampled_from([5, 16, 64]),
    caching=st.booleans(),
    tiers=st.lists(st.integers(1, 12), max_size=2).map(tuple),
    swap=st.sampled_from([0, 6, 100]),
    per_step=st.sampled_from([1, 1, 1.4, 2.5, 3]),
    token=st.sampled_from([0.0, 2**-7]),
)


def with_steady_room(case: Case) -> Case:
    """Where a share of outputs must be free, rounding to blocks makes room come and go."""
    return replace(case, block=1) if 0 < POLICIES[case.policy].reserve < 1 else case


def stream(rows: Any) -> list[Sequence]:
    now, sent = 0.0, []
    for number, (gap, prompt, output, prefix) in enumerate(rows):
        now += gap
        sent.append(Sequence(number, now, prompt, output, prefix))
    return sent


def ends(done: list[Sequence]) -> list[Any]:
    return [
        (s.number, s.admitted_s, s.first_s, s.finish_s, s.preemptions, s.hit_tokens) for s in done
    ]


@given(CASES, ROWS)
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_nothing_is_lost(case: Case, rows: Any):
    # The recorder checks capacity, places and the clock after every step.
    instance, told = case.build()
    sent = stream(rows)
    done = drive(instance, sent)
    assert sorted(s.number for s in done) == list(range(len(sent)))
    for s in sent:
        assert s.generated == s.output
        assert s.arrival_s <= s.admitted_s < s.first_s <= s.finish_s
        assert (s.first_s == s.finish_s) == (s.output == 1)
        assert 0 <= s.hit_tokens < s.prompt
    assert told.tokens == sum(s.output - 1 for s in sent)
    assert len(told.preempted_numbers) == sum(s.preemptions for s in sent)
    again = sum(s.prompt + s.output for s in sent for _ in range(s.preemptions))
    computed = sum(tokens for _, _, tokens, _ in told.steps)
    asked = sum(s.prompt - s.hit_tokens for s in sent)
    assert asked <= computed <= asked + again
    # Nothing is left in the engine.
    blocks, batch = instance.blocks, instance.batch
    assert instance.idle
    assert blocks.held == pytest.approx(0, abs=1e-9)
    assert (blocks.growing, blocks.grown(batch.tokens)) == (0, 0)
    assert (batch.slots, batch.context, batch.to_come, batch.due) == (0, 0, 0, [])
    assert instance.cache.in_host == 0
    if instance.prefixes is not None:
        check(instance.prefixes.tree)
        assert instance.prefixes.tree.held == 0


@given(CASES, ROWS)
@settings(max_examples=150, deadline=None)
def test_gaps_are_the_time_between_first_and_last_tokens(case: Case, rows: Any):
    instance, told = replace(case, per_step=1).build()
    sent = stream(rows)
    drive(instance, sent)
    assert told.seconds == pytest.approx(sum(s.finish_s - s.first_s for s in sent))


@given(CASES, ROWS)
@settings(max_examples=150, deadline=None)
def test_a_jump_is_its_steps_one_by_one(case: Case, rows: Any):
    case = with_steady_room(case)
    jumped, stepped = stream(rows), stream(rows)
    one, _ = case.build()
    other, _ = case.build(jumps=False)
    first, second = ends(drive(one, jumped)), ends(drive(other, stepped))
    if case.per_step in (1, 3) or not case.token:  # else contexts don't grow evenly
        assert first == second


@given(CASES, ROWS)
@settings(max_examples=30, deadline=None)
def test_the_same_stream_gives_the_same_times(case: Case, rows: Any):
    assert ends(drive(case.build()[0], stream(rows))) == ends(drive(case.build()[0], stream(rows)))


@given(ROWS, st.integers(1, 6), st.sampled_from(sorted(POLICIES)))
@settings(max_examples=100, deadline=None)
def test_hits_are_the_longest_common_beginnings(rows: Any, block: int, policy: str):
    # One at a time, with room for all: each finds what those before it have in common with it.
    blocks = Blocks(1e6, block)
    instance, _ = engine(policy, blocks=blocks, seqs=1, prefixes=PrefixCache(blocks))
    sent = stream(rows)
    drive(instance, sent)
    before: list[list[Any]] = []
    for s in sent:
        tokens = explicit(s.prefix, s.prompt, s.number)
        longest = max((common(tokens, other) for other in before), default=0)
        assert s.hit_tokens == min(longest, s.prompt - 1) // block * block
        before.append(tokens[: s.prompt // block * block])


@given(ROWS, st.sampled_from(sorted(POLICIES)), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_caching_costs_nothing_where_nothing_is_shared(rows: Any, policy: str, seqs: int):
    alone = [(*row[:3], ()) for row in rows]
    plain, _ = engine(policy, seqs=seqs)
    blocks = Blocks(1e6, 4)
    cached, _ = engine(policy, blocks=blocks, seqs=seqs, prefixes=PrefixCache(blocks))
    assert ends(drive(plain, stream(alone))) == ends(drive(cached, stream(alone)))


@given(CASES, ROWS)
@settings(max_examples=300, deadline=None)
def test_every_step_by_itself_gives_the_same(case: Case, rows: Any):
    case = replace(case, fixed=(), caching=False, swap=0, per_step=1)
    policy = POLICIES[case.policy]
    assume(not policy.padded)
    case = with_steady_room(case)
    instance, told = case.build()
    sent = stream(rows)
    drive(instance, sent)
    naive = Naive(
        policy, instance.times, instance.blocks.capacity, case.block, case.seqs, case.budget
    )
    expected = naive.run([(s.arrival_s, s.prompt, s.output) for s in sent])
    assert [(s.number, s.first_s, s.finish_s) for s in sent] == expected
    assert len(told.preempted_numbers) == naive.preemptions
