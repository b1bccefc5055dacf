"""The whole answer for one deployment: latency, throughput, memory, what limits them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.dequantise import dequantise_notes
from perfmodel.inference.engine_kernels import EngineDevice, clocks
from perfmodel.inference.execution import Started, how_started, kernels_of
from perfmodel.inference.memory import Memory, memory_use
from perfmodel.inference.notes import estimate_notes
from perfmodel.inference.phase import Cost, Device, Launches, PhaseCost, join
from perfmodel.inference.pipeline import bubble_share, decode_phase, decode_total, prefill_phase
from perfmodel.inference.plan import Plan, make_plan
from perfmodel.inference.price_book import PriceBook
from perfmodel.inference.speculation.answer import Speculated
from perfmodel.inference.speculation.rounds import Rounds, all_rounds, draft_prefill, mean_round
from perfmodel.kernels.calibration import load_calibration
from perfmodel.kernels.choice import GENERIC, choose_calibration
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.quantity import Array, Quantity, as_quantity
from perfmodel.specs.base import Case
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload


@dataclass(frozen=True, slots=True)
class Phase:
    """Prefill of the batch, or one decode step of it, on one GPU of each pipeline stage."""

    cost: PhaseCost
    tokens: Quantity
    """Tokens that the phase processes over the whole deployment."""
    started: Started | list[Started]
    """How its kernels are started; a list over the settings of arrays."""
    ridge_point: float
    """FLOP/byte where the main arithmetic's peak meets the memory bandwidth."""

    @property
    def time_s(self) -> Quantity:
        """Seconds."""
        return self.cost.total.time_s

    @property
    def graphs_save_s(self) -> Quantity:
        """What captured graphs save, or would save, against launching kernel by kernel.

        Nothing where the host launches ahead of the device: there the kernels hide it.
        """
        paid = as_quantity((np.asarray(self.started) != "ahead").astype(np.float64))
        return self.cost.total.graph_saves_s * paid

    @property
    def tokens_per_s(self) -> Quantity:
        """Throughput of the deployment in this phase."""
        return self.tokens / self.time_s


@dataclass(frozen=True, slots=True)
class Estimate:
    """What `estimate` answers. Quantities are arrays where the workload's are."""

    model: Model
    hardware: Hardware
    workload: Workload
    plan: Plan
    calibration: str
    """What turned work into time: the datasheet's roof, or a calibration's origin and stack."""
    prefill: Phase
    decode: Phase
    """The decode step at the mean context; with speculation a round, the draft's part first."""
    decode_total: Cost
    """All decode steps or rounds, which give the output − 1 tokens after the first."""
    memory: Memory
    warnings: tuple[str, ...]
    roofline_only: bool = False
    speculation: Speculated | None = None
    """What speculative decoding gains here; None without it."""

    @property
    def ttft_s(self) -> Quantity:
        """Time to first token: the batch's prefill, no queueing."""
        return self.prefill.cost.total.time_s

    @property
    def tpot_s(self) -> Quantity:
        """Time per output token after the first; NaN where only one is generated."""
        return self._per_step(self.decode_total.time_s)

    @property
    def total_s(self) -> Quantity:
        """Prefill and all decode steps."""
        return self._shaped(self.ttft_s + self.decode_total.time_s)

    @property
    def output_tokens_per_s(self) -> Quantity:
        """Output tokens of the whole batch over the total time."""
        tokens: Quantity = self.workload.batch * self.workload.output
        return tokens / self.total_s

    def _per_step(self, seconds: Quantity) -> Quantity:
        steps = np.asarray(self.workload.output, dtype=np.float64) - 1
        with np.errstate(invalid="ignore", divide="ignore"):
            per_step = np.where(steps > 0, seconds / np.where(steps > 0, steps, 1), np.nan)
        return self._shaped(per_step)

    def _shaped(self, value: Quantity | Array) -> Quantity:
        """``value`` with the workload's axes, those that it doesn't depend on too."""
        w = self.workload
        axes = (np.shape(axis) for axis in (w.batch, w.prompt, w.output, value))
        return as_quantity(np.broadcast_to(value, np.broadcast_shapes(*axes)))

    def interval(self, name: str) -> tuple[Quantity, Quantity]:
        """Low and high end of ``ttft_s``, ``tpot_s``, ``total_s`` or ``output_tokens_per_s``.

        Raises:
            InputError: no interval has that name.
        """
        first, rest = self.prefill.cost.total, self.decode_total
        ends = {
            "ttft_s": (first.low_s, first.high_s),
            "tpot_s": (self._per_step(rest.low_s), self._per_step(rest.high_s)),
            "total_s": (
                self._shaped(first.low_s + rest.low_s),
                self._shaped(first.high_s + rest.high_s),
            ),
        }
        if name == "output_tokens_per_s":
            tokens = self.workload.batch * self.workload.output
            low, high = ends["total_s"]
            return tokens / high, tokens / low
        if name not in ends:
            known = ", ".join([*ends, "output_tokens_per_s"])
            raise InputError(f"no interval is called {name!r:.40}; known: {known}")
        return ends[name]


