"""Cases as a table of kernel times, so that an engine's numbers can be fitted in milliseconds.

The walk over a model and the calibrated kernels don't depend on an engine's host time and
factors. They are priced once; then a set of numbers gives all cases' times by array arithmetic,
with the same functions that `perfmodel estimate` uses. Decode is the step at the mean context.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.inference.engine_kernels import EngineDevice, Parts, adjusted
from perfmodel.inference.host import HostTime
from perfmodel.inference.plan import Plan
from perfmodel.inference.step_sets import StepSet
from perfmodel.inference.steps import mean_decode_step, prefill_steps
from perfmodel.operators.quantity import Array
from perfmodel.specs.engine import Engine
from perfmodel.specs.engine_timing import EIGHT_BIT_LIMIT, FOUR_BIT_LIMIT
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload

Indices: TypeAlias = NDArray[np.intp]

QUANTITIES = [f.name for f in fields(Parts) if f.name not in {"family", "bits"}]


@dataclass(slots=True)
class Bucket:
    """Operators that an engine scales alike, over all steps."""

    parts: Parts
    roof_s: Array
    step: Indices
    count: Array


@dataclass(slots=True)
class StepTable:
    """Steps of all cases, and their operators in buckets."""

    cases: int
    case: Indices
    """The case of each step."""
    times: Array
    """How often the step takes place in the measured time."""
    layers: Array
    sequences: Array
    host_speed: Array
    """Factor on the engine's host times; 0 where another step carries them."""
    buckets: list[Bucket]

    def kernel_seconds(self, engine: Engine) -> Array:
        """Each step's kernels under an engine's factors."""
        total = np.zeros(len(self.case))
        for b in self.buckets:
            work = np.maximum(adjusted(b.parts, engine.kernels)[0], b.roof_s)
            seconds = b.count * (work + b.parts.launch_s)
            total += np.bincount(b.step, seconds, minlength=len(total))
        return total

    def roof_seconds(self) -> Array:
        """Each case at the datasheet's roof, without launches and host."""
        total = np.zeros(len(self.case))
        for b in self.buckets:
            total += np.bincount(b.step, b.count * b.roof_s, minlength=len(total))
        return self._by_case(total)

    def seconds(self, engine: Engine) -> Array:
        """Each case's time under an engine."""
        kernels = self.kernel_seconds(engine)
        host = HostTime(engine.host, engine.name, self.layers, self.sequences)  # type: ignore[arg-type]
        added = np.maximum(
            self.host_speed * host.serial_s, self.host_speed * host.floor_s - kernels
        )
        return self._by_case(kernels + np.where(self.host_speed > 0, added, 0.0))

    def _by_case(self, step_s: Array) -> Array:
        total: Array = np.zeros(self.cases)
        total += np.bincount(self.case, self.times * step_s, minlength=self.cases)
        return total

    def take(self, chosen: NDArray[Any]) -> StepTable:
        """The table of some cases, renumbered in the order of ``chosen`` (indices)."""
        new_case = np.full(self.cases, -1)
        new_case[chosen] = np.arange(len(chosen))
        keep = np.flatnonzero(new_case[self.case] >= 0)
        new_step = np.full(len(self.case), -1)
        new_step[keep] = np.arange(len(keep))
        buckets = []
        for b in self.buckets:
            rows = np.flatnonzero(new_step[b.step] >= 0)
            if not len(rows):
                continue
            part = replace(b.parts, **{n: getattr(b.parts, n)[rows] for n in QUANTITIES})
            buckets.append(Bucket(part, b.roof_s[rows], new_step[b.step[rows]], b.count[rows]))
        return StepTable(
            len(chosen), new_case[self.case[keep]], self.times[keep], self.layers[keep],
            self.sequences[keep], self.host_speed[keep], buckets,
        )  # fmt: skip


@dataclass(slots=True)
class TableBuilder:
    """Collects groups of cases that share model, device and deployment."""

    cases: int
    _steps: dict[str, list[NDArray[Any]]] = field(default_factory=lambda: defaultdict(list))
    _buckets: dict[tuple[str, float], dict[str, list[NDArray[Any]]]] = field(default_factory=dict)
    _count: int = 0

    def add(
        self,
        index: Sequence[int],
        model: Model,
        workload: Workload,
        plan: Plan,
        device: EngineDevice,
        quantity: str,
        host_speed: float = 1.0,
    ) -> None:
        """Add cases ``index``: the workload holds arrays of their length.

        ``quantity``: ``ttft``, ``tpot`` or ``total``.
        """
        cases = np.asarray(index)
        fixed = {"layers": float(len(model.layers)), "host_speed": host_speed}
        decodes = np.asarray(workload.output, dtype=float) - 1
        ones = np.ones(len(cases))
        if quantity != "tpot":
            for steps in prefill_steps(model, workload, plan):
                self._add(cases, ones, steps, fixed, device)
        if quantity != "ttft":
            times = ones if quantity == "tpot" else decodes * ones
            steps = mean_decode_step(model, workload, plan)
            self._add(cases, times, steps, fixed, device)

    def _add(
        self,
        cases: Indices,
        times: Array,
        steps: StepSet,
        fixed: dict[str, float],
        device: EngineDevice,
    ) -> None:
        mask = np.ones(1) if steps.mask is None else steps.mask
        shape = np.broadcast_shapes((len(cases), 1), np.shape(mask))
        taken = np.broadcast_to(mask, shape).ravel() > 0

        def spread(value: object) -> Array:
            array = np.asarray(value, dtype=np.float64)
            if array.ndim == 1 and steps.mask is None:
                array = array[:, None]
            return np.broadcast_to(array, shape).ravel()[taken]

        ids = self._count + np.arange(int(taken.sum()))
        self._count += len(ids)
        new = {
            "case": np.broadcast_to(cases[:, None], shape).ravel()[taken],
            "times": np.broadcast_to(times[:, None], shape).ravel()[taken],
            "layers": np.full(len(ids), fixed["layers"]),
            "sequences": spread(steps.sequences),
            "host_speed": np.full(len(ids), fixed["host_speed"] * steps.hosted),
        }
        for name, values in new.items():
            self._steps[name].append(values)
        for key, priced in _priced(steps, device):
            bucket = self._buckets.setdefault(key, defaultdict(list))
            bucket["step"].append(ids)
            for name, value in priced.items():
                bucket[name].append(spread(value))

    def table(self) -> StepTable:
        """The finished table."""
        steps = {name: np.concatenate(parts) for name, parts in self._steps.items()}
        buckets = []
        for (family, bits), lists in self._buckets.items():
            joined = {name: np.concatenate(parts) for name, parts in lists.items()}
            parts = Parts(family=family, bits=bits, **{n: joined[n] for n in QUANTITIES})
            buckets.append(Bucket(parts, joined["roof_s"], joined["step"], joined["count"]))
        return StepTable(cases=self.cases, buckets=buckets, **steps)


def _priced(
    steps: StepSet, device: EngineDevice
) -> Iterator[tuple[tuple[str, float], dict[str, object]]]:
    for operator in steps.operators:
        base = device.base(operator)
        parts = device.parts(operator, base)
        values = {name: getattr(parts, name) for name in QUANTITIES}
        values |= {"roof_s": device.roof(operator, base), "count": float(operator.count)}
        yield (parts.family, _width(parts)), values


def _width(parts: Parts) -> float:
    """One number per group of weight widths that an engine scales alike."""
    if parts.family != "gemm":
        return 0.0
    return 4.0 if parts.bits < FOUR_BIT_LIMIT else 8.0 if parts.bits < EIGHT_BIT_LIMIT else 16.0
