"""The tables of `perfmodel advise`: built from finished advice, computing nothing new."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfmodel.cli.advise_text import (
    NAMES,
    absolute_text,
    change_text,
    interval_text,
    largest_text,
    limit_text,
    price_text,
    reason_text,
    unused_text,
    usd_text,
)
from perfmodel.cli.output import table
from perfmodel.cli.text import binary, digits, seconds, whole
from perfmodel.planning.advice import Advice
from perfmodel.planning.options import Option
from perfmodel.planning.outcome import METRICS, Metric

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 120
"""Columns of a terminal from which a row holds its interval and its next limit too."""
BY: dict[Metric, str] = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "throughput": "output tokens per second",
    "memory": "memory per GPU",
    "cost": "cost per output token",
}


def base_table(advice: Advice) -> Table:
    """The case as it is."""
    base, memory = advice.base, advice.base.estimate.memory
    heads = ["Now", "TTFT", "TPOT", "Tokens/s", "Memory per GPU", "Largest batch"]
    cells = [
        "",
        seconds(base.ttft_s),
        seconds(base.tpot_s),
        digits(base.tokens_per_s),
        f"{digits(base.required_bytes / memory.capacity_bytes * 100, 2)} % of "
        f"{binary(memory.capacity_bytes)}",
        largest_text(advice.base_largest),
    ]
    if base.usd_per_million_tokens is not None:
        heads.append("USD/M tokens")
        cells.append(usd_text(base.usd_per_million_tokens))
    made = table(None, [(head, "right" if head != "Now" else "left") for head in heads[1:]])
    made.add_row(*cells[1:])
    return made


def metrics_of(advice: Advice) -> tuple[Metric, ...]:
    """The metrics that have a value here."""
    base = advice.base
    absent = {"cost"} if base.usd_per_million_tokens is None else set()
    absent |= {"tpot"} if base.tpot_s is None else set()
    return tuple(metric for metric in METRICS if metric not in absent)


def _cell(option: Option, metric: Metric, advice: Advice) -> str:
    """A change against the base case; what it is where the base case can't be run."""
    if not advice.base.fits:
        return absolute_text(option.outcome, metric)
    return change_text(option.gains.of(metric))


def _more(option: Option, advice: Advice) -> dict[str, str]:
    metric = advice.metric
    own = {f"{NAMES[metric]}, 90 % interval": interval_text(option.gains.of(metric))}
    if not advice.base.fits:
        own = {}
    if len(option.changes) == 1:
        own["Largest batch"] = largest_text(option.largest)
    return own | {"Then limited by": limit_text(option.outcome.next_limit(metric))}


def _rows(title: str | None, rows: list[dict[str, str]], left: set[str]) -> Table:
    made = table(title, [(head, "left" if head in left else "right") for head in rows[0]])
    for row in rows:
        made.add_row(*row.values())
    return made


LEFT = {"Change", "Changes", "Then limited by", "Price", "Lever", "Why", "Setting"}


def ranking(title: str, options: tuple[Option, ...], advice: Advice, width: int) -> Iterator[Table]:
    """Options with what they change, their interval and what limits next."""
    head = "Changes" if len(options[0].changes) > 1 else "Change"
    numbers = [
        {head: option.setting} | {NAMES[m]: _cell(option, m, advice) for m in metrics_of(advice)}
        for option in options
    ]
    more = [_more(option, advice) for option in options]
    if width >= WIDE:
        rows = [row | rest for row, rest in zip(numbers, more, strict=True)]
        yield _rows(title, rows, LEFT)
        return
    yield _rows(title, numbers, LEFT)
    yield _rows(
        None,
        [{head: option.setting} | rest for option, rest in zip(options, more, strict=True)],
        LEFT,
    )


def price_table(options: tuple[Option, ...]) -> Table:
    """What each option costs beside time."""
    rows = [{"Change": option.setting, "Price": price_text(option)} for option in options]
    return _rows(None, rows, LEFT)


def rest_table(advice: Advice) -> Table | None:
    """What does nothing here or can't be used, and why; None where there is none."""
    rows = [
        {"Setting": option.setting, "Why": reason_text(option, advice)}
        for option in advice.options
        if not advice.helps(option)
    ]
    rows += _unused_rows(advice)
    return _rows(_rest_title(advice), rows, LEFT) if rows else None


def _rest_title(advice: Advice) -> str:
    if not advice.base.fits:
        return "Doesn't make it fit"
    limited = advice.limits.ttft_s is not None or advice.limits.tpot_s is not None
    return f"No gain in {BY[advice.metric]}{', or over a limit' if limited else ''}"


def _unused_rows(advice: Advice) -> list[dict[str, str]]:
    """Levers without a change; settings that are refused for the same reason share a row."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for unused in advice.unused:
        name, why = unused.setting or unused.lever, unused_text(unused, advice)
        alike = (unused.lever, re.sub(r"\d+", "", why))
        if alike in rows:
            rows[alike]["Setting"] += f", {name}"
        else:
            rows[alike] = {"Setting": name, "Why": why}
    return list(rows.values())


def ranking_title(advice: Advice) -> str:
    """What the ranked table holds."""
    by = f"by {BY[advice.metric]}"
    if not advice.base.fits:
        return f"What makes it fit, {by}"
    return f"What helps, {by}: change against now"


def combination_title(options: tuple[Option, ...]) -> str:
    """What a table of combinations holds."""
    return "The best pairs" if len(options[0].changes) == 2 else "The best triples"


def over_limit_line(advice: Advice) -> str:
    """Which limits the case misses as it is; empty for none."""
    missed = [name.upper() for name in advice.base.missed(advice.limits)]
    return f"Over the limit now: {' and '.join(missed)}." if missed else ""


def overflow_line(advice: Advice) -> str:
    """That the case can't be run as it is, and what it lacks."""
    memory = advice.base.estimate.memory
    return (
        f"Doesn't fit: needs {binary(advice.base.required_bytes)} of "
        f"{binary(memory.capacity_bytes)} per GPU for a batch of "
        f"{whole(advice.base.situation.workload.batch)}."
    )
