"""docs/served-published.md: errors by source, deployment and load, causes, what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from calibrate.published.served_causes import CAUSES
from calibrate.published.served_run import Found
from calibrate.score import Score, score
from perfmodel.serving.lengths import Lengths

QUANTITIES = ("throughput", "ttft", "tpot")
Name = Callable[[Found], tuple[str, ...]]

HEADER = """# Served loads of the published table: measured and simulated

Written by `python -m calibrate.published.served --out docs/served-published.md`; don't edit.
{mapped} of {rows} published rows that were measured under load (everything at once, closed loops,
rates) are simulated; the others are counted below with their reasons. Static batches:
[validation.md](validation.md); the table of serving points:
[serving-validation.md](serving-validation.md).

How to read: errors are predicted/measured − 1 in %: **median / 90th percentile of the absolute
error (bias)**, the bias being the median of the signed error. Throughput is output tokens per
second of the whole deployment over the whole run, filling and draining included: a positive bias
is too fast. TTFT includes queueing; TPOT leaves the first token out: a positive bias is too slow.

Presets as shipped; no number was fitted on these rows. Settings are those of the rows' notes and of
the sources' own pages (`calibrate/published/served_settings.py`). "Maximum throughput" is all
requests at once; experts are as skewed as in serving-validation.md, an exponent that was chosen on
other rows.

Not blind: that `trtllm-bench` sizes its steps by what the cache holds and captures large batches,
how long ShareGPT's answers can be, which rows found their prompts in the cache, and that the 0.14
rows use the preset of 2025 and not the one fitted on static batches of 2023 were looked up or
decided after a first comparison.
"""


def cell(found: Score) -> str:
    """Median / 90th percentile and bias."""
    return f"{found.median:.1f} / {found.p90:.0f} ({found.bias:+.0f})" if found.rows else "–"


def score_of(found: Sequence[Found], quantity: str) -> Score:
    """Errors of one quantity, of rows that have a prediction."""
    here = [f for f in found if f.load.quantity == quantity and not f.reason]
    ours = np.asarray([f.predicted for f in here], dtype=float)
    return score(ours, np.asarray([f.load.measured for f in here], dtype=float))


def groups(found: Sequence[Found], name: Name) -> dict[tuple[str, ...], list[Found]]:
    """Rows that have a prediction by name, sorted."""
    made: dict[tuple[str, ...], list[Found]] = {}
    for item in sorted((f for f in found if not f.reason), key=name):
        made.setdefault(name(item), []).append(item)
    return made


def table(found: Sequence[Found], head: Sequence[str], name: Name) -> Iterator[str]:
    """Lines of a table of errors by ``name``."""
    yield f"| {' | '.join(head)} | rows | throughput | TTFT | TPOT |"
    yield "|" + "---|" * len(head) + "--:|---|---|---|"
    for key, here in groups(found, name).items():
        cells = (cell(score_of(here, quantity)) for quantity in QUANTITIES)
        yield f"| {' | '.join(key)} | {len(here)} | {' | '.join(cells)} |"


def by_source(found: Found) -> tuple[str, ...]:
    """Source and engine."""
    return found.load.source, found.load.engine


def by_deployment(found: Found) -> tuple[str, ...]:
    """What ran where."""
    load = found.load
    return load.source, load.engine, load.model, load.hardware, load.deployment.weights


def by_load(found: Found) -> tuple[str, ...]:
    """Source and mean lengths."""
    demand = found.load.demand
    return found.load.source, f"{_size(demand.prompt)} in, {_size(demand.output)} out"


def _size(lengths: Lengths) -> str:
    mean = lengths.quantiles(256).mean()
    return "short" if mean < 64 else "medium" if mean < 1024 else "long"


def by_kind(found: Found) -> tuple[str, ...]:
    """Dense or experts."""
    return (found.load.kind,)


def reasons(found: Sequence[Found], refused: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Rows without a prediction by source and reason: refused ones, and what can't be served."""
    counted = Counter(refused)
    counted.update((f.load.source, short(f.reason)) for f in found if f.reason)
    return counted


def short(reason: str) -> str:
    """What the simulator refused, without this deployment's numbers and remedies."""
    if "no room for a KV cache" in reason:
        return "no room for a KV cache by our count of memory"
    if "can never be served" in reason:
        return "a request that by our count of memory can never be served"
    return reason.split(";", maxsplit=1)[0]


def report(found: Sequence[Found], refused: Counter[tuple[str, str]]) -> str:
    """The whole page in Markdown."""
    counted = reasons(found, refused)
    mapped = sum(not f.reason for f in found)
    left = sum(counted.values())
    lines = [
        HEADER.format(mapped=mapped, rows=mapped + left),
        "## By source", "", *table(found, ("source", "engine"), by_source), "",
        "All sources: " + ", ".join(
            f"{quantity} {cell(score_of(found, quantity))}" for quantity in QUANTITIES
        ) + ".", "",
        *table(found, ("layers",), by_kind), "",
        "## Causes of large misses", "",
        *(f"- **{name}**: {why}" for name, why in CAUSES.items()), "",
        "## By lengths", "",
        "Mean tokens of prompts and outputs: short under 64, long from 1,024.", "",
        *table(found, ("source", "lengths"), by_load), "",
        "## By deployment", "",
        *table(found, ("source", "engine", "model", "hardware", "weights"), by_deployment), "",
        "## Left out", "", f"{left} rows, none silently.", "",
        "| source | rows | reason |", "|---|--:|---|",
        *(f"| {source} | {n} | {why} |" for (source, why), n in sorted(counted.items())),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"
