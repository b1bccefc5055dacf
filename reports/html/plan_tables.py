"""The tables of a capacity plan, where a report has one."""

from __future__ import annotations

from perfmodel.planning.capacity.answer import Choice, Plan, Range
from perfmodel.text import digits, percent, seconds, whole
from reports.html.columns import NONE
from reports.html.figures import usd
from reports.html.tables import Cell, Heading, Table, number


def plan_tables(plan: Plan) -> tuple[Table, ...]:
    """The choices, what comes nearest where there is none, and what isn't offered."""
    made = [_choices(plan)] if plan.choices else []
    if plan.nearest is not None:
        made.append(_nearest(plan))
    if plan.rejected:
        made.append(_rejected(plan))
    return tuple(made)


def _choices(plan: Plan) -> Table:
    words = ("Hardware", "Settings", "Limit of a replica’s load")
    headings = ("Hardware", "Settings", "GPUs", "Replicas", "Busiest hour", "TTFT", "TPOT", "USD/h",
                "USD per million prompt tokens", "USD per million output tokens",
                "kWh per million tokens", "Limit of a replica’s load")  # fmt: skip
    return Table(
        "plan",
        "Deployments that keep the service levels, the cheapest first",
        tuple(Heading(text, text not in words) for text in headings),
        tuple(_choice(choice) for choice in plan.choices),
    )


def _choice(choice: Choice) -> tuple[Cell, ...]:
    fleet, energy = choice.fleet, choice.energy
    ttft = max(seen.ttft_s for seen in choice.level.seen)
    tpots = [seen.tpot_s for seen in choice.level.seen if seen.tpot_s is not None]
    front = "no other is cheaper and faster" if choice.front else ""
    return (
        Cell(choice.hardware.name, note=front),
        Cell(" ".join(choice.settings) or "the engine’s own"),
        number(fleet.gpus, whole(fleet.gpus)),
        number(fleet.replicas, whole(fleet.replicas)),
        number(fleet.utilisation, percent(fleet.utilisation)),
        number(ttft, seconds(ttft)),
        number(max(tpots), seconds(max(tpots))) if tpots else Cell(NONE),
        _range(choice.usd_per_hour),
        _range(choice.usd_per_million_prompt_tokens),
        _range(choice.usd_per_million_output_tokens),
        _range(None if energy is None else energy.kwh_per_million_tokens),
        Cell(choice.load_limit),
    )


def _range(found: Range | None) -> Cell:
    if found is None:
        return Cell(NONE)
    return number(found.middle, usd((found.low, found.high)))


def _nearest(plan: Plan) -> Table:
    found = plan.nearest
    assert found is not None  # noqa: S101  (the caller looked)
    rows = (
        (Cell("Nearest deployment"), Cell(f"{found.hardware}: {found.label}")),
        (Cell("First limit that fails"), Cell(found.limit)),
        (Cell("What would do"), Cell(found.would_do)),
    )
    heads = (Heading("", number=False), Heading("", number=False))
    return Table("nearest", "Nothing meets the service levels", heads, rows, sorts=False)


def _rejected(plan: Plan) -> Table:
    heads = tuple(Heading(text, number=False) for text in ("Hardware", "Deployment", "Reason"))
    rows = tuple((Cell(r.hardware), Cell(r.label), Cell(r.reason)) for r in plan.rejected)
    caption = f"Not offered, of {digits(float(plan.considered))} that were looked at"
    return Table("rejected", caption, heads, rows)
