"""Ranks in lockstep: queue, seats, cache and tokens of each rank, and whose step they wait for."""

from __future__ import annotations

import random
from functools import partial

import pytest

from perfmodel.errors import InputError
from perfmodel.serving.blocks import Blocks
from perfmodel.serving.policy import POLICIES
from perfmodel.serving.sequence import Sequence
from tests.serving.support import Times, drive, engine, ranked, requests

HELD = "inflight_no_evict_chunked"


class Told(Times):
    """Keeps the chunks of each rank that is priced."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[int]] = []

    def mixed(self, sequences, context, chunks, ended, everywhere=0):
        self.asked.append([size for size, _ in chunks])
        return super().mixed(sequences, context, chunks, ended)


def steps_of(policy: str, ranks: int, budget: int, *prompts: int, seqs: int = 64, output: int = 2):
    """Chunks of each rank at each step with some."""
    instance, told = ranked(ranks, policy, Times(), seqs=seqs, budget=budget)
    steps: list[list[list[int]]] = []
    plans = [rank.share for rank in instance.ranks]

    def share(number, work):
        if number == 0:
            steps.append([])
        steps[-1].append([size for _, size in work])
        return plans[number](work)

    for number, rank in enumerate(instance.ranks):
        rank.share = partial(share, number)  # type: ignore[method-assign]
    done = drive(instance, [Sequence(n, 0.0, tokens, output) for n, tokens in enumerate(prompts)])
    assert len(done) == len(prompts)
    assert sum(step[2] for step in told.steps) == sum(prompts)
    return steps


@pytest.mark.parametrize("policy", [name for name, policy in POLICIES.items() if policy.chunked])
def test_a_prompt_is_computed_on_one_rank(policy):
    """24 tokens with 8 a step and rank: three steps of one rank and not one of three."""
    assert steps_of(policy, 3, 8, 24) == [[[8], [], []]] * 3
    # Two prompts do so side by side, and a third, short one beside both.
    steps = steps_of(policy, 3, 8, 24, 16, 5, output=1)
    assert steps == [[[8], [8], [5]], [[8], [8], []], [[8], [], []]]


@pytest.mark.parametrize("policy", POLICIES)
def test_ranks_share_prompts_within_their_budgets(policy):
    first = steps_of(policy, 2, 8, 6, 6, 6, 6)[0]
    # Where prompts are split, what is left of each rank's 8 goes to its next one.
    assert first == ([[6, 2], [6, 2]] if POLICIES[policy].chunked else [[6], [6]])


@pytest.mark.parametrize("policy", POLICIES)
def test_a_whole_prompt_beyond_a_ranks_budget(policy):
    """Where prompts aren't split, it gets its step; others find room on the ranks beside."""
    steps = steps_of(policy, 2, 8, 12, 8, output=1)
    assert steps == ([[[8], [8]], [[4], []]] if POLICIES[policy].chunked else [[[12], [8]]])


@pytest.mark.parametrize("policy", POLICIES)
def test_every_chunk_fits_its_rank(policy):
    rng = random.Random(3)  # noqa: S311
    prompts = [rng.randint(1, 40) for _ in range(200)]
    budget, chunked = 16, POLICIES[policy].chunked
    for step in steps_of(policy, 4, budget, *prompts, seqs=6):
        for chunks in step:
            assert sum(chunks) <= budget or (len(chunks) == 1 and not chunked)


def test_decoding_sequences_take_of_their_ranks_budget():
    """Of six that decode three are on each of two ranks, and leave 5 of 8 tokens to a prompt."""
    times = Told()
    instance, _ = ranked(2, "chunked_mixed", times, seqs=64, budget=8)
    running = [Sequence(n, 0.0, 1, 50) for n in range(6)]
    drive(instance, [*running, Sequence(6, 1.5, 20, 2)])
    chunks = [asked for asked in times.asked if asked]
    assert chunks == [[1, 1, 1], [5], [5], [5], [5]]


