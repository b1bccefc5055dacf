"""Questions, and truths: questions whose answers were derived by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model as a question names it."""

    name: str
    hub: str
    """Its repository on the Hugging Face hub."""
    config: Mapping[str, Any]
    """What its ``config.json`` says, as far as counting needs it."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a calculator is asked."""

    kind: str
    """A key of `conformance.kinds.KINDS`, which says what is counted."""
    model: ModelFacts | None
    inputs: Mapping[str, Any]
    """The kind's other inputs, with those that were left out filled in."""

    def __getitem__(self, name: str) -> Any:
        return self.inputs[name]


@dataclass(frozen=True, slots=True)
class Truth:
    """A question whose answer was derived by hand."""

    id: str
    question: Question
    answer: int | float
    unit: str
    tolerance: float
    """How far an answer may be off, relative to the true one; 0: not at all."""
    derivation: str
    source: str

    def allows(self, answer: float) -> bool:
        """Whether ``answer`` is within the tolerance."""
        off = abs(Fraction(answer) - Fraction(self.answer))
        return off <= Fraction(self.tolerance) * abs(Fraction(self.answer))
