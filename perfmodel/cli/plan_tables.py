"""The tables of `perfmodel plan`: built from a finished plan, computing nothing new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfmodel.cli.output import table
from perfmodel.cli.text import digits, percent, seconds, si, whole
from perfmodel.planning.capacity.answer import Choice, Plan, Range
from perfmodel.planning.capacity.front import Point, front_points

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 120
"""Columns of a terminal from which tables say more."""
POINTS = 12
"""Rows of the front at most."""
COSTS = "not simulated"
"""How reasons begin that are counted, not listed."""
LISTED = 8
"""Reasons that are listed at most."""


def fleet_name(choice: Choice) -> str:
    """Replicas, GPUs of each and hardware: ``4 × 2 h100-sxm``.

    A replica of one GPU is only counted.
    """
    each = choice.gpus_per_replica
    many = f"{choice.fleet.replicas} × {each}" if each > 1 else f"{choice.fleet.replicas} ×"
    return f"{many} {choice.hardware.name}"


def usd(value: float) -> str:
    """Dollars: cents from one dollar on, else three digits.

    >>> usd(1234.5), usd(0.02336)
    ('$1,234.50', '$0.0234')
    """
    return f"${value:,.2f}" if value >= 0.995 else f"${digits(value)}"


def _range(known: Range | None, said: str = "") -> str:
    if known is None:
        return "no price known"
    if known.low == known.high:
        return f"{usd(known.middle)}{said}"
    return f"{usd(known.middle)}{said} ({usd(known.low)} to {usd(known.high)})"


def answer_table(plan: Plan, best: Choice) -> Table:
    """Everything about the cheapest choice."""
    made = table(None, [("Answer", "left"), ("", "left")])
    for label, said in _answer(plan, best):
        made.add_row(label, said)
    return made


def _answer(plan: Plan, best: Choice) -> Iterator[tuple[str, str]]:
    fleet = best.fleet
    spare = f", {plan.terms.spare} of them spare" if plan.terms.spare else ""
    yield (
        "GPUs",
        f"{whole(fleet.gpus)}: {fleet.replicas} replicas of {best.gpus_per_replica}{spare}",
    )
    yield "Engine flags", " ".join(best.settings) or f"{best.deployment.engine}'s defaults"
    yield (
        "Load in the busiest hour",
        (
            f"{percent(fleet.utilisation)} of what the replicas carry; "
            f"{percent(fleet.utilisation_degraded)} without the spare"
        ),
    )
    yield (
        "One replica carries",
        (
            f"{digits(best.level.rate)} requests/s, {digits(best.level.batch)} at once; then "
            f"{best.load_limit}"
        ),
    )
    if best.busiest is not None:
        for kind, seen in zip(plan.traffic.classes, best.busiest.seen, strict=True):
            name = "Users see" if len(plan.traffic.classes) == 1 else f"  {kind.name} sees"
            tpot = "" if seen.tpot_s is None else f"TPOT {seconds(seen.tpot_s)}, "
            yield (
                name,
                (
                    f"TTFT {seconds(seen.ttft_s)}, {tpot}end to end {seconds(seen.e2e_s)} "
                    f"(p{plan.traffic.percentile:g}, busiest hour)"
                ),
            )
    yield "Rent", _range(best.usd_per_hour, " per hour")
    yield "  per 10⁶ prompt tokens", _range(best.usd_per_million_prompt_tokens)
    yield "  per 10⁶ output tokens", _range(best.usd_per_million_output_tokens)
    if best.energy is not None:
        watts, energy = best.energy.watts, best.energy.kwh_per_million_tokens
        yield "GPU power", f"{si(watts.low, 'W')} to {si(watts.high, 'W')}"
        yield "  per 10⁶ tokens", f"{digits(energy.low)} to {digits(energy.high)} kWh"
    for risk in best.risks:
        yield "Accuracy", risk


def plan_tables(plan: Plan, width: int) -> Iterator[Table]:
    """All tables below the answer, for a terminal of ``width`` columns."""
    yield choice_table(plan, width)
    if len(plan.choices[0].months) > 1:
        yield month_table(plan)
    points = front_points(plan)
    if points:
        yield front_table(plan, points)


def choice_table(plan: Plan, width: int) -> Table:
    """All choices, cheapest first."""
    wide = width >= WIDE
    heads = ["Load", "TTFT", "TPOT", "USD/h", "10⁶ out"]
    more = ["10⁶ in", "kW", "req/s each"] if wide else []
    columns = [("", "right"), ("Choices", "left"), *((h, "right") for h in (*heads, *more))]
    made = table(None, columns)
    for place, choice in enumerate(plan.choices, 1):
        seen = (choice.busiest or choice.level).seen
        cells = [
            percent(choice.fleet.utilisation),
            seconds(max(s.ttft_s for s in seen)),
            seconds(choice.tpot_s),
            _middle(choice.usd_per_hour),
            _middle(choice.usd_per_million_output_tokens),
        ]
        if wide:
            cells += [_middle(choice.usd_per_million_prompt_tokens), _kilowatts(choice)]
            cells.append(digits(choice.level.rate))
        mark = "*" if choice.front else ""
        made.add_row(f"{place}{mark}", f"{fleet_name(choice)}, {choice.label}", *cells)
    return made


def _middle(known: Range | None) -> str:
    return "–" if known is None else usd(known.middle)


def _kilowatts(choice: Choice) -> str:
    if choice.energy is None:
        return "–"
    watts = choice.energy.watts
    return f"{digits(watts.low / 1e3, 2)}–{digits(watts.high / 1e3, 2)}"


def month_table(plan: Plan) -> Table:
    """The cheapest choice month by month."""
    best = plan.choices[0]
    heads = ("Requests/s", "busiest", "Replicas", "GPUs", "Load", "USD/h")
    made = table(None, [("Month", "right"), *((head, "right") for head in heads)])
    for month in best.months:
        made.add_row(
            str(month.month), digits(month.rate), digits(plan.traffic.peak_at(month.month)),
            whole(month.fleet.replicas), whole(month.fleet.gpus), percent(month.fleet.utilisation),
            "–" if best.usd_per_hour is None else usd(month.fleet.usd_per_hour),
        )  # fmt: skip
    return made


def front_table(plan: Plan, points: tuple[Point, ...]) -> Table:
    """User speed against cost: the fleets that none beats in both."""
    heads = ("GPUs", "USD/h", "rent per 10⁶ out", "tokens/s of a user")
    made = table(None, [("Speed against cost", "left"), *((head, "right") for head in heads)])
    front = [point for point in points if point.front]
    for point in front[:: -(-len(front) // POINTS)]:
        choice = plan.choices[point.choice]
        made.add_row(
            f"{point.choice + 1}: {choice.hardware.name}, {choice.gpus_per_replica} a replica",
            whole(point.gpus), usd(point.usd_per_hour), usd(point.usd_per_million_output_tokens),
            digits(point.tokens_per_s),
        )  # fmt: skip
    return made


def rejected_table(plan: Plan, *, everything: bool) -> Table:
    """What isn't offered, and why; what is merely dearer is counted."""
    made = table(None, [("Not offered", "left"), ("Why", "left")])
    told: dict[tuple[str, str], list[str]] = {}
    dearer: Counter[str] = Counter()
    for item in plan.rejected:
        if everything or not item.reason.startswith(COSTS):
            told.setdefault((item.hardware, item.reason), []).append(item.label)
        else:
            dearer[item.hardware] += 1
    for (name, reason), labels in list(told.items())[: None if everything else LISTED]:
        made.add_row(f"{name}: {'; '.join(labels)}", reason)
    for name, count in dearer.items():
        made.add_row(f"{name}: {count} more", "not simulated: others need less by the bound")
    if not everything and len(told) > LISTED:
        made.add_row(f"{len(told) - LISTED} more reasons", "--rejected lists all")
    return made
