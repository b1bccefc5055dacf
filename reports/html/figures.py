"""The figures of every setting as text: latency, throughput, cost, memory, what limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

from perfmodel.planning.outcome import usd_per_million_tokens
from perfmodel.specs.workload import LARGEST
from perfmodel.text import binary, digits, percent, seconds, whole
from reports.html.columns import NONE, Columns, share_width
from reports.html.grid import Grid

SHOWN: dict[str, Callable[[Any], str]] = {
    "ttft_s": seconds, "tpot_s": seconds, "total_s": seconds,
    "output_tokens_per_s": lambda rate: digits(float(rate)),
}  # fmt: skip
"""How the quantities with an interval are written."""
PARTS = ("weights", "kv", "activation", "reserved")
"""Parts of the memory."""
LIMITS = {
    "compute": "arithmetic",
    "memory": "memory bandwidth",
    "network": "exchanges between GPUs",
    "launch": "starting kernels and the host",
}
"""What a bound means in words."""


def usd(ends: tuple[float, float]) -> str:
    """Both ends of a cost.

    >>> usd((0.6181, 1.5453)), usd((2.0, 2.0))
    ('0.618 – 1.55', '2.00')
    """
    low, high = (digits(end) for end in ends)
    return low if low == high else f"{low} – {high}"


def context_text(tokens: float) -> str:
    """The longest context as people read it."""
    if tokens >= LARGEST:
        return "any"
    return f"{whole(tokens)} tokens" if tokens else "none"


def latency_columns(grid: Grid, *, uncertain: bool) -> Columns:
    """Latencies and throughput with their intervals; nothing where the batch doesn't fit."""
    fits = grid.fits()
    columns: Columns = {}
    for name, shown in SHOWN.items():
        columns[name] = _where(fits, [shown(v) for v in grid.values(attrgetter(name))])
        if uncertain:
            low, high = grid.interval(name)
            ends = [_between(shown(a), shown(b)) for a, b in zip(low, high, strict=True)]
            columns[f"{name}_interval"] = _where(fits, ends)
    return columns


def _between(low: str, high: str) -> str:
    return NONE if NONE in {low, high} else f"{low} – {high}"


def _where(fits: Any, texts: list[str]) -> list[str]:
    return [text if fit else NONE for fit, text in zip(fits, texts, strict=True)]


def cost_columns(grid: Grid) -> Columns:
    """USD per million output tokens; no column without a price."""
    if grid.parts[0].roofline.estimate.hardware.price is None:
        return {}
    ends = grid.pairs(lambda e: usd_per_million_tokens(e) or (math.nan, math.nan))
    return {"cost": _where(grid.fits(), [usd(pair) for pair in zip(*ends, strict=True)])}


def memory_columns(grid: Grid) -> Columns:
    """Each part of the memory, its width in the bar, and what more would fit."""
    memory = {
        name: grid.values(attrgetter(f"memory.{name}"))
        for name in (*(f"{part}_bytes" for part in PARTS), "required_bytes", "max_sequences",
                     "max_context")
    }  # fmt: skip
    fits = grid.fits()
    capacity = float(grid.parts[0].roofline.estimate.memory.capacity_bytes)
    scale = np.maximum(memory["required_bytes"], capacity)
    columns: Columns = {
        "required": [binary(b) for b in memory["required_bytes"]],
        "free": [binary(max(0.0, capacity - b)) for b in memory["required_bytes"]],
        "capacity_width": [share_width(capacity / s) for s in scale],
        "used": [percent(b / capacity) for b in memory["required_bytes"]],
        "fits": ["yes" if fit else "no" for fit in fits],
        "max_sequences": [whole(float(n)) for n in memory["max_sequences"]],
        "max_context": [context_text(float(n)) for n in memory["max_context"]],
    }
    for part in PARTS:
        values = memory[f"{part}_bytes"]
        columns[part] = [binary(b) for b in values]
        columns[f"{part}_width"] = [share_width(b / s) for b, s in zip(values, scale, strict=True)]
    return columns


def limit_columns(grid: Grid) -> Columns:
    """What limits each phase."""
    fits = grid.fits()
    columns: Columns = {}
    for phase in ("prefill", "decode"):
        bounds = grid.values(attrgetter(f"{phase}.cost.total.bound"))
        columns[f"{phase}_limit"] = _where(fits, [LIMITS[str(bound)] for bound in bounds])
    return columns


def said_columns(grid: Grid, columns: Columns, *, cost: bool) -> Columns:
    """One sentence for each setting: what a screen reader hears when a slider has moved."""
    said = []
    for setting, fits in enumerate(grid.fits()):
        batch, prompt = grid.at(setting)
        case = f"Batch {whole(batch)}, prompt {whole(prompt)}: "
        if not fits:
            said.append(f"{case}doesn’t fit, it needs {columns['required'][setting]}.")
            continue
        parts = [f"first token after {columns['ttft_s'][setting]}"]
        if columns["tpot_s"][setting] != NONE:
            parts.append(f"then one every {columns['tpot_s'][setting]}")
        parts.append(f"{columns['output_tokens_per_s'][setting]} output tokens per second")
        if cost:
            parts.append(f"{columns['cost'][setting]} USD per million output tokens")
        said.append(f"{case}{'; '.join(parts)}.")
    short = [
        "" if fits else f"doesn’t fit, it needs {needed} per GPU"
        for fits, needed in zip(grid.fits(), columns["required"], strict=True)
    ]
    cases = [_case(grid, setting) for setting in range(grid.size)]
    return {"said": said, "case": cases, "misfit": short}


def _case(grid: Grid, setting: int) -> str:
    batch, prompt = grid.at(setting)
    return f"batch {whole(batch)}, prompt {whole(prompt)}"


def figure_columns(grid: Grid, *, uncertain: bool) -> Columns:
    """All of them."""
    cost = cost_columns(grid)
    columns = latency_columns(grid, uncertain=uncertain) | cost
    columns |= memory_columns(grid) | limit_columns(grid)
    columns["batch"] = [whole(grid.at(setting)[0]) for setting in range(grid.size)]
    columns["prompt"] = [whole(grid.at(setting)[1]) for setting in range(grid.size)]
    return columns | said_columns(grid, columns, cost=bool(cost))
