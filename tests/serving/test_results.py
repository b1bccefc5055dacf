"""The record: its names, its warm-up, its rows, its timeline."""

import json
import math

import numpy as np
import pytest

from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop
from perfmodel.serving.engine import Transfer
from perfmodel.serving.occupancy import POINTS, Occupancy
from perfmodel.serving.results import DEFINITIONS, LATENCIES, request_record, simulation_record
from perfmodel.serving.simulate import Disaggregation, simulate_engines
from tests.serving.toy import REAL, engine, lengths


def test_the_record_has_the_public_names():
    result = simulate_engines(Demand(ClosedLoop(4), requests=40), engine(REAL, gpus=2))
    record = simulation_record(result)
    for name in LATENCIES:
        assert set(record[name]) == {"mean", "p50", "p90", "p99"}
    names = {
        "requests_per_s", "output_tokens_per_s", "total_tokens_per_s", "preemptions",
        "kv_utilisation", "requests", "simulated_s", "wall_s",
    }  # fmt: skip
    assert names <= set(record)
    assert record["output_tokens_per_s_per_gpu"] == record["output_tokens_per_s"] / 2
    assert set(DEFINITIONS) <= set(record)
    assert json.loads(json.dumps(record, allow_nan=False))["requests"] == 40


def test_figures_that_do_not_exist_are_none():
    result = simulate_engines(Demand(ClosedLoop(1), output=lengths(1), requests=3), engine(REAL))
    record = simulation_record(result)
    assert record["tpot_s"] == dict.fromkeys(("mean", "p50", "p90", "p99"))
    assert record["itl_s"]["mean"] is None
    json.dumps(record, allow_nan=False)


def test_rows_of_requests_add_up_to_the_record():
    rows = []
    result = simulate_engines(
        Demand(ClosedLoop(30), lengths("uniform:10:900"), lengths("uniform:1:90"), 500),
        engine(REAL, "chunked_mixed", capacity=300),
        ended=lambda done: rows.extend(request_record(s) for s in done),
    )
    assert result.preemptions > 0
    assert sum(row["preemptions"] for row in rows) == result.preemptions
    for name in ("ttft_s", "tpot_s", "e2e_s", "queue_s"):
        values = [row[name] for row in rows if row[name] is not None]
        made = getattr(result, name)
        assert made.count == len(values)
        assert made.mean == pytest.approx(np.mean(values))
        assert made.p90 == pytest.approx(
            np.quantile(values, 0.9, method="inverted_cdf"), rel=1e-3, abs=1e-9
        )
    assert sum(row["output_tokens"] for row in rows) == result.output_tokens


@pytest.mark.parametrize("warmup", [0, 1, 399])
@pytest.mark.parametrize("pools", [None, Disaggregation(2, 1, Transfer(1e3, 1e9))])
def test_the_longest_request_counts_wherever_it_ran(warmup, pools):
    tokens = []
    result = simulate_engines(
        Demand(ClosedLoop(30), lengths("uniform:10:900"), lengths("uniform:1:90"), 400),
        engine(REAL),
        warmup=warmup,
        disaggregation=pools,
        ended=lambda done: tokens.extend(s.prompt + s.output for s in done),
    )
    assert (result.longest_tokens, len(tokens)) == (max(tokens), 400)


def test_a_warm_up_leaves_the_start_burst_out():
    demand = Demand(ClosedLoop(16), lengths(1000), lengths("uniform:50:60"), 400)
    whole = simulate_engines(demand, engine(REAL, "chunked_mixed"))
    later = simulate_engines(demand, engine(REAL, "chunked_mixed"), warmup=64)
    assert later.ttft_s.count == 400 - 64
    assert later.requests == whole.requests == 400
    assert later.ttft_s.p99 < 0.5 * whole.ttft_s.p99
    assert later.itl_s.count < whole.itl_s.count
    assert later.simulated_s == whole.simulated_s
    # the rate of the rest is about the rate of the whole
    assert later.requests_per_s == pytest.approx(whole.requests_per_s, rel=0.05)
    assert later.mean_running == pytest.approx(whole.mean_running, rel=0.05)
    assert 0.99 < later.utilisation <= 1 + 1e-12


def test_a_warm_up_of_a_queue_that_settles():
    # Poisson arrivals in a queue of one: the mean wait of the rest is that of the rest's rows.
    waits = {}
    result = simulate_engines(
        Demand(OpenLoop(0.7), lengths(100), lengths(1), 5000), engine(seqs=1), warmup=1000,
        ended=lambda done: waits.update((s.number, s.admitted_s - s.arrival_s) for s in done),
    )  # fmt: skip
    rest = [waits[number] for number in range(1000, 5000)]
    assert result.queue_s.mean == pytest.approx(np.mean(rest))


def test_a_timeline_keeps_every_integral_while_it_is_decimated():
    rng = np.random.default_rng(0)
    held = Occupancy(blocks=10.0, engines=1)
    total, time = 0.0, 100.0
    for _ in range(200):
        for _ in range(50):
            end = time + rng.exponential(1.0)
            held.add((time, end, 3, 1, 5.0, 6.0))
            total += end - time
            time = end + rng.exponential(0.5)
        held.flush()
    line = held.timeline()
    assert POINTS / 2 <= len(line.time_s) <= POINTS
    assert line.time_s[0] == 100
    spans = np.append(np.diff(line.time_s), held.last - line.time_s[-1])
    assert float(spans @ line.running) == pytest.approx(3 * total)
    assert float(spans @ line.waiting) == pytest.approx(total)
    assert float(spans @ line.kv_utilisation) == pytest.approx(0.5 * total)
    assert held.running_s == pytest.approx(3 * total)
    assert held.busy_s == pytest.approx(total)
    assert held.peak == 6.0


def test_a_timeline_of_two_pools_keeps_the_end():
    # One pool's stretches of 1 s begin at 0, the other's of 1.5 s at 0.5: the one in which its last
    # step ends, at 500.25, goes on to 501.5.
    first, other = Occupancy(1.0, 1), Occupancy(1.0, 1)
    first.add((0.0, 512.0, 1, 0, 0.0, 0.0))
    other.add((0.5, 384.5, 2, 0, 0.0, 0.0))
    first.flush()
    other.flush()
    other.add((384.5, 500.25, 2, 0, 0.0, 0.0))
    other.flush()
    line = first.timeline((other,))
    spans = np.append(np.diff(line.time_s), 512.0 - line.time_s[-1])
    assert float(spans @ line.running) == pytest.approx(512 + 2 * 499.75, rel=1e-12)
    # Nothing runs in the second pool after its end.
    late = line.time_s > 500.25
    assert line.running[late] == pytest.approx(1.0)


def test_a_timeline_of_nothing():
    assert len(Occupancy(1.0, 1).timeline().time_s) == 0


def test_the_timeline_shows_a_burst_drain():
    # All come at once to an engine of one sequence: what waits falls in a line from 99 to 0.
    demand = Demand(OpenLoop(math.inf), lengths(100), lengths(1), 100)
    result = simulate_engines(demand, engine(seqs=1))
    line = result.timeline
    assert line.waiting == pytest.approx(99.5 - line.time_s - np.diff(line.time_s)[0] / 2, abs=0.6)
    assert result.mean_waiting == pytest.approx(49.5)
