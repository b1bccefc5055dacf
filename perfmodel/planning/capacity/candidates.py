"""Which deployments are looked at: layouts, formats, limits and pools that are sensible."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

from perfmodel.errors import InputError
from perfmodel.planning.situation import changed
from perfmodel.serving.serve import Served, Serving, served
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model

NODE_GPUS = 8
"""GPUs of a server where the profile's link joins fewer."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One replica that might do."""

    hardware: Hardware
    deployment: Deployment
    serving: Serving
    case: Served = field(repr=False)

    @property
    def gpus(self) -> int:
        """Of one replica, all pools and data-parallel ranks counted."""
        return self.case.plan.parallel.gpus * self.instances

    @property
    def instances(self) -> int:
        """Engines that one replica is made of."""
        pools = self.serving.disaggregate
        return sum(pools) if pools else self.case.replicas


def candidates(
    model: Model, hardware: Hardware, given: Deployment, fixed: frozenset[str]
) -> list[Candidate]:
    """Deployments of ``model`` on ``hardware`` that fit."""
    found = []
    for layout, formats in product(layouts(hardware, fixed), number_formats(hardware, fixed)):
        deployment = changed(given, layout | formats)
        try:
            case = served(model, hardware, deployment, Serving(prefix_caching=False))
            case.engine.blocks()
        except InputError:
            continue
        found.append(Candidate(hardware, deployment, Serving(prefix_caching=False), case))
    return found


def layouts(hardware: Hardware, fixed: frozenset[str]) -> list[dict[str, Any]]:
    """Tensor-parallel sizes."""
    if "tp" in fixed:
        return [{}]
    most = min(hardware.link_domain, NODE_GPUS) if hardware.link_domain > 1 else NODE_GPUS
    return [{"tp": 2**n} for n in range(most.bit_length())]


def number_formats(hardware: Hardware, fixed: frozenset[str]) -> list[dict[str, Any]]:
    """Formats of weights and cache."""
    eight = hardware.peak("fp8") is not None
    weights = ["fp8"] if eight and "weights" not in fixed else []
    caches = ["fp8"] if eight and "kv_cache" not in fixed else []
    found: list[dict[str, Any]] = [{}]
    found += [{"weights": w} for w in weights]
    found += [{"weights": w, "kv_cache": c} for w, c in product(weights, caches)]
    return found
