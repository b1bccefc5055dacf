"""One engine whose prompts stay cached, where the schedule can be worked out by hand.

`support.Times` makes a decode step 1 s, and adds 0.25 s for each prompt token.
"""

from __future__ import annotations

import pytest

from perfmodel.errors import InputError
from perfmodel.serving.blocks import Blocks
from perfmodel.serving.prefix_cache import PrefixCache
from perfmodel.serving.sequence import Sequence
from perfmodel.serving.tier import Tier
from tests.serving.support import drive, engine, requests


def test_a_shared_beginning_is_computed_once():
    # Blocks of 4: of a shared beginning of 10 tokens 8 are found. 1 + 14/4 s, then 1 + 6/4.
    blocks = Blocks(100, 4)
    prefixes = PrefixCache(blocks)
    instance, _ = engine(blocks=blocks, prefixes=prefixes)
    sent = [Sequence(n, 10.0 * n, 14, 1, (("system", 10),)) for n in range(2)]
    first, second = drive(instance, sent)
    assert (first.hit_tokens, second.hit_tokens) == (0, 8)
    assert second.finish_s - second.arrival_s == 1 + 6 / 4
    assert (blocks.held, prefixes.tree.counts) == (0, [2 + 1 + 1])


def test_a_token_is_always_computed():
    # The same prompt of 16 again: 3 of its 4 blocks, 4 tokens are computed.
    blocks = Blocks(100, 4)
    instance, told = engine(blocks=blocks, prefixes=PrefixCache(blocks))
    sent = [Sequence(n, 10.0 * n, 16, 1, (("all", 16),)) for n in range(2)]
    _, second = drive(instance, sent)
    assert second.hit_tokens == 12
    assert [tokens for _, _, tokens, _ in told.steps] == [16, 4]


def test_prompts_of_one_step_share():
    blocks = Blocks(100, 4)
    instance, told = engine(blocks=blocks, prefixes=PrefixCache(blocks))
    sent = [Sequence(n, 0.0, 10, 2, (("system", 8),)) for n in range(3)]
    drive(instance, sent)
    assert [s.hit_tokens for s in sent] == [0, 8, 8]
    assert told.steps[0][2] == 10 + 2 + 2


def test_cached_prompts_give_way_to_sequences():
    # 6 blocks of 4. A prompt of 16 stays cached; another of 16 with an output of 5 takes 5, which
    # leaves one of the first.
    blocks = Blocks(6, 4)
    instance, _ = engine(blocks=blocks, prefixes=PrefixCache(blocks))
    sent = [
        Sequence(0, 0.0, 16, 1, (("a", 16),)),
        Sequence(1, 10.0, 16, 5, (("b", 16),)),
        Sequence(2, 30.0, 16, 1, (("a", 16),)),
    ]
    drive(instance, sent)
    assert [s.hit_tokens for s in sent] == [0, 0, 4]


def test_an_evicted_prompt_comes_back_from_the_host():
    # As above, with a host of 2 blocks, 8 bytes each at 4 bytes/s. The last two blocks go there
    # first; when the second follows, the last is dropped.
    blocks = Blocks(6, 4, block_bytes=8.0)
    prefixes = PrefixCache(blocks, (Tier(2, 4.0),))
    instance, _ = engine(blocks=blocks, prefixes=prefixes)
    sent = [
        Sequence(0, 0.0, 16, 1, (("a", 16),)),
        Sequence(1, 10.0, 16, 5, (("b", 16),)),
        Sequence(2, 30.0, 16, 1, (("a", 16),)),
    ]
    drive(instance, sent)
    # One block on the device, two from the host in 2·8/4 = 4 s, 4 tokens computed in 2 s.
    assert sent[2].hit_tokens == 12
    assert sent[2].finish_s - sent[2].admitted_s == 4 + 2


def test_a_preempted_sequence_finds_its_own_prompt():
    # As in two_that_collide: both prompts of 2 blocks are cached, so that only what follows them
    # is computed again: 5 tokens, 1 + 5/4 s.
    blocks = Blocks(6, 4)
    instance, told = engine(blocks=blocks, prefixes=PrefixCache(blocks))
    first, second = drive(instance, requests((0.0, 8, 8), (0.0, 8, 8)))
    assert told.preempted_numbers == [1]
    assert second.finish_s == first.finish_s + 1 + 5 / 4 + 2
    assert second.hit_tokens == 0


def test_reserved_lengths_share_nothing():
    with pytest.raises(InputError, match="paged"):
        PrefixCache(Blocks(4, 1, (1.0,), grows=False))
    with pytest.raises(InputError, match="at least one block"):
        Tier(0, 1.0)
