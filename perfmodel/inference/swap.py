"""Bringing back a sequence's cache from host memory or an SSD, against computing it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfmodel.inference.phase import Device
from perfmodel.inference.plan import Plan
from perfmodel.inference.stages import stage_weights
from perfmodel.inference.steps import prefill
from perfmodel.operators.cache import STATE_BYTES, cache_bytes, state_bytes
from perfmodel.operators.quantity import Array, Quantity, maximum
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload

POINTS = 49
"""Lengths that are compared at a time; between two of them one change of the better way is seen."""


@dataclass(frozen=True, slots=True)
class Swap:
    """One sequence, brought back or computed again."""

    bytes: Quantity
    """Of the fullest GPU; all GPUs copy at once."""
    swap_s: Quantity
    recompute_s: Quantity


def swap(
    model: Model, plan: Plan, device: Device, host: Host | None, rate: float, length: Quantity
) -> Swap:
    """Times of bringing back ``length`` tokens over ``rate`` bytes/s per GPU, and of a prefill.

    Nothing runs beside either; the copy is whole before the sequence goes on.
    """
    held: Quantity = 0.0
    for layers, _ in stage_weights(model, plan):
        stage = cache_bytes(layers, length, plan.formats.cache, cap=_cap(plan))
        held = maximum(held, stage + state_bytes(layers, STATE_BYTES[model.state_dtype]))
    again = Workload(prompt=length, output=1)
    time = prefill(model, again, plan, device, host).total.time_s
    return Swap(held, held / rate, time)


def _cap(plan: Plan) -> int | None:
    kept = plan.kept_tokens("decode")
    return None if kept is None else kept + 1


def swap_pays(
    model: Model,
    plan: Plan,
    device: Device,
    host: Host | None,
    rate: float,
    longest: int,
) -> list[tuple[int, int]]:
    """Lengths from … to … at which bringing back takes no longer than computing again.

    Lengths up to ``longest`` are compared on a grid that is refined wherever the better way
    changes, down to the token; two changes between neighbours of the grid cancel unseen.
    """

    def pays(lengths: Array) -> np.ndarray:
        found = swap(model, plan, device, host, rate, lengths)
        return np.asarray(found.swap_s <= found.recompute_s)

    grid = np.unique(np.round(np.geomspace(1, longest, POINTS)))
    better = pays(grid)
    changes = [
        _first_after(pays, int(grid[i]), int(grid[i + 1]), bool(better[i]))
        for i in np.flatnonzero(better[1:] != better[:-1])
    ]
    edges = ([1] if better[0] else []) + changes + ([longest + 1] if better[-1] else [])
    return [(edges[i], edges[i + 1] - 1) for i in range(0, len(edges), 2)]


def _first_after(pays: Callable[[Array], np.ndarray], low: int, high: int, at_low: bool) -> int:
    """The first length above ``low`` at which the better way isn't that of ``low``."""
    while high - low > 1:
        inner = np.unique(np.round(np.linspace(low, high, POINTS)))
        differs = np.flatnonzero(pays(inner) != at_low)
        first = int(differs[0]) if len(differs) else len(inner) - 1
        low, high = int(inner[max(first - 1, 0)]), int(inner[first])
    return high