def _ridge_point(plan: Plan, device: DeviceModel) -> float:
    return device.peak(plan.formats.main.arithmetic) / device.hardware.memory_bandwidth


def _record(given: Any, kind: type[Case]) -> Any:
    """``given``, or the defaults where it is None.

    Raises:
        InputError: something else than the record was given.
    """
    if given is None or isinstance(given, kind):
        return kind() if given is None else given
    name = kind.__name__
    raise InputError(
        f"{name.lower()}: a perfmodel.{name} is needed, such as perfmodel.{name}(), "
        f"not {type(given).__name__}"
    )


def device_model(hardware: Hardware, plan: Plan, *, roofline_only: bool = False) -> DeviceModel:
    """The device with the best calibration it has: its own, a relative's, or the generic one."""
    if roofline_only:
        return DeviceModel(hardware, None, gpus_per_node=plan.deployment.gpus_per_node)
    asked = plan.deployment.stack
    stack = plan.engine.stack if asked is None else asked
    choice = None if stack == GENERIC else choose_calibration(hardware, stack)
    return DeviceModel(
        hardware,
        load_calibration(),
        plan.deployment.execution or "graph",
        choice,
        attention=plan.flash,
        launch_us=plan.engine.graph.launch_us,
        gpus_per_node=plan.deployment.gpus_per_node,
    )


def running(
    hardware: Hardware, plan: Plan, *, roofline_only: bool = False
) -> tuple[DeviceModel, Launches, Host | None]:
    """What prices a plan: the device, the same under the engine's kernels, and the host."""
    device = device_model(hardware, plan, roofline_only=roofline_only)
    if roofline_only:
        return device, device, None
    return device, EngineDevice(device, kernels_of(plan)), plan.engine.host


def running_device(result: Estimate) -> tuple[Device, Host | None]:
    """What priced an estimate: the device under its engine, and the engine's host."""
    _, runs, host = running(result.hardware, result.plan, roofline_only=result.roofline_only)
    return runs, host


def prefill_cost(result: Estimate, workload: Workload) -> Cost:
    """The target's and the draft's prefill of another workload by the plan of ``result``."""
    device, host = running_device(result)
    model, plan = result.model, result.plan
    total = prefill_phase(model, workload, plan, device, host).total
    if plan.draft is None:
        return total
    return total + draft_prefill(Rounds(model, plan, plan.draft, device, host), workload).total


def estimate(
    model: Model | str | os.PathLike[str],
    hardware: Hardware | str | os.PathLike[str],
    workload: Workload | None = None,
    deployment: Deployment | None = None,
    *,
    roofline_only: bool = False,
    prices: PriceBook | None = None,
) -> Estimate:
    """Predict latency, throughput and memory of serving one batch.

    Args:
        model: a `Model`, or what `load_model` takes.
        hardware: a `Hardware`, or what `load_hardware` takes.
        workload: batch, prompt and output; numbers or arrays that broadcast.
        deployment: parallel layout, formats and engine settings.
        roofline_only: the datasheet's roof, without calibration, launch cost, engine or host.
        prices: prices of operators that earlier estimates asked for, and this one adds to.

    Raises:
        InputError: one line that names the wrong field and what would do.
    """
    model = model if isinstance(model, Model) else load_model(model)
    hardware = hardware if isinstance(hardware, Hardware) else load_hardware(hardware)
    workload = _record(workload, Workload)
    plan = make_plan(model, hardware, workload, _record(deployment, Deployment))
    model = plan.model
    device, runs, host = running(hardware, plan, roofline_only=roofline_only)
    if prices is not None:
        runs = prices.of(runs)
    memory = memory_use(model, hardware, workload, plan)
    costs = () if roofline_only else tuple(dequantise_notes(plan, device, clocks(hardware)))
    first = prefill_phase(model, workload, plan, runs, host)
    step = decode_phase(model, workload, plan, runs, host)
    bubbles = {"prefill": bubble_share(first), "decode": bubble_share(step)}
    speculated, tokens = None, workload.batch
    if plan.draft is None:
        total = decode_total(model, workload, plan, runs, host)
    else:
        rounds = Rounds(model, plan, plan.draft, runs, host)
        plain, step = step.total, mean_round(rounds, workload)
        speculated = Speculated(rounds, workload, plain, step, memory.max_sequences)
        first = join(first, draft_prefill(rounds, workload))
        total = all_rounds(rounds, workload)
        tokens = workload.batch * speculated.expected_tokens
    new_tokens = workload.batch * workload.new_tokens
    ridge = _ridge_point(plan, device)
    return Estimate(
        model=model,
        hardware=hardware,
        workload=workload,
        plan=plan,
        calibration=device.label,
        prefill=Phase(first, new_tokens, how_started(plan, workload, "prefill"), ridge),
        decode=Phase(step, tokens, how_started(plan, workload, "decode"), ridge),
        decode_total=total,
        memory=memory,
        warnings=estimate_notes(model, workload, plan, memory, bubbles) + costs,
        roofline_only=roofline_only,
        speculation=speculated,
    )
