"""What test_mean_field.py and test_mean_field_properties.py share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from perfmodel.serving.arrivals import ClosedLoop, Demand
from perfmodel.serving.asked import Asked, Bounds
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.lockstep import LockstepSteps
from perfmodel.serving.open_loop import open_loop
from perfmodel.serving.results import Simulation
from perfmodel.serving.simulate import simulate_engines
from perfmodel.serving.steady import State, closed_loop, drained
from perfmodel.serving.step_arrays import LockstepArrays
from tests.serving.toy import ToyTimes

RUNNING = ["chunked_mixed", "inflight_no_evict", "prefill_first", "prefill_first_chunked"]


class ToyArrays:
    """`ToyTimes` for arrays."""

    def __init__(self, times: ToyTimes) -> None:
        self.times = times
        self.tokens_per_step = times.tokens_per_step
        self.width = times.width

    def decode(self, sequences, each, everywhere=None):
        return self.times.decode(sequences, sequences * each)

    def attention(self, count, new, cached):
        return 0.0 * (count + new + cached)

    def mixed(self, sequences, each, tokens, attention_s, prompts, everywhere=None):
        beside = np.where(sequences > 0, self.decode(sequences, each), 0.0)
        return beside + self.times.per_prompt * tokens + attention_s


def even(tokens: int, spread: float = 0.2) -> Lengths:
    low = max(1, round(tokens * (1 - spread)))
    return Lengths.parse(f"uniform:{low}:{tokens}" if spread else tokens, "length")


def asked(prompt: Lengths, output: Lengths, count: int = 1) -> Asked:
    one = Asked.of(prompt, output)
    return replace(one, prompt=np.repeat(one.prompt, count), output=np.repeat(one.output, count))


def fast(made: Any, what: Asked, users: float | None = None, rate: float | None = None) -> State:
    alone: Any = made.times.one if isinstance(made.times, LockstepSteps) else made.times
    bounds = Bounds.of(made, alone.width)
    times: Any = ToyArrays(alone)
    if made.ranks > 1:
        times = LockstepArrays(times, made.ranks, made.max_num_batched_tokens)
    if rate is not None:
        return open_loop(what, bounds, times, np.array([float(rate)]))
    solve = drained if made.policy.prefill == "drained" else closed_loop
    return solve(what, bounds, times, np.array([float(users or 1)]), 10)


def run(made: Any, prompt: Lengths, output: Lengths, users: int, cycles: int = 60) -> Simulation:
    demand = Demand(ClosedLoop(users), prompt, output, cycles * users)
    return simulate_engines(demand, made, warmup=cycles * users // 2)
