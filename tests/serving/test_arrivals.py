"""Request streams: their statistics, their laziness, and what a trace may be wrong in."""

import os
from itertools import islice

import numpy as np
import pytest

from perfmodel.errors import InputError
from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop, Trace
from perfmodel.serving.engine import Transfer
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.shared_prefix import SharedPrefix
from perfmodel.serving.simulate import Disaggregation, simulate_engines
from perfmodel.serving.trace import read_trace
from tests.serving.toy import engine, lengths


def nothing(prompt, output):
    return None


def drawn(demand, count):
    return list(islice(demand.source(nothing).arrivals, count))


@pytest.mark.parametrize("burstiness", [0.3, 1.0, 4.0])
def test_gaps_have_the_mean_and_spread_that_were_asked_for(burstiness):
    count = 100_000
    demand = Demand(OpenLoop(5.0, burstiness), requests=count)
    gaps = np.diff([0.0, *(s.arrival_s for s in drawn(demand, count))])
    spread = burstiness**-0.5  # of a gamma distribution of that shape, relative to its mean
    assert gaps.mean() == pytest.approx(0.2, rel=4 * spread / count**0.5)
    assert gaps.std() / gaps.mean() == pytest.approx(spread, rel=0.03)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.02


def test_another_rate_meets_the_same_requests():
    slow, fast = (
        drawn(Demand(OpenLoop(r), lengths("uniform:1:99"), requests=500), 500) for r in (1, 4)
    )
    assert [s.prompt for s in slow] == [s.prompt for s in fast]
    assert [s.arrival_s / 4 for s in slow] == pytest.approx([s.arrival_s for s in fast])


def test_streams_are_drawn_as_they_are_read():
    demand = Demand(OpenLoop(1000.0), requests=10**12)
    assert len(drawn(demand, 10)) == 10
    source = Demand(ClosedLoop(3), requests=10**12).source(nothing)
    assert [s.arrival_s for s in source.arrivals] == [0, 0, 0]
    following = source.follow(7.0)
    assert following is not None
    assert (following.number, following.arrival_s) == (3, 7.0)


def test_an_infinite_rate_sends_all_at_once():
    assert {s.arrival_s for s in drawn(Demand(OpenLoop(float("inf")), requests=50), 50)} == {0.0}


def test_prefixes_are_drawn_evenly():
    demand = Demand(OpenLoop(1.0), requests=3000, prefix=SharedPrefix(100, 3))
    seen = [s.prefix for s in drawn(demand, 3000)]
    assert all(prefix[0][1] == 100 for prefix in seen)
    counts = [seen.count(prefix) for prefix in set(seen)]
    assert len(counts) == 3
    assert min(counts) > 900


@pytest.mark.parametrize(
    ("text", "mean", "deviation", "least", "most"),
    [
        ("1024", 1024, 0, 1024, 1024),
        ("uniform:800:1200", 1000, (401**2 - 1) ** 0.5 / 12**0.5, 800, 1200),
        ("normal:1000:100", 1000, 100, 1, 2000),
        ("lognormal:1000:0.5", 1000, 1000 * (np.exp(0.25) - 1) ** 0.5, 1, 50_000),
        ("exponential:1000", 1000, 1000, 1, 50_000),
        ("exponential:1000:1500", None, None, 1, 1500),
    ],
)
def test_lengths(text, mean, deviation, least, most):
    made = Lengths.parse(text, "--prompt")
    assert made.spec == text
    assert Lengths.parse(made.spec, "--prompt") == made
    values = np.array(made.draw(np.random.default_rng(1), 100_000))
    assert values.min() >= least
    assert values.max() <= most
    if mean is not None:
        assert made.mean == mean
        assert values.mean() == pytest.approx(mean, abs=4 * deviation / 100_000**0.5 + 1e-9)
        assert values.std() == pytest.approx(deviation, rel=0.03)


def test_a_uniform_length_includes_both_ends():
    assert set(Lengths.parse("uniform:1:3", "x").draw(np.random.default_rng(0), 100)) == {1, 2, 3}


