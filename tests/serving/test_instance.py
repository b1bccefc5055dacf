"""One engine, step by step, where the schedule can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.errors import InputError
from perfmodel.serving.blocks import Blocks
from perfmodel.serving.policy import POLICIES
from perfmodel.serving.sequence import Sequence
from perfmodel.serving.tier import Tier
from tests.serving.support import Times, drive, engine, requests

# Times() makes a decode step 1 s, and adds 0.25 s for each prompt token.


@pytest.mark.parametrize("policy", POLICIES)
def test_one_request_alone(policy: str):
    # 8 tokens: 1 + 2 s; then 4 steps.
    instance, told = engine(policy)
    (one,) = drive(instance, requests((5.0, 8, 5)))
    assert (one.admitted_s, one.first_s, one.finish_s) == (5, 8, 12)
    assert told.tokens == 4
    assert told.seconds == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_one_at_a_time_is_a_single_server(policy: str):
    # A request takes 1 + p/4 s, then 1 s for each further token (D/D/1: Lindley's recursion).
    rows = [(0.0, 8, 5), (1.5, 4, 1), (2.0, 12, 3), (40.0, 4, 9), (41.0, 4, 2)]
    instance, _ = engine(policy, seqs=1)
    done = drive(instance, requests(*rows))
    free = 0.0
    for (arrival, prompt, output), sequence in zip(rows, done, strict=True):
        begin = max(free, arrival)
        free = begin + 1 + prompt / 4 + output - 1
        assert (sequence.admitted_s, sequence.finish_s) == (begin, free)


@pytest.mark.parametrize(("rate", "waits"), [(8.0, 0.0), (7.0, 1.0)])
def test_equal_arrivals_at_one_server(rate: float, waits: float):
    # Service takes 8 s: 1 + 16/4, then 3 more. Arrivals every 8 s never wait; every 7 s the n-th
    # waits n s.
    instance, _ = engine(seqs=1)
    done = drive(instance, requests(*[(rate * n, 16, 4) for n in range(20)]))
    assert [s.admitted_s - s.arrival_s for s in done] == [waits * n for n in range(20)]


def test_prompts_stall_decoding_or_share_its_steps():
    # The first begins to decode at 3 s; the second arrives at 3.5 s, in the middle of its step
    # that ends at 4 s, and takes 3 s.
    rows = [(0.0, 8, 6), (3.5, 8, 2)]
    alone, told = engine("prefill_first")
    first, second = sorted(drive(alone, requests(*rows)), key=lambda s: s.number)
    # 4 to 7 s the second's prompt; 8, 9, 10, 11 s tokens of the first, the second ends at 8 s.
    assert (second.first_s, second.finish_s, first.finish_s) == (7, 8, 11)
    # Gaps: 1 of the first, then 8 - 4 = 4 s over the stall, then 3; 1 of the second.
    assert sorted((g, n) for g, n in told.gaps if g > 1) == [(4, 1)]
    assert told.tokens == 6

    shared, told = engine("chunked_mixed")
    first, second = sorted(drive(shared, requests(*rows)), key=lambda s: s.number)
    # The step from 4 to 7 s gives the first a token too.
    assert (second.first_s, second.finish_s, first.finish_s) == (7, 8, 10)
    assert sorted((g, n) for g, n in told.gaps if g > 1) == [(3, 1)]


@pytest.mark.parametrize("policy", ["static", "decode_first"])
def test_a_batch_is_built_when_the_one_before_has_ended(policy: str):
    # 0 and 1 s: two prompts in one step, 1 + 4 s; the short one ends at 6 s, the long one at 15 s.
    # The third, there since 5.5 s, waits for that.
    rows = [(0.0, 8, 2), (0.0, 8, 11), (5.5, 4, 3)]
    instance, told = engine(policy, times=Times(each=0.0))
    done = drive(instance, requests(*rows))
    assert [(s.number, s.admitted_s, s.finish_s) for s in done] == [
        (0, 0, 6), (1, 0, 15), (2, 15, 19),
    ]  # fmt: skip
    assert told.tokens == 1 + 10 + 2


def test_a_padded_batch_computes_slots_of_what_has_ended():
    # With 1 s for each sequence of a step: prompts 1 + 4; 1 step of 3 s; then 9 steps, of 3 s
    # where the slot is still computed, of 2 s where it isn't.
    rows = [(0.0, 8, 2), (0.0, 8, 11)]
    ends = {}
    for policy in ("static", "decode_first"):
        instance, _ = engine(policy, times=Times(each=1.0))
        ends[policy] = drive(instance, requests(*rows))[-1].finish_s
    assert ends == {"static": 5 + 3 + 27, "decode_first": 5 + 3 + 18}


def test_a_padded_batch_holds_the_cache_of_its_longest_output():
    # Blocks of 4. Prompts of 4; outputs of 4 and 12: alone 2 and 4 blocks, padded 4 and 4: only
    # one fits into 7. Without padding both do.
    for policy, together in (("static", False), ("decode_first", True)):
        instance, _ = engine(policy, blocks=Blocks(7, 4))
        done = drive(instance, requests((0.0, 4, 4), (0.0, 4, 12)))
        assert (done[0].admitted_s == done[1].admitted_s) == together
        assert instance.blocks.held == 0


def test_an_output_of_one_token_ends_with_its_prompt():
    for policy in POLICIES:
        instance, told = engine(policy)
        done = drive(instance, requests((0.0, 8, 1), (0.0, 4, 1), (9.0, 4, 1)))
        assert [s.finish_s for s in done] == [4, 4, 11]
        assert all(s.first_s == s.finish_s for s in done)
        assert told.gaps == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_prompt_longer_than_the_budget(policy: str):
    # 100 tokens at 64 a step: in chunks of 64 and 36, or whole in one step of its own.
    instance, told = engine(policy)
    drive(instance, requests((0.0, 100, 3), (0.0, 8, 3)))
    prefilled = [tokens for _, _, tokens, _ in told.steps if tokens]
    chunked = POLICIES[policy].chunked
    assert prefilled == ([64, 44] if chunked else [100, 8])


def test_a_whole_prompt_waits_for_a_step_that_holds_it():
    # Decoding takes 1 of 64 tokens, so that a prompt of 64 doesn't fit beside it.
    instance, _ = engine("inflight_no_evict")
    done = drive(instance, requests((0.0, 4, 10), (0.5, 64, 2)))
    assert done[1].admitted_s == done[0].finish_s
    instance, _ = engine("inflight_no_evict")
    done = drive(instance, requests((0.0, 4, 10), (0.5, 63, 2)))
    assert {s.number: s.admitted_s for s in done} == {0: 0, 1: 2}


def test_places_count_prompts_in_part_and_decoding():
    # Two places: one decodes, one is being prefilled in chunks; the third waits for a place.
    instance, _ = engine(seqs=2, budget=8)
    done = drive(instance, requests((0.0, 8, 30), (0.0, 40, 2), (0.0, 4, 2)))
    by_number = sorted(done, key=lambda s: s.number)
    assert by_number[2].admitted_s == by_number[1].finish_s


def test_what_never_fits_is_refused_when_sent():
    instance, _ = engine(blocks=Blocks(10, 4))
    instance.submit(Sequence(3, 0.0, 30, 10), 0.0)
    with pytest.raises(InputError, match="request 4: 30 prompt and 11 output tokens"):
        instance.submit(Sequence(4, 0.0, 30, 11), 0.0)
    assert instance.load == 1
    instance, _ = engine(blocks=Blocks(10, 1, (1.0,), grows=False, max_model_len=32))
    with pytest.raises(InputError, match="request 0"):
        instance.submit(Sequence(0, 0.0, 30, 3), 0.0)


def test_a_limit_ends_a_stretch_with_the_step_that_runs():
    instance, _ = engine()
    instance.submit(Sequence(0, 0.0, 4, 100), 0.0)
    instance.advance()
    assert instance.clock == 2
    instance.advance(10.5)
    assert instance.clock == 11
    instance.advance(11.0)
    assert instance.clock == 12


# --- preemption -----------------------------------------------------------------------------


def two_that_collide(**more: Any) -> tuple[Any, Any]:
    # Blocks of 4, 6 of them. Prompts of 8 take 2 each; both hold 3 from the 9th token on, and
    # neither gets a 4th: contexts of 12 fill 6 blocks.
    instance, told = engine(blocks=Blocks(6, 4, block_bytes=8.0), **more)
    done = drive(instance, requests((0.0, 8, 8), (0.0, 8, 8)))
    return done, told


def test_preemption_by_recomputation():
    # Prompts: 1 + 4 = 5 s. At 9 s both have 5 tokens (contexts of 12). The second gives way; the
    # first ends at 12 s. The second's prompt and 5 tokens are computed again in 1 + 13/4 s, which
    # gives its 6th token; 2 more follow.
    (first, second), told = two_that_collide()
    assert told.preempted_numbers == [1]
    assert first.finish_s == 12
    assert second.finish_s == 12 + 4.25 + 2
    assert second.preemptions == 1
    assert second.admitted_s == 0
    assert max(told.gaps) == (12 + 4.25 - 9, 1)
    assert told.tokens == 14


def test_preemption_by_swap():
    # 3 blocks of 8 bytes at 16 bytes/s: 1.5 s each way. Out at 9 s, before the first's next step,
    # which ends at 11.5 s; the first ends at 13.5 s. In by 15 s, then 3 tokens.
    (first, second), told = two_that_collide(swap=Tier(3, 16.0))
    assert first.finish_s == 13.5
    assert second.finish_s == 13.5 + 1.5 + 3
    assert max(told.gaps) == (16 - 9, 1)
    assert told.tokens == 14


def test_a_full_host_recomputes():
    (_, second), _ = two_that_collide(swap=Tier(2, 16.0))
    assert second.finish_s == 12 + 4.25 + 2


def test_a_prompt_in_part_gives_way_to_those_that_decode():
    # Blocks of 4, 8 of them. The first decodes up to 5 blocks; the second's prompt of 20 takes 5,
    # 4 tokens a step, and is given up when the first needs a 4th.
    instance, told = engine(blocks=Blocks(8, 4), budget=3)
    done = drive(instance, requests((0.0, 8, 12), (3.0, 20, 2)))
    assert told.preempted_numbers == [1]
    assert [s.number for s in done] == [0, 1]
    assert told.tokens == 11 + 1


def test_a_share_of_outputs_must_be_free():
    # Blocks of 4, prompt 4 and output 16: a half of it is 2 blocks. Two prompts: 2 blocks, and
    # 4 for outputs.
    for capacity, together in ((6, True), (5, False)):
        instance, _ = engine("prefill_first_chunked", blocks=Blocks(capacity, 4))
        done = drive(instance, requests((0.0, 4, 16), (0.0, 4, 16)))
        assert (done[1].admitted_s == 0) == together


# --- speculation ----------------------------------------------------------------------------


def test_speculation_gives_more_tokens_a_step():
    # 8 tokens: the first with the prompt, 7 in ceil(7/2.5) = 3 steps.
    instance, told = engine(times=Times(per_step=2.5, width=4))
    (one,) = drive(instance, requests((0.0, 4, 8)))
    assert one.finish_s == 2 + 3
    assert told.tokens == 7
    # A step's tokens share it: 3, 2 and, of the last 3, the 2 that were asked for.
    assert told.seconds == pytest.approx(3)
    assert sorted(gap for gap, _ in told.gaps) == pytest.approx([1 / 3, 1 / 2, 1 / 2])


@pytest.mark.parametrize("per_step", [2, 2.44, 2.5, 3.1])
@pytest.mark.parametrize("apart_s", [0.0, 3.0, 400.0])
def test_gaps_under_speculation_last_as_long_as_the_tokens_took(per_step: float, apart_s: float):
    instance, told = engine(times=Times(per_step=per_step, width=4, prompt=1 / 16), budget=512)
    lengths = [(8 + 13 * n % 90, 2 + 7 * n % 60) for n in range(40)]
    rows = requests(*((apart_s * n, *both) for n, both in enumerate(lengths)))
    done = drive(instance, rows)
    assert told.tokens == sum(output - 1 for _, output in lengths)
    took = sum(s.finish_s - s.first_s for s in done)
    assert told.seconds == pytest.approx(took, rel=0.001)


def test_drafts_take_their_part_of_the_budget():
    # 4 tokens of a decoding sequence leave 60 of 64 to a prompt.
    instance, told = engine(times=Times(per_step=2, width=4))
    drive(instance, requests((0.0, 4, 40), (2.5, 100, 2)))
    assert [tokens for _, _, tokens, _ in told.steps if tokens] == [4, 60, 40]


# --- prefix caching -------------------------------------------------------------------------
