"""Requests of several kinds in one stream: shares, lengths and prefixes of each."""

from itertools import islice

import pytest

from perfmodel import InputError
from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop, Trace
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.mix import Part
from perfmodel.serving.record import demand_record
from perfmodel.serving.serve import Serving, settled
from perfmodel.serving.shared_prefix import SharedPrefix
from perfmodel.serving.simulate import simulate_engines
from tests.serving.toy import REAL, engine


def part(weight, prompt, output, prefix=None):
    return Part(weight, Lengths.parse(prompt, "prompt"), Lengths.parse(output, "output"), prefix)


CHAT = part(3, "uniform:50:90", "uniform:10:30", SharedPrefix(32, name="chat"))
LONG = part(1, 4000, 7)


def drawn(demand):
    return [
        (s.number, s.arrival_s, s.prompt, s.output, s.prefix, s.part)
        for s in demand.source(lambda prompt, output: None).arrivals
    ]


def test_each_part_has_its_share_its_lengths_and_its_prefix():
    demand = Demand(OpenLoop(5.0), requests=8000, mix=(CHAT, LONG))
    requests = drawn(demand)
    chat = [r for r in requests if r[5] == 0]
    # 3/4 of 8,000 are 6,000; the standard deviation is √(8000·3/16) = 38.7: five of them.
    assert abs(len(chat) - 6000) < 194
    assert all(50 <= r[2] <= 90 and 10 <= r[3] <= 30 for r in chat)
    assert {r[4] for r in chat} == {(("chat-0", 32),)}
    assert {(r[2], r[3], r[4]) for r in requests if r[5] == 1} == {(4000, 7, ())}
    assert [r[0] for r in requests] == list(range(8000))


def test_a_mix_of_one_part_is_the_plain_stream():
    lengths = {"prompt": "uniform:50:900", "output": "exponential:80:400"}
    prefix = SharedPrefix(40, 3)
    plain = Demand(OpenLoop(2.0), **lengths, requests=300, seed=5, prefix=prefix)
    only = Part(7.0, Lengths.parse(lengths["prompt"], ""), Lengths.parse(lengths["output"], ""),
                prefix)  # fmt: skip
    assert drawn(Demand(OpenLoop(2.0), requests=300, seed=5, mix=(only,))) == drawn(plain)


def test_another_rate_meets_the_same_requests_and_another_seed_others():
    def untimed(rate, seed):
        demand = Demand(OpenLoop(rate), requests=200, seed=seed, mix=(CHAT, LONG))
        return [(*r[:1], *r[2:]) for r in drawn(demand)]

    assert untimed(1.0, 3) == untimed(9.0, 3)
    assert untimed(1.0, 3) != untimed(1.0, 4)


def test_a_part_s_lengths_do_not_depend_on_the_others_weight():
    def chat(weight):
        demand = Demand(OpenLoop(1.0), requests=400, mix=(CHAT, part(weight, 4000, 7)))
        return [r[2:4] for r in drawn(demand) if r[5] == 0]

    seldom, often = chat(1), chat(5)
    assert len(often) < len(seldom)
    assert often == seldom[: len(often)]


def test_users_who_wait_send_a_mix_too():
    demand = Demand(ClosedLoop(4), requests=60, mix=(CHAT, LONG))
    ended = []
    simulate_engines(demand, engine(REAL), ended=ended.extend)
    assert sorted(s.number for s in ended) == list(range(60))
    assert {s.part for s in ended} == {0, 1}


def test_prefixes_are_cached_where_any_part_has_one():
    assert settled(None, Demand(OpenLoop(1.0), mix=(LONG, CHAT))).prefix_caching is None
    assert settled(Serving(), Demand(OpenLoop(1.0), mix=(LONG,))).prefix_caching is False


def test_the_record_has_the_parts_in_place_of_one_length():
    record = demand_record(Demand(OpenLoop(1.0), mix=(CHAT, LONG)))
    assert record["prompt"] is None
    assert [p["prompt"] for p in record["mix"]] == ["uniform:50:90", "4000"]
    assert record["mix"][0]["prefix_tokens"] == 32
    assert "mix" not in demand_record(Demand(OpenLoop(1.0)))


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_a_weight_is_above_nothing(weight):
    with pytest.raises(InputError, match="weight"):
        part(weight, 10, 10)


def test_a_trace_has_no_mix(tmp_path):
    with pytest.raises(InputError, match="mix"):
        Demand(Trace(tmp_path / "t.csv"), mix=(LONG,))


def test_the_longest_request_of_any_part_must_fit():
    demand = Demand(OpenLoop(1.0), mix=(CHAT, LONG))
    with pytest.raises(InputError, match="4000"):
        demand.source(lambda prompt, output: "too long" if prompt > 1000 else None)


def test_draws_go_on_beyond_a_block():
    demand = Demand(OpenLoop(1.0), requests=20_000, mix=(CHAT, LONG))
    arrivals = demand.source(lambda prompt, output: None).arrivals
    assert next(islice(arrivals, 19_999, None)).number == 19_999
