"""Closed forms of queueing theory: what an engine of one sequence must reproduce."""

from itertools import pairwise

import numpy as np
import pytest

from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop
from perfmodel.serving.engine import Transfer
from perfmodel.serving.policy import POLICIES
from perfmodel.serving.simulate import Disaggregation, simulate_engines
from tests.serving.toy import REAL, ToyTimes, engine, lengths

ONE = {"policy": "prefill_first", "seqs": 1}


def mean_and_error(values):
    """The mean of a correlated series, and its standard error from the means of 50 batches."""
    batches = np.array([batch.mean() for batch in np.array_split(np.array(values), 50)])
    return batches.mean(), batches.std(ddof=1) / np.sqrt(len(batches))


def waits(demand, times):
    collected = []
    result = simulate_engines(
        demand,
        engine(times, **ONE),
        ended=lambda done: collected.extend(s.admitted_s - s.arrival_s for s in done),
    )
    assert result.queue_s.mean == pytest.approx(np.mean(collected))
    return mean_and_error(collected)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_md1_waiting_time(load):
    # One token each: a service is the prefill of 100 tokens, 1 s. Wq = ρS/(2(1 − ρ)).
    demand = Demand(OpenLoop(load), lengths(100), lengths(1), 200_000, seed=1)
    mean, error = waits(demand, ToyTimes())
    assert error < 0.03 * mean
    assert mean == pytest.approx(load / (2 * (1 - load)), abs=4 * error)


def test_mg1_waiting_time():
    # Service 0.01·P + (O − 1)·0.1 s with P in 1 … 199, O in 1 … 11, all as likely: the mean is
    # 0.01·100 + 0.1·5 = 1.5 s; the variance of a uniform whole number of n values is (n² − 1)/12.
    variance = 1e-4 * (199**2 - 1) / 12 + 1e-2 * (11**2 - 1) / 12
    rate, mean_s = 0.5, 1.5
    expected = rate * (mean_s**2 + variance) / (2 * (1 - rate * mean_s))  # Pollaczek–Khinchine
    demand = Demand(OpenLoop(rate), lengths("uniform:1:199"), lengths("uniform:1:11"), 100_000)
    mean, error = waits(demand, ToyTimes(base=0.1))
    assert error < 0.03 * mean
    assert mean == pytest.approx(expected, abs=4 * error)


LAYOUTS = [
    {},
    {"replicas": 3, "router": "least_loaded"},
    {"disaggregation": Disaggregation(2, 1, Transfer(131072, 50e9, 1e-3))},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=["one", "replicas", "pools"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("arrivals", [ClosedLoop(40), OpenLoop(12.0, 0.5)], ids=["closed", "open"])
def test_littles_law(policy, arrivals, layout):
    # What is integrated over time must equal what the requests add up to: L·T = Σ sojourn.
    demand = Demand(arrivals, lengths("uniform:200:2000"), lengths("uniform:1:200"), 400)
    result = simulate_engines(demand, engine(REAL, policy, capacity=1500), **layout)
    inside = result.mean_running + result.mean_waiting
    sojourn = result.e2e_s.mean * result.requests / result.simulated_s
    if "disaggregation" in layout:
        assert inside < sojourn  # while its cache is on its way, no instance has a request
    else:
        assert inside == pytest.approx(sojourn, rel=1e-9)
    line = result.timeline
    assert len(line.time_s) <= 512
    width = line.time_s[1] - line.time_s[0]
    last = result.simulated_s - (line.time_s[-1] - line.time_s[0])
    spans = np.append(np.full(len(line.time_s) - 1, width), last)
    for name in ("running", "waiting"):
        mean = float(getattr(line, name) @ spans) / result.simulated_s
        assert mean == pytest.approx(getattr(result, f"mean_{name}"), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("policy", POLICIES)
def test_work_is_conserved(policy):
    # An engine of one sequence works off the same seconds in any order of its steps.
    work = []
    result = simulate_engines(
        Demand(OpenLoop(0.1), lengths("uniform:1:199"), lengths("uniform:1:11"), 2000),
        engine(ToyTimes(), policy, seqs=1),
        ended=lambda done: work.extend(0.01 * s.prompt + s.output - 1 for s in done),
    )
    assert result.utilisation * result.simulated_s == pytest.approx(sum(work), rel=1e-9)


def test_saturated_throughput_of_equal_steps():
    # Every step takes 1 s whatever is in it: a user's request of 10 tokens takes 10 steps, and the
    # next begins in the step after: 8 users get 8 requests in 10 s.
    demand = Demand(ClosedLoop(8), lengths(100), lengths(10), 800)
    result = simulate_engines(demand, engine(SameTimes(), "chunked_mixed"))
    assert result.utilisation == pytest.approx(1)
    assert result.requests_per_s == pytest.approx(0.8, rel=1e-12)
    assert result.tpot_s.mean == pytest.approx(1)
    assert result.ttft_s.mean == pytest.approx(1)


class SameTimes(ToyTimes):
    def mixed(self, sequences, context, chunks, ended):
        return self.base


def test_saturated_throughput_of_static_batches():
    # A batch of 4: prompts 4·100·0.01 = 4 s, then 9 steps of 1 + 0.5·4 = 3 s: 31 s for 4 requests.
    times = ToyTimes(per_sequence=0.5)
    demand = Demand(ClosedLoop(12), lengths(100), lengths(10), 400)
    result = simulate_engines(demand, engine(times, "static", seqs=4))
    assert result.requests_per_s == pytest.approx(4 / 31, rel=1e-12)
    assert result.output_tokens_per_s == pytest.approx(40 / 31, rel=1e-12)
    assert result.total_tokens_per_s == pytest.approx(440 / 31, rel=1e-12)


def test_more_load_never_waits_less():
    # The same requests, closer together: of a queue in order, each waits at least as long.
    def each(rate):
        collected = {}
        demand = Demand(
            OpenLoop(rate, 0.5), lengths("uniform:1:199"), lengths("uniform:1:11"), 5000
        )
        simulate_engines(
            demand,
            engine(ToyTimes(base=0.1), **ONE),
            ended=lambda done: collected.update(
                (s.number, s.admitted_s - s.arrival_s) for s in done
            ),
        )
        return np.array([collected[number] for number in range(5000)])

    rates = [0.1, 0.3, 0.5, 0.6, 0.8]
    served = [each(rate) for rate in rates]
    for less, more in pairwise(served):
        assert (more >= less - 1e-6).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_more_load_waits_longer_in_the_mean(policy):
    def queue(rate):
        demand = Demand(
            OpenLoop(rate), lengths("uniform:200:1000"), lengths("uniform:20:200"), 2000
        )
        return simulate_engines(demand, engine(REAL, policy, seqs=32)).queue_s.mean

    waited = [queue(rate) for rate in (2, 8, 16, 32, 64)]
    assert waited == sorted(waited)


def test_bursts_wait_longer():
    def queue(burstiness):
        demand = Demand(OpenLoop(0.7, burstiness), lengths(100), lengths(1), 20_000)
        return simulate_engines(demand, engine(**ONE)).queue_s.mean

    waited = [queue(burstiness) for burstiness in (4.0, 1.0, 0.25)]
    assert waited == sorted(waited)
