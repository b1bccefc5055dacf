"""Advice as plain data: what ``--json`` and ``--csv`` print and scripts rely on."""

from __future__ import annotations

from typing import Any

from perfmodel.inference.record import memory_record, plain
from perfmodel.planning.advice import Advice, Unused
from perfmodel.planning.gain import Ratio
from perfmodel.planning.lever import Change
from perfmodel.planning.options import Option
from perfmodel.planning.outcome import METRICS, Bottleneck, Outcome

RATIOS = {"ttft": "ttft_s", "tpot": "tpot_s", "throughput": "output_tokens_per_s",
          "memory": "required_bytes", "cost": "usd_per_million_output_tokens"}  # fmt: skip
"""The quantity that each metric's ratio is of."""
ENDS = ("ratio", "ratio_low", "ratio_high")


def _bottleneck(found: Bottleneck) -> dict[str, Any]:
    return {"operator": found.operator, "share": found.share, "bound": found.bound}


def _headline(outcome: Outcome) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in ("ttft_s", "tpot_s", "output_tokens_per_s"):
        low, high = outcome.estimate.interval(name)
        ends = {f"{name}_low": plain(low), f"{name}_high": plain(high)}
        values |= {name: plain(getattr(outcome.estimate, name))} | ends
    cost = outcome.usd_per_million_tokens or (None, None)
    return values | {
        "usd_per_million_output_tokens_low": cost[0],
        "usd_per_million_output_tokens_high": cost[1],
    }


def _largest(outcome: Outcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    return {"batch": outcome.situation.workload.batch} | _headline(outcome)


def outcome_record(outcome: Outcome) -> dict[str, Any]:
    """One setting: its times, cost, memory per GPU, and what limits it next."""
    return {
        "gpus": outcome.gpus,
        "fits": outcome.fits,
        **_headline(outcome),
        "memory": memory_record(outcome.estimate.memory),
        "next_limit": {
            "prefill": _bottleneck(outcome.prefill_limit),
            "decode": _bottleneck(outcome.decode_limit),
        },
    }


def _ratio(found: Ratio | None) -> dict[str, float] | None:
    if found is None:
        return None
    return dict(zip(ENDS, (found.value, found.low, found.high), strict=True))


def _change(change: Change) -> dict[str, Any]:
    price = change.price
    return {
        "lever": change.lever,
        "setting": change.setting,
        "deployment": dict(change.deployment),
        "workload": dict(change.workload),
        "price": {"accuracy": price.accuracy, "memory": price.memory,
                  "complexity": price.complexity},
        "remark": change.remark,
    }  # fmt: skip


def option_record(option: Option, advice: Advice) -> dict[str, Any]:
    """One change or several: what is set, what it gives, and over the base case."""
    outcome = option.outcome
    return {
        "setting": option.setting,
        "changes": [_change(change) for change in option.changes],
        "workload": outcome.situation.workload.model_dump(),
        "deployment": outcome.estimate.plan.deployment.model_dump(),
        "helps": advice.helps(option),
        "alters_nothing": option.alters_nothing(),
        "misses": list(outcome.missed(advice.limits)),
        "gains": {RATIOS[metric]: _ratio(option.gains.of(metric)) for metric in METRICS},
        "altered_share": option.gains.touched.before,
        "priced_unlike": option.gains.unlike,
        **outcome_record(outcome),
        "largest_batch": _largest(option.largest),
    }


def _unused(unused: Unused, advice: Advice) -> dict[str, Any]:
    without = None if unused.without is None else option_record(unused.without, advice)
    return {
        "lever": unused.lever,
        "setting": unused.setting,
        "reason": unused.reason,
        "without": without,
    }


def advice_record(advice: Advice) -> dict[str, Any]:
    """All advice; a ratio is the changed case over the base case."""
    base, limits = advice.base, advice.limits
    return {
        "model": base.estimate.model.name,
        "hardware": base.estimate.hardware.name,
        "workload": base.situation.workload.model_dump(),
        "deployment": base.estimate.plan.deployment.model_dump(),
        "calibration": base.estimate.calibration,
        "by": advice.metric,
        "limits": {"ttft_s": limits.ttft_s, "tpot_s": limits.tpot_s, "max_gpus": limits.max_gpus},
        "base": outcome_record(base) | {"largest_batch": _largest(advice.base_largest)},
        "options": [option_record(option, advice) for option in advice.options],
        "pairs": [option_record(option, advice) for option in advice.pairs],
        "triples": [option_record(option, advice) for option in advice.triples],
        "unused": [_unused(unused, advice) for unused in advice.unused],
        "warnings": list(base.estimate.warnings),
    }


def _row(kind: str, option: Option, advice: Advice) -> dict[str, Any]:
    outcome = option.outcome
    row: dict[str, Any] = {
        "kind": kind,
        "setting": option.setting,
        "helps": advice.helps(option),
        "fits": outcome.fits,
        "misses": " ".join(outcome.missed(advice.limits)),
        "gpus": outcome.gpus,
        "batch": outcome.situation.workload.batch,
    } | _headline(outcome)
    for metric in METRICS:
        ends = _ratio(option.gains.of(metric)) or dict.fromkeys(ENDS)
        row |= {f"{RATIOS[metric]}.{name}": value for name, value in ends.items()}
    limit = outcome.next_limit(advice.metric)
    memory = memory_record(outcome.estimate.memory)
    return row | {
        "required_bytes": memory["required_bytes"],
        "max_sequences": memory["max_sequences"],
        "max_context": memory["max_context"],
        "next_limit": f"{limit.operator} ({limit.bound})",
        "price": option.price,
    }


def advice_rows(advice: Advice) -> list[dict[str, Any]]:
    """The base case and every option as rows of one table."""
    groups = (("single", advice.options), ("pair", advice.pairs), ("triple", advice.triples))
    return [_row(kind, option, advice) for kind, options in groups for option in options]
