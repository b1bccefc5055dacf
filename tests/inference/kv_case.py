"""What the tests of the KV store share: a case resolved, and what prices it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from perfmodel.inference.engine_kernels import EngineDevice
from perfmodel.inference.estimate import device_model
from perfmodel.inference.memory import Memory, memory_use
from perfmodel.inference.phase import Cost, Device, PhaseCost
from perfmodel.inference.plan import Plan, make_plan
from perfmodel.inference.steps import decode_all, decode_step, prefill
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload
from tests.operators.support import model

WORKLOAD = set(Workload.model_fields)


@dataclass(frozen=True)
class Case:
    model: Model
    hardware: Hardware
    workload: Workload
    plan: Plan
    device: Device
    host: Host | None

    @property
    def context(self) -> tuple[Model, Plan, Device, Host | None]:
        return self.model, self.plan, self.device, self.host

    def prefill(self) -> PhaseCost:
        return prefill(self.model, self.workload, self.plan, self.device, self.host)

    def decode(self) -> PhaseCost:
        return decode_step(self.model, self.workload, self.plan, self.device, self.host)

    def decode_all(self) -> Cost:
        return decode_all(self.model, self.workload, self.plan, self.device, self.host)

    def memory(self) -> Memory:
        return memory_use(self.model, self.hardware, self.workload, self.plan)


def case(name: Any, *, on: Any = "h100-sxm", roof: bool = True, **fields: Any) -> Case:
    """A case of a workload's and a deployment's fields; ``roof``: the datasheet's, without host."""
    m = model(name) if isinstance(name, str) else name
    hardware = load_hardware(on) if isinstance(on, str) else on
    workload = Workload(**{k: v for k, v in fields.items() if k in WORKLOAD})
    deployment = Deployment(**{k: v for k, v in fields.items() if k not in WORKLOAD})
    plan = make_plan(m, hardware, workload, deployment)
    device = device_model(hardware, plan, roofline_only=roof)
    if roof:
        return Case(m, hardware, workload, plan, device, None)
    runs = EngineDevice(device, plan.engine.kernels)
    return Case(m, hardware, workload, plan, runs, plan.engine.host)


TOKEN = 131_072  # Llama-3.1-8B: 2·32 layers·8 KV heads·128·2 B
CACHED = st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "qwen3-next-80b-a3b"])


def same(a: Case, b: Case) -> None:
    """Times and memory of two cases are equal to the last bit."""
    assert a.prefill() == b.prefill()
    assert a.decode_all() == b.decode_all()
    assert a.memory() == b.memory()


def times(found: Case) -> tuple[Any, Any]:
    return found.prefill().total.time_s, found.decode_all().time_s


def profile(gib: float, **more: Any) -> Hardware:
    return Hardware.parse(
        {
            "schema": 1,
            "name": "made-up",
            "peaks_tflops": {"bf16": 100.0, "fp8": 200.0},
            "memory": {"capacity_gb": 1.0, "usable_gib": gib, "bandwidth_gb_s": 1000.0},
            **more,
        },
        "made-up",
    )


SMALL = profile(150)
