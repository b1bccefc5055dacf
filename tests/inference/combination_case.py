"""What test_combinations.py and test_any_combination.py share."""

from __future__ import annotations

from typing import Any

from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.workload import Workload

LLAMA = "llama-3.1-8b"


def run(name: str = LLAMA, on: str = "h100-sxm", load: Any = None, **fields: Any) -> Estimate:
    return estimate(name, on, Workload(**(load or {})), Deployment(**fields))
