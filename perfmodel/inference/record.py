"""An estimate as plain data: what ``--json`` prints and scripts rely on."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from perfmodel.inference.estimate import Estimate, Phase
from perfmodel.inference.kv_report import KvReport, kv_report
from perfmodel.inference.memory import Memory
from perfmodel.inference.phase import OperatorCost
from perfmodel.inference.speculation.answer import Speculated
from perfmodel.operators.quantity import Quantity

HEADLINE = ("ttft_s", "tpot_s", "total_s", "output_tokens_per_s")
"""The quantities that carry an interval."""


def plain(value: Any) -> Any:
    """Numbers, lists and None: arrays become lists, NaN becomes None."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()] if value.ndim else plain(value.item())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def operator_record(row: OperatorCost) -> dict[str, Any]:
    """One operator: its totals over all ``steps`` × ``count`` executions in the phase.

    ``count`` is that of one step, ``shape`` that of the first; a prefill in chunks has several.
    """
    cost = row.cost
    return {
        "name": row.name,
        "count": row.count,
        "steps": plain(row.steps),
        "shape": {name: plain(size) for name, size in row.shape.items()},
        "arithmetic": row.arithmetic,
        "flops": plain(cost.flops),
        "bytes": plain(cost.bytes),
        "weight_bytes": plain(cost.weight_bytes),
        "cache_bytes": plain(cost.cache_bytes),
        "activation_bytes": plain(cost.activation_bytes),
        "wire_bytes": plain(cost.wire_bytes),
        "reread_bytes": plain(cost.reread_bytes),
        "launches": plain(cost.launches),
        "arithmetic_intensity": plain(cost.arithmetic_intensity),
        "time_s": plain(cost.time_s),
        "time_s_low": plain(cost.low_s),
        "time_s_high": plain(cost.high_s),
        "roof_s": plain(cost.roof_s),
        "bound": plain(cost.bound),
        "source": row.source,
    }


def phase_record(phase: Phase) -> dict[str, Any]:
    """A phase with its operators."""
    total = phase.cost.total
    return {
        "time_s": plain(total.time_s),
        "time_s_low": plain(total.low_s),
        "time_s_high": plain(total.high_s),
        "roof_s": plain(total.roof_s),
        "tokens_per_s": plain(phase.tokens_per_s),
        "flops": plain(total.flops),
        "bytes": plain(total.bytes),
        "wire_bytes": plain(total.wire_bytes),
        "arithmetic_intensity": plain(total.arithmetic_intensity),
        "ridge_point": phase.ridge_point,
        "bound": plain(total.bound),
        "assumed_share": plain(phase.cost.assumed_share),
        "launch": {
            "kernels": plain(total.launches),
            "started": phase.started,
            "graphs_save_s": plain(phase.graphs_save_s),
        },
        "operators": [operator_record(row) for row in phase.cost.operators],
    }


def _integer(value: float) -> int | float:
    """Bytes without a fraction as an integer."""
    return int(value) if value.is_integer() else value


def kv_record(report: KvReport) -> dict[str, Any]:
    """The KV store: layouts, what vLLM's pool sets aside and logs, chunks, swapping."""
    record = asdict(report)
    return {name: _plain_record(value) for name, value in record.items()}


def _plain_record(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain_record(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_record(item) for item in value]
    return plain(value)


def memory_record(memory: Memory) -> dict[str, Any]:
    """Memory per GPU."""
    return {
        "weights_bytes": plain(memory.weights_bytes),
        "kv_bytes": plain(memory.kv_bytes),
        "kv_stored_bytes": plain(memory.kv_stored_bytes),
        "kv_bytes_per_token": _integer(memory.kv_bytes_per_token),
        "kv_room_bytes": plain(memory.kv_room_bytes),
        "activation_bytes": plain(memory.activation_bytes),
        "reserved_bytes": plain(memory.reserved_bytes),
        "required_bytes": plain(memory.required_bytes),
        "capacity_bytes": memory.capacity_bytes,
        "fits": plain(memory.fits),
        "max_sequences": plain(memory.max_sequences),
        "max_context": plain(memory.max_context),
        "kv_outside_bytes": plain(memory.kv_outside_bytes),
        "weights_outside_bytes": plain(memory.weights_outside_bytes),
    }


def speculation_record(answer: Speculated) -> dict[str, Any]:
    """A round beside a plain decode step at the mean context; ``verified_tokens`` with the root."""
    s, best = answer.draft.speculation, answer.best
    low, high = answer.speedup_interval
    return {
        "expected_tokens": answer.expected_tokens,
        "depth": s.depth,
        "verified_tokens": s.nodes + 1,
        "round_s": plain(answer.round_s),
        "round_s_low": plain(answer.round.total.low_s),
        "round_s_high": plain(answer.round.total.high_s),
        "draft_s": plain(answer.draft_s),
        "verify_s": plain(answer.verify_s),
        "plain_step_s": plain(answer.plain.time_s),
        "speedup": plain(answer.speedup),
        "speedup_low": plain(low),
        "speedup_high": plain(high),
        "draft_cost": plain(answer.draft_cost),
        "draft_cost_source": "operators" if s.draft_cost is None else "stated",
        "best_tokens": plain(best.tokens),
        "best_tree": best.tree,
        "best_speedup": plain(best.speedup),
        "break_even_batch": plain(answer.break_even_batch),
        "draft_weights_bytes": answer.draft.weights_bytes,
        "draft_kv_bytes_per_token": answer.draft_kv_bytes_per_token,
    }


def _headline(result: Estimate) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in HEADLINE:
        low, high = result.interval(name)
        value: Quantity = getattr(result, name)
        values |= {name: plain(value), f"{name}_low": plain(low), f"{name}_high": plain(high)}
    return values


def estimate_record(result: Estimate) -> dict[str, Any]:
    """The whole estimate; FLOPs, bytes and memory are those of one GPU (of each stage)."""
    return {
        "model": result.model.name,
        "hardware": result.hardware.name,
        "gpus": result.plan.parallel.gpus,
        "workload": result.workload.model_dump(),
        "deployment": result.plan.deployment.model_dump(),
        "calibration": result.calibration,
        **_headline(result),
        "prefill": phase_record(result.prefill),
        "decode": phase_record(result.decode),
        "memory": memory_record(result.memory),
        "kv_store": kv_record(kv_report(result)),
        "speculation": (
            None if result.speculation is None else speculation_record(result.speculation)
        ),
        "warnings": list(result.warnings),
    }
