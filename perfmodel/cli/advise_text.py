"""Ratios, settings and reasons of an advice in words."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfmodel.cli.text import binary, digits, percent, seconds, whole
from perfmodel.planning.advice import Advice, Unused
from perfmodel.planning.gain import Ratio
from perfmodel.planning.options import NOTICEABLE, Option
from perfmodel.planning.outcome import Bottleneck, Metric, Outcome

NAMES: dict[Metric, str] = {
    "ttft": "TTFT", "tpot": "TPOT", "throughput": "Tokens/s", "memory": "Memory", "cost": "Cost",
}  # fmt: skip
"""Headings of the metrics."""
LARGE = 9.95
"""Per cent from which no decimal is shown."""
FACTOR = 2.0
"""From twice as much on, a change is said as a factor."""


def change_text(ratio: Ratio | float | None) -> str:
    """A ratio as a change.

    >>> change_text(0.62), change_text(1.004), change_text(1.58), change_text(37.7)
    ('−38 %', '+0.4 %', '+58 %', '×37.7')
    >>> change_text(1.0), change_text(None)
    ('0 %', '–')
    """
    value = ratio.value if isinstance(ratio, Ratio) else ratio
    if value is None or not math.isfinite(value):
        return "–"
    if value >= FACTOR:
        return f"×{digits(value)}"
    moved = round(100 * (value - 1), 1)
    if not moved:
        return "0 %"
    size = f"{abs(moved):.0f}" if abs(moved) >= LARGE else f"{abs(moved):.1f}"
    return f"{'+' if moved > 0 else '−'}{size} %"


def interval_text(ratio: Ratio | None) -> str:
    """The ends of a ratio's interval, both as changes or both as factors.

    >>> interval_text(Ratio(0.62, 0.55, 0.7)), interval_text(Ratio(3, 1.5, 5.25))
    ('−45 % to −30 %', '×1.50 to ×5.25')
    """
    if ratio is None:
        return "–"
    if ratio.low == ratio.high:
        return "exact"
    if ratio.high >= FACTOR:
        return f"×{digits(ratio.low)} to ×{digits(ratio.high)}"
    return f"{change_text(ratio.low)} to {change_text(ratio.high)}"


def usd_text(ends: tuple[float, float] | None) -> str:
    """USD per million tokens at both ends of the rent.

    >>> usd_text((0.6181, 1.5453)), usd_text(None)
    ('0.618 to 1.55', '–')
    """
    return "–" if ends is None else f"{digits(ends[0])} to {digits(ends[1])}"


def absolute_text(outcome: Outcome, metric: Metric) -> str:
    """A quantity of a setting with its unit."""
    shown = {
        "ttft": lambda: seconds(outcome.ttft_s),
        "tpot": lambda: seconds(outcome.tpot_s),
        "throughput": lambda: digits(outcome.tokens_per_s),
        "memory": lambda: binary(outcome.required_bytes),
        "cost": lambda: usd_text(outcome.usd_per_million_tokens),
    }
    return shown[metric]()


def limit_text(found: Bottleneck) -> str:
    """What limits next: ``attention 54 % (memory)``."""
    return f"{found.operator} {percent(found.share)} ({found.bound})"


def largest_text(outcome: Outcome | None) -> str:
    """The largest batch and its throughput: ``329: 5,774/s``."""
    if outcome is None:
        return "–"
    return f"{whole(outcome.situation.workload.batch)}: {digits(outcome.tokens_per_s)}/s"


def price_text(option: Option) -> str:
    """What an option costs beside time, and what its numbers rest on."""
    remarks = [change.remark for change in option.changes if change.remark]
    if option.gains.unlike:
        remarks.append("assumed shares price one side of the comparison")
    return "; ".join(part for part in (option.price, *remarks) if part) or "nothing"


def _moved(option: Option, metrics: tuple[Metric, ...]) -> Iterator[str]:
    for metric in metrics:
        ratio = option.gains.of(metric)
        if ratio is not None and abs(ratio.value - 1) >= NOTICEABLE:
            yield f"{NAMES[metric]} {change_text(ratio)}"


def _needs(outcome: Outcome) -> str:
    memory = outcome.estimate.memory
    return f"needs {binary(outcome.required_bytes)} of {binary(memory.capacity_bytes)} per GPU"


def _missed(option: Option, advice: Advice) -> Iterator[str]:
    outcome, limits = option.outcome, advice.limits
    for name in outcome.missed(limits):
        value, limit = (
            (outcome.ttft_s, limits.ttft_s) if name == "ttft" else (outcome.tpot_s, limits.tpot_s)
        )
        yield f"{name.upper()} {seconds(value)} is over the limit of {seconds(limit)}"


def reason_text(option: Option, advice: Advice) -> str:
    """Why an option isn't in the ranking: what it does instead."""
    if not option.outcome.fits:
        return f"doesn't fit: {_needs(option.outcome)}"
    missed = list(_missed(option, advice))
    if missed:
        return "; ".join(missed)
    metric = advice.metric
    own = option.gains.of(metric)
    said = [f"{NAMES[metric]} {change_text(own)}", *_elsewhere(option, advice)]
    if option.alters_nothing():
        share = option.gains.touched.before
        said.append(f"alters {percent(share)} of the time" if share else "alters no operator")
    remarks = [change.remark for change in option.changes if change.remark]
    return "; ".join([*said, *remarks])


def _elsewhere(option: Option, advice: Advice) -> list[str]:
    """What else moves, the throughput of the largest batch included."""
    rest: tuple[Metric, ...] = tuple(name for name in NAMES if name != advice.metric)
    found = list(_moved(option, rest))
    before, after = advice.base_largest, option.largest
    if before is not None and after is not None and not option.changes[0].grows:
        ratio = after.tokens_per_s / before.tokens_per_s
        if abs(ratio - 1) >= NOTICEABLE:
            found.append(f"largest batch Tokens/s {change_text(ratio)}")
    return found


def unused_text(unused: Unused, advice: Advice) -> str:
    """Why a lever has nothing to change; what it gains now where it is on already."""
    if unused.without is None or not advice.base.fits:
        return unused.reason
    return f"{unused.reason}; {_loss(unused.without)}"


def _loss(without: Option) -> str:
    """What taking a lever away does."""
    setting = without.setting
    if without.gains.unlike:
        return f"{setting}: priced by assumed shares, no fair comparison"
    moved = list(_moved(without, ("ttft", "tpot", "throughput", "memory")))
    if not without.outcome.fits:
        moved.append("doesn't fit")
    return f"{setting}: {', '.join(moved) if moved else 'the same times'}"
