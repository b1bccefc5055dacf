"""The case of a simulation as plain data: beside `simulation_record`, what ``--json`` prints."""

from __future__ import annotations

from math import isinf
from typing import Any

from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop
from perfmodel.serving.mix import Part
from perfmodel.serving.serve import Served, Serving


def case_record(case: Served, demand: Demand, serving: Serving) -> dict[str, Any]:
    """Model, hardware, demand, serving and deployment, defaults filled in."""
    deployment = case.plan.deployment.model_dump()
    if case.replicas > 1:
        deployment["dp"] = case.replicas
    return {
        "model": case.model.name,
        "hardware": case.hardware.name,
        "demand": demand_record(demand),
        "serving": {
            "scheduler": case.engine.policy.name,
            "prefix_caching": case.engine.prefixes is not None,
            "router": serving.router,
            "disaggregate": list(serving.disaggregate) if serving.disaggregate else None,
            "warmup": serving.warmup,
        },
        "deployment": deployment,
        "calibration": case.calibration,
    }


def demand_record(demand: Demand) -> dict[str, Any]:
    """The requests, as the command line's flags describe them."""
    arrivals = demand.arrivals
    record: dict[str, Any] = {
        "concurrency": None, "rate": None, "burstiness": None, "trace": None,
        "requests": demand.requests, "seed": demand.seed,
        **_part_record(Part(1.0, demand.prompt, demand.output, demand.prefix)),
    }  # fmt: skip
    if demand.mix:
        record |= dict.fromkeys(_part_record(demand.mix[0]))
        record["mix"] = [{"weight": p.weight, **_part_record(p)} for p in demand.mix]
    if isinstance(arrivals, ClosedLoop):
        return record | {"concurrency": arrivals.concurrency}
    if isinstance(arrivals, OpenLoop):
        # JSON has no infinity: the word that `vllm bench serve` writes.
        rate = "inf" if isinf(arrivals.rate) else arrivals.rate
        return record | {"rate": rate, "burstiness": arrivals.burstiness}
    # Its lengths and prefixes are its own, and nothing is drawn.
    own = {"prompt": None, "output": None, "seed": None}
    return record | own | {"trace": str(arrivals.path)}


def _part_record(part: Part) -> dict[str, Any]:
    prefix = part.prefix
    return {
        "prompt": part.prompt.spec,
        "output": part.output.spec,
        "prefix_tokens": prefix and prefix.tokens,
        "prefix_count": prefix and prefix.count,
    }
