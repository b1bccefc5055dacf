"""The deployments of a sweep: each made once, asked for its settings, and forgotten."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.estimate import device_model
from perfmodel.inference.plan import Plan, make_plan
from perfmodel.planning.sweep.bounds import Bounds, refusal
from perfmodel.planning.sweep.columns import UNDERSTOOD
from perfmodel.planning.sweep.fast import FastCase
from perfmodel.planning.sweep.grid import Grid, Loads
from perfmodel.planning.sweep.table import Segment
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import load_engine
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import Model
from perfmodel.specs.speculation import Speculation
from perfmodel.specs.sweep import OF_LOAD, SweepSpec
from perfmodel.specs.workload import Workload

KEPT = 2
"""Deployments whose curves are kept: parts begin in one and end in the next."""
MS = 1e3
BYTES = ("weights_bytes", "kv_bytes", "required_bytes")
"""Columns that are rounded: a table has no parts of a byte."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Settings that an estimate refuses for one reason."""

    reason: str
    """The line of one of them; others differ in their numbers."""
    settings: int


Refusals = dict[str, Refused]
"""By the reason without its numbers."""


def added(refusals: Refusals, reason: str, settings: int) -> None:
    """Count settings under their reason."""
    key = re.sub(r"\d[\d,.]*", "#", reason)
    known = refusals.get(key)
    before = 0 if known is None else known.settings
    refusals[key] = Refused(reason if known is None else known.reason, before + settings)


class _Case:
    """One deployment of a sweep."""

    def __init__(self, grid: Grid, axes: Mapping[str, Any]) -> None:
        self._grid, self._axes = grid, axes
        self._model = model_named(axes["model"])
        self._hardware = hardware_named(axes["hardware"])
        given = {k: v for k, v in axes.items() if k in Deployment.model_fields}
        self.deployment = Deployment(**given)
        self._chunk = axes.get("prefill_chunk")
        self._cached = axes.get("cached_prefix") or 0
        self._share = axes.get("prefix_share")
        engine = load_engine(self.deployment.engine)
        self.bounds = Bounds.of(self._model, engine, self.deployment, self._cached, self._chunk)
        self._fast: FastCase | None = None
        self._constants: dict[str, Any] = {}

    def _workload(self, loads: Loads, place: int) -> Workload:
        """One setting.

        Raises:
            InputError: it is none.
        """
        return Workload(
            batch=int(loads.batch[place]), prompt=int(loads.prompt[place]),
            output=int(loads.output[place]), cached_prefix=self._cached,
            prefix_share=self._share, prefill_chunk=self._chunk,
        )  # fmt: skip

    def reason(self, loads: Loads, place: int) -> str:
        """Why a setting is refused; empty where it isn't."""
        if loads.prompt[place] < 1:
            output = int(loads.output[place])
            return (
                f"--context: {int(loads.prompt[place]) + output} tokens, of which --output takes "
                f"{output}, leave no prompt; use a longer --context"
            )
        try:
            load = self._workload(loads, place)
        except InputError as error:
            return str(error)
        return refusal(self._model, self._hardware, self.deployment, load)

    def ready(self, loads: Loads) -> FastCase:
        """What answers its settings.

        Args:
            loads: settings within the bounds.

        Raises:
            InputError: the deployment itself is refused.
        """
        if self._fast is None:
            load = self._workload(loads, 0)
            plan = make_plan(self._model, self._hardware, load, self.deployment)
            extent = self._grid.extent(self.bounds)
            self._fast = FastCase(self._hardware, plan, load, extent)
            self._constants = self._facts(plan)
        return self._fast

    def _facts(self, plan: Plan) -> dict[str, Any]:
        """Columns that all rows of the deployment share."""
        facts = {name: _cell(getattr(plan.deployment, name)) for name in self._axes
                 if name in Deployment.model_fields}  # fmt: skip
        facts |= {name: getattr(plan.deployment, name) for name in UNDERSTOOD}
        facts |= {name: self._axes[name] for name in OF_LOAD if name in self._axes}
        return facts | {
            "model": self._model.name,
            "hardware": self._hardware.name,
            "gpus": plan.parallel.gpus,
            "capacity_bytes": self._hardware.capacity_bytes,
            "calibration": device_model(self._hardware, plan).label,
        }

    def segment(self, loads: Loads) -> Segment:
        """The rows of settings within the bounds."""
        fast = self.ready(loads)
        answer = fast.answer(loads.batch, loads.prompt, loads.output)
        arrays = {f.name: getattr(answer, f.name) for f in fields(answer)}
        with np.errstate(divide="ignore"):
            per_user = 1 / answer.tpot_s
        for name in BYTES:
            arrays[name] = np.rint(arrays[name])
        arrays |= {
            "setting": loads.setting,
            "batch": loads.batch,
            "prompt": loads.prompt,
            "context": loads.prompt + loads.output,
            "output": loads.output,
            "ttft_ms": MS * arrays.pop("ttft_s"),
            "tpot_ms": MS * arrays.pop("tpot_s"),
            "tokens_per_s_per_user": per_user,
            "output_tokens_per_s_per_gpu": answer.output_tokens_per_s / self._constants["gpus"],
        }
        return Segment(self._constants, arrays, len(loads.setting))


def _cell(value: Any) -> Any:
    """A field's value in a table: a number, a truth or a word."""
    if not isinstance(value, Speculation):
        return value
    said = value.model_dump(exclude_defaults=True)
    return " ".join(f"{name}={item}".replace(" ", "") for name, item in said.items())


@lru_cache(maxsize=64)
def model_named(name: str) -> Model:
    """A model, read once."""
    return load_model(name)


@lru_cache(maxsize=256)
def hardware_named(name: str) -> Hardware:
    """A piece of hardware, read once."""
    return load_hardware(name)


class Cases:
    """The deployments of a grid.

    Raises:
        InputError: a model, a piece of hardware or an engine that can't be read.
    """

    def __init__(self, spec: SweepSpec) -> None:
        self.grid = Grid(spec)
        for name, read in (("model", model_named), ("hardware", hardware_named),
                           ("engine", load_engine)):  # fmt: skip
            for value in spec.values(name):
                read(value)
        self._kept: OrderedDict[int, _Case | str] = OrderedDict()

    def _case(self, number: int) -> _Case | str:
        """A deployment, or why there is none."""
        case = self._kept.pop(number, None)
        if case is None:
            try:
                case = _Case(self.grid, self.grid.deployment(number))
            except InputError as error:
                case = str(error)
        self._kept[number] = case
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return case

    def segment(self, number: int, loads: Loads, refusals: Refusals) -> Segment | None:
        """The rows of a deployment's settings; those that are refused are counted by reason."""
        case = self._case(number)
        if isinstance(case, str):
            added(refusals, case, len(loads.setting))
            return None
        kept = case.bounds.kept(loads.batch, loads.prompt, loads.output)
        out = loads.at(~kept)
        groups = case.bounds.groups(out.batch, out.prompt, out.output)
        for group, first, count in zip(
            *np.unique(groups, return_index=True, return_counts=True), strict=True
        ):
            del group
            added(refusals, case.reason(out, int(first)), int(count))
        loads = loads.at(kept)
        if not len(loads.setting):
            return None
        try:
            return case.segment(loads)
        except InputError as error:
            added(refusals, str(error), len(loads.setting))
            self._kept[number] = str(error)
            return None
