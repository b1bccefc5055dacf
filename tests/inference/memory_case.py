"""What test_memory.py and test_memory_limits.py share."""

from __future__ import annotations

from functools import cache
from typing import Any

from perfmodel.inference.memory import Memory, memory_use
from perfmodel.inference.plan import make_plan
from perfmodel.operators.sharding import Parallel, possible_tp
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.workload import Workload
from tests.operators.support import model

LLAMA_TOKEN = 131_072  # Llama-3.1-8B: 2·32 layers·8 KV heads·128·2 B


def memory(
    name: Any, deployment: Deployment | None = None, on: Any = "h100-sxm", **workload: Any
) -> Memory:
    m = model(name) if isinstance(name, str) else name
    hardware = load_hardware(on) if isinstance(on, str) else on
    asked = Workload(**workload)
    return memory_use(m, hardware, asked, make_plan(m, hardware, asked, deployment or Deployment()))


@cache
def layouts(name: str) -> list[int]:
    return [tp for tp in possible_tp(model(name), Parallel()) if tp <= 16]