@pytest.mark.parametrize(
    "text",
    [
        "", "0", "-5", "1.5", "many", "uniform", "uniform:1", "uniform:5:1", "uniform:1:2:3",
        "uniform:0:5", "normal:0:1", "normal:100:-1", "normal:nan:1", "lognormal:100:inf",
        "exponential:-3", "exponential:10:0", "exponential:10:2.5", "zipf:3", "99999999999",
    ],
)  # fmt: skip
def test_lengths_that_are_refused(text):
    with pytest.raises(InputError, match="--prompt"):
        Lengths.parse(text, "--prompt")


@pytest.mark.parametrize(
    "make",
    [
        lambda: OpenLoop(0.0),
        lambda: OpenLoop(float("nan")),
        lambda: OpenLoop(1.0, 0.0),
        lambda: ClosedLoop(0),
        lambda: ClosedLoop(2, think_s=-1.0),
        lambda: Demand(ClosedLoop(1), requests=0),
        lambda: Demand(ClosedLoop(1), requests=None),
        lambda: Demand(ClosedLoop(1), seed=-1),
        lambda: SharedPrefix(0),
        lambda: simulate_engines(Demand(ClosedLoop(1), requests=5), engine(), warmup=5),
        lambda: simulate_engines(Demand(ClosedLoop(1), requests=5), engine(), replicas=0),
        lambda: simulate_engines(Demand(ClosedLoop(1), requests=5), engine(), replicas=10**6),
        lambda: simulate_engines(Demand(ClosedLoop(1), requests=5), engine(), router="random"),
        lambda: simulate_engines(
            Demand(ClosedLoop(1), requests=5), engine(), replicas=2,
            disaggregation=Disaggregation(1, 1, Transfer(1.0, 1.0)),
        ),
        lambda: engine(seqs=0),
        lambda: Transfer(1.0, 0.0),
    ],
)  # fmt: skip
def test_settings_that_are_refused(make):
    with pytest.raises(InputError):
        make()


HEADER = "arrival_s,prompt_tokens,output_tokens"


def written(folder, text):
    path = folder / "trace.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_trace(tmp_path):
    path = written(
        tmp_path,
        "\ufeffid, arrival_s ,prompt_tokens,output_tokens,prefix_id,prefix_tokens\r\n"
        'x,0,10,1,,\r\n\r\n"a\nb",0.5,20,2,chat,15\r\ny,0.5,30,3,,0\r\n',
    )
    read = [(s.number, s.arrival_s, s.prompt, s.output, s.prefix) for s in read_trace(path)]
    assert read == [
        (0, 0.0, 10, 1, ()),
        (1, 0.5, 20, 2, (("chat", 15),)),
        (2, 0.5, 30, 3, ()),
    ]
    result = simulate_engines(Demand(Trace(path), requests=2), engine())
    assert result.requests == 2
    assert result.output_tokens == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["empty", "arrival_s"]),
        (HEADER, ["no requests"]),
        ("arrival_s,prompt_tokens\n0,1", ["line 1", "output_tokens"]),
        (f"{HEADER},arrival_s\n0,1,1,0", ["line 1", "arrival_s", "twice"]),
        (f"{HEADER},prefix_id\n0,1,1,a", ["line 1", "prefix_tokens"]),
        (f"{HEADER}\n0,1,1\n-2,1,1", ["line 3", "arrival_s", "'-2'"]),
        (f"{HEADER}\n0,1,1\n\n5,1,1\n4,1,1", ["line 5", "arrival_s", "'4'", "sort"]),
        (f"{HEADER}\nsoon,1,1", ["line 2", "arrival_s", "'soon'"]),
        (f"{HEADER}\nnan,1,1", ["line 2", "arrival_s", "'nan'"]),
        (f"{HEADER}\n0,,1", ["line 2", "prompt_tokens", "''"]),
        (f"{HEADER}\n0,1.5,1", ["line 2", "prompt_tokens", "'1.5'"]),
        (f"{HEADER}\n0,1,0", ["line 2", "output_tokens", "'0'"]),
        (f"{HEADER}\n0,1,-3", ["line 2", "output_tokens", "'-3'"]),
        (f"{HEADER}\n0,1", ["line 2", "2 values", "3 columns"]),
        (f"{HEADER}\n0,1000000,1", ["line 2", "prompt_tokens", "'1000000'", "1,000,001", "1,600"]),
        (f"{HEADER},prefix_id,prefix_tokens\n0,5,1,a,6", ["line 2", "prefix_tokens", "'6'"]),
        (f"{HEADER},prefix_id,prefix_tokens\n0,5,1,,6", ["line 2", "prefix_tokens", "prefix_id"]),
        (f"{HEADER}\n0,1,1\n".encode() + b"\xff\xfe", ["UTF-8"]),
        (f"{HEADER}\n0,1,{'9' * 6000}", ["line 2", "output_tokens"]),
        (f"{HEADER}\n0,1,{'9' * 200_000}", ["line 2", "field"]),
        (f"{HEADER}\n1764547200000,1,1", ["line 2", "arrival_s", "seconds"]),  # milliseconds
        # An open quote would hide every row after it.
        (f'{HEADER},note\n0,1,1,"all\n1,1,1,is\n2,1,1,well', ["line 4", "end of data"]),
    ],
)
def test_traces_that_are_refused(tmp_path, text, told):
    path = written(tmp_path, text)
    begun = []
    with pytest.raises(InputError) as error:
        simulate_engines(
            Demand(Trace(path), requests=None), engine(capacity=100), ended=begun.extend
        )
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 400
    for words in [str(path), *told]:
        assert words in message
    assert not begun  # nothing is simulated before the whole trace is known to be right


