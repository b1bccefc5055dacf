"""Asks a calculator for every truth and compares."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

from conformance.adapter import Ask
from conformance.errors import one_line
from conformance.truth import Truth

Verdict = Literal["passed", "failed", "unsupported"]
VERDICTS: tuple[Verdict, ...] = ("passed", "failed", "unsupported")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a calculator made of one truth."""

    truth: Truth
    verdict: Verdict
    got: float | None
    problem: str = ""
    """Why there is no number to compare, where there is none."""


def run(truths: Iterable[Truth], ask: Ask) -> list[Outcome]:
    """The outcome of each truth, in their order. What the calculator raises is a failure."""
    return [_outcome(truth, ask) for truth in truths]


def _outcome(truth: Truth, ask: Ask) -> Outcome:
    try:
        got: Any = ask(truth.question)
    except Exception as error:  # a stranger's code: whatever it raises is its answer
        return Outcome(truth, "failed", None, f"raised {type(error).__name__}: {one_line(error)}")
    if got is None:
        return Outcome(truth, "unsupported", None)
    if isinstance(got, bool) or not isinstance(got, Real):
        return Outcome(truth, "failed", None, f"{one_line(repr(got), 60)} is no number")
    number = int(got) if isinstance(got, Integral) else float(got)
    if not math.isfinite(number):
        return Outcome(truth, "failed", None, f"{number} is no answer")
    return Outcome(truth, "passed" if truth.allows(number) else "failed", number)
