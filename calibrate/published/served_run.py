"""Simulate mapped loads, each deployment's step times made once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from calibrate.published.served_cases import Load
from calibrate.published.served_settings import tuned_limits
from perfmodel.errors import PerfmodelError
from perfmodel.serving.lockstep import LockstepSteps
from perfmodel.serving.results import Simulation
from perfmodel.serving.serve import Served, run, served
from perfmodel.serving.step_times import StepTimes
from perfmodel.specs.deployment import Deployment

LIMITS = ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization")
"""Settings that step times don't depend on."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Found:
    """What the simulator says of a load; NaN and a reason where it can say nothing."""

    load: Load
    predicted: float = math.nan
    """As `Load.measured`."""
    running: float = math.nan
    """Sequences in the engines, averaged over time."""
    reason: str = ""


class Runner:
    """Simulates loads; rows of one run share its simulation, those of one deployment its steps."""

    def __init__(self) -> None:
        self._times: dict[tuple[object, ...], StepTimes | LockstepSteps] = {}
        self._done: dict[tuple[object, ...], Simulation | str] = {}

    def find(self, load: Load) -> Found:
        """A load's prediction."""
        key = (load.model, load.hardware, load.deployment, load.serving, load.demand, load.tuned)
        if key not in self._done:
            try:
                self._done[key] = self._simulate(load)
            except PerfmodelError as error:
                self._done[key] = str(error)
        done = self._done[key]
        if isinstance(done, str):
            return Found(load, reason=done)
        return Found(load, _figure(load, done), done.mean_running)

    def _simulate(self, load: Load) -> Simulation:
        case = self._served(load, load.deployment)
        if load.tuned:
            case = self._served(load, _tuned(load, case))
        return run(case, load.demand, load.serving)

    def _served(self, load: Load, deployment: Deployment) -> Served:
        case = served(load.model, load.hardware, deployment, load.serving)
        steps = deployment.model_copy(update=dict.fromkeys(LIMITS))
        times = self._times.setdefault((load.model, load.hardware, steps), case.engine.times)
        return replace(case, engine=replace(case.engine, times=times))


def _tuned(load: Load, case: Served) -> Deployment:
    """The deployment with the limits of a step that its benchmark chooses."""
    prompt, output = load.demand.prompt.mean, load.demand.output.mean
    held = case.engine.capacity * case.engine.blocks().block / (prompt + output)
    sequences, tokens = tuned_limits(held, prompt, output)
    return load.deployment.model_copy(
        update={"max_num_seqs": sequences, "max_num_batched_tokens": tokens}
    )


def _figure(load: Load, done: Simulation) -> float:
    if load.quantity == "throughput":
        return done.output_tokens_per_s
    tpot = done.tpot_s.p50 if load.median else done.tpot_s.mean
    if load.quantity == "tpot":
        return 1e3 * tpot
    ttft = done.ttft_s.p50 if load.median else done.ttft_s.mean
    return 1e3 * (ttft + (tpot if load.overlapped else 0.0))


def find_all(cases: Sequence[Load], progress: Progress | None = None) -> list[Found]:
    """All predictions, in order."""
    runner = Runner()
    found = []
    for load in cases:
        found.append(runner.find(load))
        if progress is not None:
            progress(len(found), len(cases))
    return found
