"""What test_parallelism.py and test_parallel_limits.py share."""

from __future__ import annotations

from typing import Any

from perfmodel.inference.estimate import estimate
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.workload import Workload
from tests.operators.support import model

H100 = load_hardware("h100-sxm")


def run(name: str, workload: Workload, roof: bool = True, **deployment: Any) -> Any:
    """An estimate at the roof (quick, and without host time), unless said otherwise."""
    return estimate(model(name), H100, workload, Deployment(**deployment), roofline_only=roof)
