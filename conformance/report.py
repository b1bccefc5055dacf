"""What a run came to, as a table to read or a record for a script."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.run import VERDICTS, Outcome

WIDTH = 100
"""Columns of the text."""
TITLES = {"passed": "passes", "failed": "fails", "unsupported": "unsupported"}


def counts(outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """Outcomes of each verdict, by kind in the order in which kinds appear."""
    found: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.truth.question.kind, Counter())[outcome.verdict] += 1
    return {kind: {v: tally[v] for v in VERDICTS} for kind, tally in found.items()}


def record(outcomes: Sequence[Outcome], adapter: str) -> dict[str, Any]:
    """The run as one JSON object."""
    total = Counter(outcome.verdict for outcome in outcomes)
    return {
        "adapter": adapter,
        "truths": len(outcomes),
        **{verdict: total[verdict] for verdict in VERDICTS},
        "kinds": counts(outcomes),
        "failures": [_failure(o) for o in outcomes if o.verdict == "failed"],
    }


def _failure(outcome: Outcome) -> dict[str, Any]:
    truth, model = outcome.truth, outcome.truth.question.model
    return {
        "id": truth.id,
        "kind": truth.question.kind,
        "model": model.name if model else None,
        "inputs": dict(truth.question.inputs),
        "answer": truth.answer,
        "got": outcome.got,
        "problem": outcome.problem or None,
        "unit": truth.unit,
        "tolerance": truth.tolerance,
        "derivation": truth.derivation,
        "source": truth.source,
    }


def text(outcomes: Sequence[Outcome], adapter: str) -> str:
    """The run as a table by kind, and below it each failure with its derivation."""
    lines = [*_table(outcomes), ""]
    for outcome in outcomes:
        if outcome.verdict == "failed":
            lines += [*_shown(outcome), ""]
    total = Counter(outcome.verdict for outcome in outcomes)
    said = ", ".join(f"{total[verdict]} {verdict}" for verdict in VERDICTS)
    lines.append(f"{adapter}: {len(outcomes)} truths, {said}")
    return "\n".join(lines)


def _table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    by_kind = counts(outcomes)
    name = max(len(kind) for kind in ["kind", *by_kind])
    yield "  ".join(["kind".ljust(name), *TITLES.values()])
    for kind, tally in by_kind.items():
        cells = [str(tally[v] or "–").rjust(len(title)) for v, title in TITLES.items()]
        yield "  ".join([kind.ljust(name), *cells])


def _shown(outcome: Outcome) -> Iterator[str]:
    truth = outcome.truth
    yield f"{truth.id} ({truth.question.kind})"
    got = outcome.problem or f"{_number(outcome.got)} {truth.unit}{_ratio(outcome)}"
    yield f"  answer  {got}"
    yield f"  true    {_number(truth.answer)} {truth.unit}"
    for label, said in (("because", truth.derivation), ("source ", truth.source)):
        yield from textwrap.wrap(
            said, WIDTH, initial_indent=f"  {label} ", subsequent_indent=" " * 10
        )


def _number(value: float | None) -> str:
    whole = value is not None and value == int(value)
    return f"{value:,.0f}" if whole else f"{value:,.12g}"


def _ratio(outcome: Outcome) -> str:
    if outcome.got is None or outcome.truth.answer == 0:
        return ""
    return f" ({outcome.got / outcome.truth.answer:.6g} of the true one)"
