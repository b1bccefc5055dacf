"""What an estimate says beside its numbers."""

from __future__ import annotations

import numpy as np

from perfmodel.inference.execution import launch_notes
from perfmodel.inference.kv_checks import kv_notes
from perfmodel.inference.layout import layout_notes
from perfmodel.inference.memory import Memory
from perfmodel.inference.plan import Plan
from perfmodel.operators.quantity import Quantity
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload


def estimate_notes(
    model: Model,
    workload: Workload,
    plan: Plan,
    memory: Memory,
    bubbles: dict[str, Quantity],
) -> tuple[str, ...]:
    """Everything that the reader of an answer should know, one sentence each."""
    notes = [*plan.notes, *launch_notes(plan, workload)]
    longest = int(np.max(np.asarray(workload.prompt + workload.output)))
    if model.max_positions is not None and longest > model.max_positions:
        notes.append(
            f"{longest:,} tokens exceed the {model.max_positions:,} that {model.name} was made for"
        )
    budget = plan.limits.max_num_batched_tokens
    new = plan.replica_sequences(workload) * workload.new_tokens
    if workload.prefill_chunk is None and np.any(np.asarray(new) > budget):
        notes.append(
            f"prefill is priced as one pass; {plan.engine.name} takes at most {budget} tokens a "
            "step, and --prefill-chunk prices such steps"
        )
    verified = (1 + plan.drafted) * plan.replica_sequences(workload)
    if plan.draft is not None and np.any(np.asarray(verified) > budget):
        notes.append(
            f"verification is priced as one step; {plan.engine.name} takes at most {budget} tokens "
            "a step, drafted ones included"
        )
    notes += layout_notes(plan.deployment, bubbles)
    notes += kv_notes(plan.deployment, plan.engine.name)
    if not np.all(memory.fits):
        notes.append("what doesn't fit can't be run, whatever its times")
    return tuple(notes)
