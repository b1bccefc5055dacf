"""Replicas and pools: independence, order of events, conservation, determinism."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop, Trace
from perfmodel.serving.cluster import Cluster
from perfmodel.serving.engine import Transfer
from perfmodel.serving.policy import POLICIES
from perfmodel.serving.recorder import Recorder
from perfmodel.serving.results import simulation_record
from perfmodel.serving.router import ROUTERS, PrefixAware, router_named
from perfmodel.serving.shared_prefix import SharedPrefix
from perfmodel.serving.simulate import Disaggregation, simulate_engines
from perfmodel.serving.tier import Tier
from tests.serving.toy import REAL, ToyTimes, engine, lengths

NVLINK = Transfer(131072, 50e9, 1e-3)
MIXED = {"prompt": lengths("uniform:100:1500"), "output": lengths("uniform:1:150")}


def served(demand, setup, **layout):
    """(requests, 4) first token, end, admission and preemptions of each request."""
    rows = {}

    def ended(done):
        for s in done:
            assert s.number not in rows
            rows[s.number] = (s.first_s, s.finish_s, s.admitted_s, s.preemptions)

    result = simulate_engines(demand, setup, ended=ended, **layout)
    assert result.requests == len(rows)
    return np.array([rows[number] for number in range(len(rows))]), result


@pytest.mark.parametrize("policy", POLICIES)
def test_round_robin_is_so_many_independent_engines(tmp_path, policy):
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.exponential(0.05, 300))
    rows = [
        f"{t:.6f},{p},{o}"
        for t, p, o in zip(
            times, rng.integers(100, 1500, 300), rng.integers(1, 150, 300), strict=True
        )
    ]

    def trace(name, lines):
        path = tmp_path / name
        path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
        return Demand(Trace(path), requests=None)

    setup = engine(REAL, policy, capacity=800)
    together, _ = served(trace("all", rows), setup, replicas=3)
    for index in range(3):
        alone, _ = served(trace(f"part{index}", rows[index::3]), setup)
        assert together[index::3] == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("arrivals", [ClosedLoop(50), OpenLoop(15.0)], ids=["closed", "open"])
def test_a_cluster_of_one_is_the_engine_alone(policy, arrivals):
    setup, demand = engine(REAL, policy, capacity=800), Demand(arrivals, **MIXED, requests=500)
    ends = {}
    recorder = Recorder(ended=lambda done: ends.update((s.number, s.finish_s) for s in done))
    Cluster(recorder, router_named("round_robin"), setup, 1).run(demand.source(setup.misfit()))
    alone, _ = served(demand, setup)
    assert [ends[number] for number in range(500)] == pytest.approx(alone[:, 1], rel=1e-9)


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("arrivals", [ClosedLoop(60), OpenLoop(30.0, 0.3)], ids=["closed", "open"])
@pytest.mark.parametrize("policy", ["static", "prefill_first", "chunked_mixed"])
def test_jumping_changes_nothing(policy, arrivals, router):
    # Step by step, or from event to event: the same requests meet the same state. (A sum of steps
    # rounds differently, and ties are made unlikely by the lengths.)
    demand = Demand(arrivals, **MIXED, requests=250, prefix=SharedPrefix(50, 7))
    layout = {"replicas": 3, "router": router}
    for setting in (layout, {"router": router, "disaggregation": Disaggregation(2, 2, NVLINK)}):
        jumped, _ = served(demand, engine(REAL, policy, capacity=800), **setting)
        stepped, _ = served(
            demand, engine(replace(REAL, one_by_one=True), policy, capacity=800), **setting
        )
        assert jumped == pytest.approx(stepped, rel=1e-6)


@dataclass
class Sawtooth(ToyTimes):
    """Steps that get shorter wherever the mean context reaches another 400 tokens."""

    def decode(self, sequences, context):
        own = context - sequences * self._started(sequences, context)
        return self.base + self.per_context * own

    def linear_up_to(self, sequences, context):
        if self.one_by_one:
            return context
        return sequences * (self._started(sequences, context) + 399)

    def _started(self, sequences, context):
        return 400 * (context // sequences // 400)


@pytest.mark.parametrize("router", ROUTERS)
def test_jumping_changes_nothing_where_steps_get_shorter(router):
    # A replica's word that it ends nothing for so long is then not its first step's.
    demand = Demand(ClosedLoop(24), lengths("uniform:100:700"), lengths("uniform:1:600"), 300)
    found = [
        served(
            demand, engine(Sawtooth(1e-3, 0, 4e-5, 25e-6, jumps), "chunked_mixed", capacity=1e4),
            replicas=3, router=router,
        )[0]
        for jumps in (False, True)
    ]  # fmt: skip
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_joining_the_shortest_queue():
    # Engines of one sequence are queues in order: each request goes to the one with the fewest
    # that haven't ended at its time, of equal ones to the next in turn.
    demand = Demand(OpenLoop(1.5, 0.4), lengths("uniform:1:199"), lengths("uniform:1:11"), 3000)
    setup = engine(ToyTimes(base=0.1), seqs=1)
    rows, _ = served(demand, setup, replicas=3, router="least_loaded")
    ends: list[list[float]] = [[], [], []]
    turn = -1
    for sequence, (_, end, _, _) in zip(demand.source(setup.misfit()).arrivals, rows, strict=True):
        now = sequence.arrival_s
        loads = [sum(end > now for end in queue[-50:]) for queue in ends]
        turn = min(range(turn + 1, turn + 4), key=lambda index: loads[index % 3]) % 3
        start = max(now, ends[turn][-1] if ends[turn] else 0.0)
        ends[turn].append(start + 0.01 * sequence.prompt + 0.1 * (sequence.output - 1))
        assert end == pytest.approx(ends[turn][-1], rel=1e-9)


def test_least_loaded_beats_round_robin_on_bursts():
    def queue(router, seed):
        demand = Demand(OpenLoop(70.0, 0.2), **MIXED, requests=1000, seed=seed)
        return simulate_engines(
            demand, engine(REAL, seqs=16), replicas=4, router=router
        ).queue_s.mean

    saved = [queue("round_robin", seed) - queue("least_loaded", seed) for seed in range(6)]
    assert np.mean(saved) > 2 * np.std(saved, ddof=1) / np.sqrt(len(saved))


class Fake:
    def __init__(self, load):
        self.load = load


def test_a_prefix_goes_home_unless_home_is_overloaded():
    router = PrefixAware(factor=1.5, excess=4)
    engines = [Fake(3), Fake(0), Fake(2)]
    assert router.choose(engines, (("a", 10),)) == 1
    assert router.choose(engines, (("a", 10), ("b", 10))) == 1
    engines[1].load = 6  # 6 − 2 isn't above 4
    assert router.choose(engines, (("a", 10), ("c", 10))) == 1
    engines[1].load = 7  # both limits passed
    assert router.choose(engines, (("a", 10), ("b", 10))) == 2
    assert router.choose(engines, (("a", 10), ("b", 10))) == 2
    engines[:] = [Fake(100), Fake(100), Fake(110)]  # 110 isn't above 150
    assert router.choose(engines, (("a", 10),)) == 2
    assert router.choose(engines, ()) in {0, 1}


@settings(max_examples=80, deadline=None)
@given(
    policy=st.sampled_from(list(POLICIES)),
    router=st.sampled_from(list(ROUTERS)),
    pools=st.tuples(st.integers(1, 3), st.integers(0, 3)),
    arrivals=st.one_of(
        st.builds(ClosedLoop, st.integers(1, 40), st.sampled_from([0.0, 0.3])),
        st.builds(OpenLoop, st.sampled_from([1.0, 20.0, math.inf]), st.sampled_from([0.3, 1.0])),
    ),
    requests=st.integers(1, 60),
    seed=st.integers(0, 99),
    room=st.tuples(st.integers(1, 20), st.integers(20, 4000), st.sampled_from([110, 5000])),
    levers=st.fixed_dictionaries(
        {},
        optional={
            "prefixes": st.sampled_from([(), (Tier(200, 1e9),)]),
            "swap": st.just(Tier(300, 1e9)),
            "tokens_per_step": st.sampled_from([1.7, 3]),
        },
    ),
)
def test_every_request_ends_once_and_nothing_leaks(
    policy, router, pools, arrivals, requests, seed, room, levers
):
    levers = dict(levers)
    speculation = levers.pop("tokens_per_step", 1)
    setup = engine(replace(REAL, tokens_per_step=speculation), policy, *room, **levers)
    shared = SharedPrefix(100, 5)
    demand = Demand(arrivals, **MIXED, requests=requests, seed=seed, prefix=shared)
    ended = []
    recorder = Recorder(ended=ended.extend)
    decode = (setup, pools[1], router_named(router)) if pools[1] else None
    slow = Transfer(131072, 1e9, 1e-3)
    cluster = Cluster(recorder, router_named(router), setup, pools[0], decode, slow)
    cluster.run(demand.source(setup.misfit()))
    recorder.flush()
    assert sorted(s.number for s in ended) == list(range(requests))
    assert recorder.output_tokens == sum(s.output for s in ended)
    assert recorder.itl.count == pytest.approx(sum(s.output - 1 for s in ended))
    computed = sum(watch.prefill_tokens for watch in recorder.pools)
    if not sum(s.preemptions for s in ended):
        assert computed + sum(s.hit_tokens for s in ended) == recorder.prompt_tokens
    for s in ended:
        assert s.arrival_s <= s.admitted_s <= s.first_s <= s.finish_s
    assert [s.finish_s for s in ended] == sorted(s.finish_s for s in ended)
    for replica in (*cluster._entrance, *cluster._decoding):
        assert replica.load == 0
        assert replica.instance.idle
        assert replica.instance.cache_used() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"replicas": 2, "router": "prefix_aware"},
        {"disaggregation": Disaggregation(1, 2, NVLINK)},
    ],
)
def test_a_seed_repeats_everything(layout):
    def record(seed):
        demand = Demand(
            OpenLoop(20.0, 0.5), **MIXED, requests=300, seed=seed, prefix=SharedPrefix(64, 3)
        )
        made = simulation_record(simulate_engines(demand, engine(REAL, "chunked_mixed"), **layout))
        return {name: value for name, value in made.items() if name != "wall_s"}

    assert record(1) == record(1)
    assert record(1) != record(2)


def test_users_who_think():
    # One user, 1 s of prompt, 2 s of thought: a request every 3 s.
    demand = Demand(ClosedLoop(1, think_s=2.0), lengths(100), lengths(1), 10)
    _, result = served(demand, engine())
    assert result.simulated_s == pytest.approx(28)
    assert result.queue_s.mean == 0


def test_progress_and_a_long_closed_loop():
    told = []
    demand = Demand(ClosedLoop(64), lengths(100), lengths(1), 20_000)
    simulate_engines(
        demand, engine(seqs=64), progress=lambda done, total: told.append((done, total))
    )
    assert told == sorted(told)
    assert told[-1] == (20_000, 20_000)
    assert len(told) >= 3
