"""How a deployment's kernels are started, and which attention kernel runs: settled and checked.

A step that replays a captured graph starts its kernels without the host. Others are launched one
by one: decode steps beyond the largest captured batch pay for it kernel by kernel; prefill steps
have kernels longer than their launches, which the host issues ahead of the device, and take at
least as long as all launches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from perfmodel.inference.plan import Plan
from perfmodel.operators.quantity import Quantity, is_array, where
from perfmodel.specs.engine_timing import Kernels
from perfmodel.specs.workload import Workload

Started = Literal["graph", "eager", "ahead", "fitted"]
"""In a captured graph; one by one; one by one ahead of the device; or whatever the engine did where
its numbers were fitted, which hold it."""


def beyond_graphs(plan: Plan, sequences: Quantity) -> Quantity:
    """1 where a decode step of ``sequences`` is too large for the captured graphs, else 0."""
    largest = plan.graph_batch
    if not plan.engine.graph.counted or largest is None or plan.deployment.execution == "eager":
        return 0
    return where(np.asarray(sequences) > largest, 1.0, 0.0)


def ahead_of_device(plan: Plan, tokens: Quantity) -> Quantity:
    """1 where a prefill step of ``tokens`` is launched by a host that runs ahead, else 0."""
    graph = plan.engine.graph
    if not graph.counted or plan.deployment.execution == "eager":
        return 0
    return where(np.asarray(tokens) > graph.prefill_tokens, 1.0, 0.0)


def _named(flags: Quantity, yes: Started, no: Started) -> Started | list[Started]:
    if is_array(flags):
        named: list[Started] = np.where(np.asarray(flags) > 0, yes, no).tolist()
        return named
    return yes if flags else no


def how_started(
    plan: Plan, workload: Workload, phase: Literal["prefill", "decode"]
) -> Started | list[Started]:
    """How a phase's kernels are started; a list over the batches or prompts of arrays."""
    if plan.deployment.execution == "eager":
        return "eager"
    if not plan.engine.graph.counted:
        return "fitted"
    sequences = plan.replica_sequences(workload)
    if phase == "decode":
        return _named(beyond_graphs(plan, sequences), "eager", "graph")
    new = workload.prompt - workload.cached_prefix
    chunk = plan.prefill_chunk(workload)
    tokens = sequences * (new if chunk is None else np.minimum(new, chunk))
    return _named(ahead_of_device(plan, tokens), "ahead", "graph")


def launch_notes(plan: Plan, workload: Workload) -> Iterable[str]:
    """What a user should know of decode steps that no graph holds."""
    sequences = plan.replica_sequences(workload)
    if np.any(np.asarray(beyond_graphs(plan, sequences)) > 0):
        yield (
            f"decode steps of more than {plan.graph_batch} sequences are beyond "
            f"{plan.engine.name}'s captured graphs: their kernels are launched one by one"
        )


def kernels_of(plan: Plan) -> Kernels:
    """The engine's kernels; a FlashAttention that is asked for replaces the engine's own."""
    own = plan.engine.kernels
    if not plan.flash:
        return own
    return own.model_copy(
        update={"attention": 1.0, "decode_flops_per_clock": None, "causal_skip": True}
    )