def test_a_trace_is_no_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="save it"):
        simulate_engines(Demand(Trace(pipe)), engine())


def test_a_trace_as_spreadsheets_leave_it(tmp_path):
    path = written(tmp_path, f"{HEADER},,\n0,10,1,,\n   \n1,10,1,,\n")
    assert [s.arrival_s for s in read_trace(path)] == [0.0, 1.0]


def test_times_that_a_number_cannot_tell_apart():
    # At 1e-12 per second the times would be around 1e15, where numbers are an eighth apart.
    with pytest.raises(InputError, match="--rate"):
        simulate_engines(Demand(OpenLoop(1e-12), requests=1000), engine())
    slow = simulate_engines(Demand(OpenLoop(1e-6), requests=10), engine())
    alone = simulate_engines(Demand(ClosedLoop(1), requests=1), engine())
    assert slow.ttft_s.mean == pytest.approx(alone.ttft_s.mean, rel=1e-6)


def test_a_missing_trace(tmp_path):
    with pytest.raises(InputError, match="can't be read"):
        simulate_engines(Demand(Trace(tmp_path / "none.csv")), engine())


@pytest.mark.parametrize("prompt", ["2000", "uniform:10:2000", "exponential:2000"])
def test_drawn_requests_that_never_fit(prompt):
    demand = Demand(OpenLoop(1.0), lengths(prompt), lengths(10), 1000)
    with pytest.raises(InputError, match="never be served"):
        simulate_engines(demand, engine(capacity=100))


def test_pools_need_room_for_what_each_holds():
    demand = Demand(OpenLoop(1.0), lengths(1000), lengths(900), 10)
    both = Disaggregation(1, 1, Transfer(1.0, 1e9), engine(capacity=120))
    simulate_engines(demand, engine(capacity=63), disaggregation=both)
    with pytest.raises(InputError, match="1,001 tokens"):
        simulate_engines(demand, engine(capacity=62), disaggregation=both)
    with pytest.raises(InputError, match="1,900 tokens"):
        simulate_engines(
            demand, engine(capacity=63), disaggregation=Disaggregation(1, 1, both.transfer)
        )