def test_a_sequence_goes_to_the_rank_with_the_fewest():
    """Of equal ones to the next in turn; it stays there when another rank is idle."""
    instance, _ = ranked(3, HELD, seqs=1)
    sent = requests((0, 1, 9), (0, 1, 2), (0, 1, 9), (0, 1, 9), (2.75, 1, 2), (2.75, 1, 2))
    drive(instance, sent)
    # The fourth waits behind the first, which ends after the prompts' step and 8 more; the second
    # has left its rank, so that the fifth finds that one idle, and the sixth the third's.
    assert [s.rank for s in sent] == [0, 1, 2, 0, 1, 2]
    assert sent[3].admitted_s == sent[0].finish_s
    assert sent[4].admitted_s < sent[3].admitted_s


def test_each_rank_has_its_seats():
    """Two ranks of one seat hold two sequences of three, as one engine of two seats does."""
    sent = requests((0, 4, 4), (0, 4, 4), (0, 4, 4))
    done = drive(ranked(2, HELD, seqs=1)[0], sent)
    # A prompt's step takes 1 + 4/4 s; three decode steps of 1 s follow.
    assert [s.finish_s for s in done] == [5, 5, 10]


def test_whole_sequences_dont_divide_over_ranks():
    """Of 8 + 4 tokens three fit into 40 and a fourth waits; into each of two 20 fits one."""
    four = 4 * [(0.0, 8, 4)]
    pooled = drive(engine(HELD, blocks=Blocks(40, 1))[0], requests(*four))
    apart = drive(ranked(2, HELD, room=partial(Blocks, 20, 1))[0], requests(*four))
    # Prompts take 1 + 24/4 s, three decode steps 3 s; the fourth 1 + 8/4 + 3 s.
    assert [s.finish_s for s in pooled] == [10, 10, 10, 16]
    # On ranks a prompt takes 1 + 8/4 s, beside another on the other one.
    assert [s.finish_s for s in apart] == [6, 6, 12, 12]


def test_the_one_that_came_last_to_a_full_rank_gives_way():
    """Ranks of 8 tokens: two of 3 + 4 fill the first, one of 3 + 4 leaves the second room."""
    instance, told = ranked(2, "chunked_mixed", room=partial(Blocks, 8, 1))
    sent = requests((0, 3, 4), (0, 3, 4), (0, 3, 4))
    drive(instance, sent)
    assert [s.rank for s in sent] == [0, 1, 0]
    # After the prompts the first rank's two grow from 3 to 4 each, and have no room for 5.
    assert told.preempted_numbers == [2]
    assert [s.preemptions for s in sent] == [0, 0, 1]


def test_a_request_fits_one_rank_or_none():
    instance, _ = ranked(2, room=partial(Blocks, 10, 1))
    with pytest.raises(InputError, match="the cache holds 10 of one sequence"):
        instance.submit(Sequence(0, 0.0, 8, 3), 0.0)
    assert instance.idle
    drive(instance, requests((0, 8, 2)))


def test_all_wait_for_the_slowest_rank():
    """Contexts of 32 and 8 at 1/8 s a token: a step of 1 + 4 s, and then of 1 + 33/8 s."""
    instance, told = ranked(2, HELD, Times(1.0, 0.0, 0.125, 0.25), seqs=2)
    drive(instance, requests((0, 32, 3), (0, 8, 3)))
    assert [end - begin for begin, end, _, _ in told.steps] == [1 + 32 / 4, 5 + 5.125]
    # A prompt of 8 tokens, 2 s, beside those 34 on the other rank, 5.25 s; both beside each other.
    instance, told = ranked(2, HELD, Times(1.0, 0.0, 0.125, 0.25), seqs=2)
    drive(instance, requests((0, 32, 9), (1, 8, 1)))
    assert told.steps[1][1] - told.steps[1][0] == 1 + 4
    instance, told = ranked(1, HELD, Times(1.0, 0.0, 0.125, 0.25), seqs=2)
    drive(instance, requests((0, 32, 9), (1, 8, 1)))
    assert told.steps[1][1] - told.steps[1][0] == 1 + 4 + 2


def test_each_rank_caches_prompts_of_its_own():
    """The same 8 tokens are found on the rank that computed them, and on no other."""
    instance, _ = ranked(2, HELD, prefixes=())
    part = (("document", 8),)
    sent = [Sequence(n, 20.0 * n, 9, 2, part) for n in range(4)]
    drive(instance, sent)
    assert [(s.rank, s.hit_tokens) for s in sent] == [(0, 0), (1, 0), (0, 8), (1, 8)]
