"""What a phase's time goes to, by what its operators are for; the batch that keeps a promise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.inference.estimate import Estimate, Phase
from perfmodel.inference.host import HOST_ROW
from perfmodel.inference.offload import TRANSFER_ROW
from perfmodel.inference.phase import OperatorCost
from perfmodel.inference.pipeline import BUBBLE_ROW
from perfmodel.operators.quantity import Array, Quantity

GROUPS = (
    "feed-forward", "experts", "projections", "attention", "LM head", "exchanges",
    "norms and other passes", "draft", "host, transfers, waiting",
)  # fmt: skip
"""In the order in which they are shown."""
BESIDE = {HOST_ROW, TRANSFER_ROW, BUBBLE_ROW}
MIXING = ("attention", "recurrence", "indexer.scores")
"""What reads the cache or a recurrent state."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Seconds of a phase by group; arrays over the settings."""

    groups: tuple[tuple[str, Array], ...]
    """Those that take time in any setting."""
    total_s: Array
    low_s: Array
    high_s: Array


def group_of(row: OperatorCost) -> str:
    """The group that an operator belongs to."""
    head = row.name.split(".")[0]
    if row.name in BESIDE:
        return "host, transfers, waiting"
    if head == "draft":
        return "draft"
    if np.any(np.asarray(row.cost.wire_bytes) > 0):
        return "exchanges"
    if not np.any(np.asarray(row.cost.flops) > 0):
        return "norms and other passes"
    if row.name in MIXING:
        return "attention"
    named = {"ffn": "feed-forward", "experts": "experts", "shared_expert": "experts",
             "router": "experts", "lm_head": "LM head"}  # fmt: skip
    return named.get(head, "projections")


def breakdown(result: Estimate, phase: Phase) -> Breakdown:
    """Sum a phase's operators by group, in every setting of the workload's arrays."""
    load = result.workload
    shape = np.broadcast_shapes(
        *(np.shape(axis) for axis in (load.batch, load.prompt, load.output, phase.time_s))
    )

    def each(value: Quantity) -> Array:
        return np.asarray(np.broadcast_to(value, shape), dtype=np.float64).ravel()

    sums: dict[str, Array] = {}
    for row in phase.cost.operators:
        name = group_of(row)
        sums[name] = sums.get(name, np.zeros(1)) + each(row.cost.time_s)
    total = phase.cost.total
    return Breakdown(
        groups=tuple((name, sums[name]) for name in GROUPS if name in sums and sums[name].any()),
        total_s=each(total.time_s),
        low_s=each(total.low_s),
        high_s=each(total.high_s),
    )


def largest_within(result: Estimate, limit_s: float) -> int | None:
    """The largest of the batches that fit and keep ``limit_s`` per token; None where none does."""
    tpot = np.ravel(result.tpot_s)
    kept = np.ravel(result.memory.fits) & (tpot <= limit_s)
    return int(np.ravel(result.workload.batch)[kept].max()) if kept.any() else None
