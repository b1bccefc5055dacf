"""A plan in words: what was asked, the answer, and what to know of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfmodel.cli.output import bold, print_table
from perfmodel.cli.plan_tables import answer_table, fleet_name
from perfmodel.cli.text import digits, percent, seconds, whole
from perfmodel.planning.capacity.answer import Plan
from perfmodel.planning.capacity.notes import DEFINITIONS, notes
from perfmodel.specs.traffic import RequestClass, ServiceLevel, Traffic

SHOWN = {
    "percentile": "Percentile",
    "rate_per_replica": "One replica carries",
    "replicas": "Replicas",
    "utilisation": "Load",
    "busiest": "Busiest hour",
    "usd_per_hour": "Rent",
    "usd_per_million_prompt_tokens": "Rent per 10⁶ prompt tokens",
    "usd_per_million_output_tokens": "Rent per 10⁶ output tokens",
    "prefill_share": "Prefill's part",
    "front": "*",
}
"""What stands before each definition below the tables."""


def level_facts(level: ServiceLevel) -> Iterator[str]:
    """Promises in a few words each."""
    for name, said in (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "end to end")):
        limit = getattr(level, name)
        if limit is not None:
            yield f"{said} ≤ {seconds(limit)}"


def traffic_facts(traffic: Traffic) -> Iterator[str]:
    """When requests come, and what is promised of them."""
    yield f"{digits(traffic.rate)} requests/s"
    if traffic.peak != 1:
        yield f"{digits(traffic.peak_at(0))} in the busiest hour"
    if traffic.burstiness != 1:
        yield f"burstiness {traffic.burstiness:g}"
    if len(traffic.classes) == 1:
        yield from class_facts(traffic.classes[0])
    else:
        yield f"{len(traffic.classes)} classes"
    yield f"p{traffic.percentile:g}"
    if traffic.months:
        yield f"{100 * traffic.growth:+g} % a month for {traffic.months} months"


def class_facts(kind: RequestClass) -> Iterator[str]:
    """One class of requests in a few words each."""
    yield f"prompt {_length(kind.prompt)}"
    yield f"output {_length(kind.output)}"
    if kind.prefix_tokens:
        yield f"{kind.prefix_tokens:,} of them shared"
    yield from level_facts(kind.level)


def _length(tokens: str | int) -> str:
    text = str(tokens)
    return f"{int(text):,}" if text.isdigit() else text


def print_answer(out: Any, plan: Plan) -> None:
    """What was asked, and the cheapest choice with all that there is to say of it."""
    best = plan.choices[0]
    out.print(bold(plan.model.name), "·", " · ".join(traffic_facts(plan.traffic)))
    if len(plan.traffic.classes) > 1:
        for kind, share in zip(plan.traffic.classes, plan.traffic.shares(), strict=True):
            out.print(f"  {kind.name} ({percent(share)}): {' · '.join(class_facts(kind))}")
    out.print()
    out.print(bold(f"{fleet_name(best)}: {best.label}"))
    print_table(out, answer_table(plan, best))


def note_lines(plan: Plan, *, everything: bool) -> Iterator[str]:
    """What figures mean and rest on, below the tables."""
    for name, said in SHOWN.items():
        yield f"{said}: {DEFINITIONS[name]}."
    for kind in {choice.hardware.name: choice for choice in plan.choices}.values():
        yield f"Times on {kind.hardware.name}: {kind.calibration}."
    for name, source in plan.terms.price_source.items():
        ends = plan.terms.usd_per_gpu_hour[name]
        said = f"{ends.low:g}" if ends.low == ends.high else f"{ends.low:g} to {ends.high:g}"
        yield f"Price of {name}: {said} USD per GPU and hour; {source}."
    energy = plan.choices[0].energy
    if energy is not None:
        yield f"Power: {energy.source}."
    for note in notes(plan):
        yield f"Note: {note}."
    if not everything and len(plan.rejected) > len({r.reason for r in plan.rejected}):
        yield "--rejected lists every deployment that isn't offered; --json has all figures."


def infeasible(plan: Plan) -> str:
    """One line for a plan without choices: the first limit that fails, and what would do."""
    near = plan.nearest
    if near is None:
        return f"{plan.model.name}: no deployment was found"
    return (
        f"{plan.model.name}: none of {whole(plan.considered)} deployments does; nearest is "
        f"{near.hardware} ({near.label}), which fails by {near.limit}; would do: {near.would_do}"
    )
