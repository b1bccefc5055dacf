"""A plan as plain data: what ``perfmodel plan --json`` prints."""

from __future__ import annotations

from dataclasses import fields
from math import isfinite
from typing import Any

from perfmodel.planning.capacity.answer import Choice, Energy, Plan, Range
from perfmodel.planning.capacity.front import front_points
from perfmodel.planning.capacity.notes import DEFINITIONS, notes
from perfmodel.planning.capacity.requests import mean_tokens
from perfmodel.planning.capacity.sizing import Fleet, Level
from perfmodel.specs.traffic import Traffic


def plan_record(plan: Plan) -> dict[str, Any]:
    """The whole plan; figures that nobody knows (cost without a price) are None."""
    return {
        "model": plan.model.name,
        "traffic": traffic_record(plan.traffic),
        "terms": {
            "utilisation_target": plan.terms.utilisation_target,
            "spare": plan.terms.spare,
            "usd_per_gpu_hour": {n: _ends(r) for n, r in plan.terms.usd_per_gpu_hour.items()},
            "price_source": dict(plan.terms.price_source),
        },
        "choices": [choice_record(choice) for choice in plan.choices],
        "front": [_plain(point) for point in front_points(plan)],
        "rejected": [_plain(item) for item in plan.rejected],
        "nearest": None if plan.nearest is None else _plain(plan.nearest),
        "considered": plan.considered,
        "definitions": dict(DEFINITIONS),
        "notes": list(notes(plan)),
    }


def traffic_record(traffic: Traffic) -> dict[str, Any]:
    """What users send and expect, with the mean lengths that costs are divided by."""
    prompt, output = mean_tokens(traffic)
    return {
        **traffic.model_dump(mode="json"),
        "mean_prompt_tokens": prompt,
        "mean_output_tokens": output,
    }


def choice_record(choice: Choice) -> dict[str, Any]:
    """One deployment: what runs, what each replica carries, the fleet and its cost."""
    serving = choice.serving
    return {
        "hardware": choice.hardware.name,
        "label": choice.label,
        "settings": list(choice.settings),
        "deployment": choice.deployment.model_dump(),
        "serving": {
            "scheduler": serving.scheduler,
            "prefix_caching": serving.prefix_caching,
            "router": serving.router,
            "disaggregate": list(serving.disaggregate) if serving.disaggregate else None,
        },
        "gpus_per_replica": choice.gpus_per_replica,
        **_fleet(choice.fleet),
        "usd_per_hour": _ends(choice.usd_per_hour),
        "usd_per_million_prompt_tokens": _ends(choice.usd_per_million_prompt_tokens),
        "usd_per_million_output_tokens": _ends(choice.usd_per_million_output_tokens),
        "energy": None if choice.energy is None else _energy(choice.energy),
        "rate_per_replica": choice.level.rate,
        "load_limit": choice.load_limit,
        "prefill_share": choice.prefill_share,
        "busiest": None if choice.busiest is None else level_record(choice.busiest),
        "levels": [level_record(level) for level in choice.levels],
        "months": [
            {
                "month": m.month, "rate": m.rate, **_fleet(m.fleet),
                "usd_per_hour": _number(m.fleet.usd_per_hour),
            }
            for m in choice.months
        ],
        "front": choice.front,
        "risks": list(choice.risks),
        "calibration": choice.calibration,
    }  # fmt: skip


def level_record(level: Level) -> dict[str, Any]:
    """A replica under one load; latencies by class, in the traffic's order."""
    return {
        "rate": level.rate,
        "batch": _number(level.batch),
        "utilisation": _number(level.utilisation),
        "kv_utilisation": _number(level.kv_utilisation),
        "preemptions": level.preemptions,
        "seen": [_plain(seen) for seen in level.seen],
    }


def _fleet(fleet: Fleet) -> dict[str, Any]:
    names = ("replicas", "gpus", "utilisation", "utilisation_degraded")
    return {name: getattr(fleet, name) for name in names}


def _energy(energy: Energy) -> dict[str, Any]:
    return {
        "watts": _ends(energy.watts),
        "kwh_per_million_tokens": _ends(energy.kwh_per_million_tokens),
        "source": energy.source,
    }


def _ends(known: Range | None) -> dict[str, float] | None:
    return None if known is None else {"low": known.low, "high": known.high}


def _number(value: float) -> float | None:
    return value if isfinite(value) else None


def _plain(record: Any) -> dict[str, Any]:
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {n: _number(v) if isinstance(v, float) else v for n, v in values.items()}
