"""From cases to a step table: the models, devices and plans that they name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from calibrate.published.cases import Case, Setting
from calibrate.step_table import StepTable, TableBuilder
from perfmodel.inference.engine_kernels import EngineDevice
from perfmodel.inference.estimate import device_model
from perfmodel.inference.plan import Plan, make_plan
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import load_engine
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import CheckpointFormat, Layer, Model, MoeFfn
from perfmodel.specs.workload import Workload


@cache
def model_of(setting: Setting) -> Model:
    """The model as the row ran it."""
    model = load_model(setting.model)
    if setting.quantised_head:
        stored = CheckpointFormat(weights=setting.weights, head=True)
        model = model.model_copy(update={"checkpoint": stored})
    if setting.dummy_experts:
        layers = tuple(_two_experts(layer) for layer in model.layers)
        model = model.model_copy(update={"layers": layers})
    return model


def _two_experts(layer: Layer) -> Layer:
    if not isinstance(layer.ffn, MoeFfn):
        return layer
    chosen = layer.ffn.model_copy(update={"experts": layer.ffn.top_k})
    return layer.model_copy(update={"ffn": chosen})


def hardware_of(setting: Setting) -> Hardware:
    """The device, without its direct link where the source's cards have none."""
    hardware = load_hardware(setting.hardware)
    return hardware.model_copy(update={"link": None}) if setting.pcie_only else hardware


def workload_of(cases: Sequence[Case]) -> Workload:
    """One workload with an array per count."""
    return Workload(
        batch=np.asarray([c.batch for c in cases], dtype=float),
        prompt=np.asarray([c.prompt for c in cases], dtype=float),
        output=np.asarray([c.output for c in cases], dtype=float),
    )


def deployment_of(setting: Setting) -> Deployment:
    """The deployment as flags."""
    return Deployment(
        tp=setting.tp,
        pp=setting.pp,
        weights=setting.weights,
        activations=setting.activations,
        kv_cache=setting.kv_cache,
        engine=setting.preset,
    )


def plan_of(setting: Setting, workload: Workload) -> tuple[Plan, EngineDevice]:
    """The plan, and the calibrated device under the preset's kernels."""
    hardware = hardware_of(setting)
    plan = make_plan(model_of(setting), hardware, workload, deployment_of(setting))
    device = device_model(hardware, plan)
    return plan, EngineDevice(device, load_engine(setting.preset).kernels)


def groups(cases: Sequence[Case]) -> dict[Setting, list[int]]:
    """Indices of cases by setting."""
    found: dict[Setting, list[int]] = defaultdict(list)
    for index, item in enumerate(cases):
        found[item.setting].append(index)
    return found


def build_table(cases: Sequence[Case], preset: str | None = None) -> StepTable:
    """Price the kernels of all cases; ``preset`` replaces the facts of their own presets."""
    builder = TableBuilder(len(cases))
    for setting, index in groups(cases).items():
        used = setting if preset is None else replace(setting, preset=preset)
        workload = workload_of([cases[i] for i in index])
        plan, device = plan_of(used, workload)
        builder.add(index, plan.model, workload, plan, device, used.quantity, used.host_speed)
    return builder.table()
