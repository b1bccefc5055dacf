"""Prefill's part of what steps take, on an engine whose step times are a formula."""

from dataclasses import replace

from perfmodel.planning.capacity.metered import MeteredLockstep, MeteredSteps, metered
from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop
from perfmodel.serving.lockstep import LockstepSteps, Share
from perfmodel.serving.simulate import simulate_engines
from tests.serving.toy import ToyTimes, engine


def test_a_step_beside_decodes_counts_as_far_as_it_is_longer():
    times = MeteredSteps(ToyTimes(base=1.0, per_sequence=0.1, per_prompt=0.01))
    assert times.mixed(0, 0.0, [(50, 0)], 1) == 0.5
    assert times.prefill_s == 0.5
    # 1 + 0.1·3 + 0.01·20 = 1.5, of which decoding three alone takes 1.3
    assert times.mixed(3, 90.0, [(20, 0)], 1) == 1.5
    assert abs(times.prefill_s - 0.7) < 1e-12
    assert times.decode(3, 90.0) == 1.3
    assert abs(times.prefill_s - 0.7) < 1e-12


def test_all_prompts_of_a_run_are_counted_once():
    times = MeteredSteps(ToyTimes(base=0.01, per_prompt=0.001))
    demand = Demand(OpenLoop(2.0), prompt=100, output=5, requests=50)
    for policy in ("prefill_first", "chunked_mixed"):
        times.prefill_s = 0.0
        simulate_engines(demand, engine(times, policy))
        # 50 prompts of 100 tokens at 1 ms each, however they meet decodes
        assert abs(times.prefill_s - 5.0) < 1e-9


def test_a_prompt_on_one_rank_keeps_all_waiting():
    one = ToyTimes(base=1.0, per_sequence=0.1, per_prompt=0.01)
    times = metered(LockstepSteps(one, 2))
    assert isinstance(times, MeteredLockstep)
    # The rank with the prompt takes 1 + 0.1·2 + 0.01·50 = 1.7, and 1.3 pass where both decode.
    assert times.mixed([Share(3, 90.0), Share(2, 60.0, ((50, 0),), 1)]) == 1.7
    assert abs(times.prefill_s - 0.4) < 1e-12
    # Requests that never meet: 50 prompts of 100 tokens at 1 ms each.
    times = MeteredLockstep(LockstepSteps(ToyTimes(base=0.01, per_prompt=0.001), 2))
    demand = Demand(ClosedLoop(1), prompt=100, output=5, requests=50)
    simulate_engines(demand, replace(engine(), times=times))
    assert abs(times.prefill_s - 5.0) < 1e-9
