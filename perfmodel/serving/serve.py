"""A deployment under load: its engine made of step times, cache and scheduler, and simulated."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from perfmodel.errors import InputError
from perfmodel.inference.estimate import running
from perfmodel.inference.plan import Plan, make_plan
from perfmodel.operators.cache import kv_bytes_per_token, state_bytes_per_sequence
from perfmodel.serving.arrivals import Demand
from perfmodel.serving.blocks import Blocks
from perfmodel.serving.engine import Engine, Transfer
from perfmodel.serving.kv_room import kv_room
from perfmodel.serving.lockstep import LockstepSteps
from perfmodel.serving.policy import Policy, policy_named, policy_of
from perfmodel.serving.pricing import Pricer
from perfmodel.serving.recorder import Ended
from perfmodel.serving.results import Simulation
from perfmodel.serving.simulate import Disaggregation, simulate_engines
from perfmodel.serving.tables import TabulatedSteps
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine_groups import Scheduler
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import Model
from perfmodel.specs.workload import LARGEST, Workload

LONGEST = 131_072
"""Context up to which step times are tabulated where the model states no length."""


@dataclass(frozen=True, slots=True)
class Serving:
    """How a deployment is served, beyond what `Deployment` says."""

    scheduler: str | None = None
    """A policy by name; None: the engine preset's."""
    prefix_caching: bool | None = None
    """Whether prompts stay cached; None: as the preset does, where requests share anything."""
    router: str = "round_robin"
    """How a replica is chosen: ``round_robin``, ``least_loaded`` or ``prefix_aware``."""
    disaggregate: tuple[int, int] | None = None
    """Instances that prefill, and instances that decode."""
    warmup: int = 0
    """Requests that the statistics leave out, in the order of arrival."""


@dataclass(frozen=True, slots=True)
class Served:
    """A deployment as its simulator sees it."""

    model: Model
    hardware: Hardware
    plan: Plan
    """Of one replica where data-parallel replicas share nothing."""
    engine: Engine
    replicas: int
    calibration: str
    pricer: Pricer
    """What prices its steps."""


def served(
    model: Model | str | os.PathLike[str],
    hardware: Hardware | str | os.PathLike[str],
    deployment: Deployment | None = None,
    serving: Serving | None = None,
) -> Served:
    """The engine of a deployment.

    Args:
        model: a `Model`, or what `load_model` takes.
        hardware: a `Hardware`, or what `load_hardware` takes.
        deployment: parallel layout, formats and engine settings. Data-parallel replicas that
            share no experts become replicas behind a router; those that do run in lockstep.
        serving: scheduler and prefix caching.

    Raises:
        InputError: one line that names the wrong field and what would do.
    """
    serving = serving or Serving()
    model = model if isinstance(model, Model) else load_model(model)
    hardware = hardware if isinstance(hardware, Hardware) else load_hardware(hardware)
    deployment = deployment or Deployment()
    shares = deployment.ep > deployment.tp
    replicas = 1 if shares else deployment.dp
    if replicas > 1:
        deployment = deployment.model_copy(update={"dp": 1})
    # What several micro-batches or ranks for a prompt need: the pricer refuses them, and says why.
    sequences = deployment.dp * deployment.pp_microbatches
    output = 1 if deployment.speculation is None else 2  # one token leaves nothing to draft
    workload = Workload(batch=sequences, prompt=deployment.cp, output=output)
    plan = make_plan(model, hardware, workload, deployment)
    device, runs, host = running(hardware, plan)
    pricer = Pricer(plan.model, plan, runs, host)
    blocks = kv_room(plan.model, hardware, plan).blocks
    one = TabulatedSteps(pricer, *contexts(plan, blocks()))
    ranks = plan.parallel.dp
    times = one if ranks == 1 else LockstepSteps(one, ranks)
    preset = plan.engine.scheduler
    caches = serving.prefix_caching
    if caches is None:
        caches = preset is not None and preset.prefix_caching
    engine = Engine(
        times=times,
        blocks=blocks,
        policy=scheduling(serving, preset),
        max_num_seqs=plan.limits.max_num_seqs,
        max_num_batched_tokens=plan.limits.max_num_batched_tokens,
        gpus=plan.parallel.gpus,
        prefixes=() if caches else None,
    )
    return Served(model, hardware, plan, engine, replicas, device.label, pricer)


def scheduling(serving: Serving, preset: Scheduler | None) -> Policy:
    """As asked, else the preset's, else vLLM's where a preset states none."""
    if serving.scheduler is not None:
        return policy_named(serving.scheduler)
    return policy_named("chunked_mixed") if preset is None else policy_of(preset)


def contexts(plan: Plan, blocks: Blocks) -> tuple[int, int]:
    """Up to which context step times are tabulated: what the model was made for, what fits."""
    longest = min(plan.model.max_positions or LONGEST, LARGEST)
    return longest, min(max(blocks.longest(), longest), LARGEST)


def transfer_of(case: Served) -> Transfer:
    """How a prompt's cache gets from one instance to another: over the network of its GPUs.

    Raises:
        InputError: the profile has no network.
    """
    hardware, plan = case.hardware, case.plan
    if hardware.network_bandwidth is None:
        raise InputError(
            f"--disaggregate: the profile of {hardware.name} has no network.gb_s_per_gpu"
        )
    return Transfer(
        bytes_per_token=float(kv_bytes_per_token(plan.model, plan.formats.cache)),
        bandwidth=hardware.network_bandwidth * plan.parallel.gpus,
        bytes_per_sequence=float(state_bytes_per_sequence(plan.model)),
    )


def simulate(
    model: Model | str | os.PathLike[str],
    hardware: Hardware | str | os.PathLike[str],
    demand: Demand,
    deployment: Deployment | None = None,
    serving: Serving | None = None,
    *,
    ended: Ended | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Simulate what users of a deployment see.

    Args:
        model: a `Model`, or what `load_model` takes.
        hardware: a `Hardware`, or what `load_hardware` takes.
        demand: the requests: a closed loop, a rate or a trace, and their lengths.
        deployment: parallel layout, formats and engine settings.
        serving: scheduler, router, pools, warm-up.
        ended: is given the sequences that have just ended.
        progress: is told now and then how many requests of how many have ended.

    Raises:
        InputError: one line that names what is wrong, and what would do.
    """
    serving = settled(serving, demand)
    case = served(model, hardware, deployment, serving)
    return run(case, demand, serving, ended=ended, progress=progress)


def settled(serving: Serving | None, demand: Demand) -> Serving:
    """``serving`` with prefixes cached only where requests may share one: else the same, sooner."""
    serving = serving or Serving()
    if serving.prefix_caching is None and not demand.shares_prefixes:
        return replace(serving, prefix_caching=False)
    return serving


def run(
    case: Served,
    demand: Demand,
    serving: Serving,
    *,
    ended: Ended | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Simulate a deployment that `served` has made of ``serving``; otherwise as `simulate`."""
    if serving.disaggregate is not None and case.replicas > 1:
        raise InputError("--dp: not with --disaggregate, which gives both pools' sizes")
    pools = None
    if serving.disaggregate is not None:
        pools = Disaggregation(*serving.disaggregate, transfer_of(case))
    return simulate_engines(
        demand,
        case.engine,
        replicas=case.replicas,
        router=serving.router,
        disaggregation=pools,
        warmup=serving.warmup,
        ended=ended,
        progress=progress,
    )
