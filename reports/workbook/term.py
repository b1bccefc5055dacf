"""Arithmetic that writes itself down: a number together with the formula that gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from reports.workbook.cells import Formula

Number: TypeAlias = "int | float | Term"
SUM, PRODUCT, POWER, WHOLE = 1, 2, 3, 4
"""How tightly a term holds together: what is looser than its neighbour needs brackets."""


@dataclass(frozen=True, slots=True)
class Term:
    """A value and its formula.

    >>> m, n = Term("A1", 3), Term("B1", 4)
    >>> (2 * m * (n + 1)).text, (2 * m * (n + 1)).value
    ('2*A1*(B1+1)', 30)
    """

    text: str
    value: float
    holds: int = WHOLE

    def __add__(self, other: Number) -> Term:
        b = term(other)
        return Term(f"{self.text}+{b.text}", self.value + b.value, SUM)

    def __radd__(self, other: Number) -> Term:
        return term(other) + self

    def __sub__(self, other: Number) -> Term:
        b = term(other)
        return Term(f"{self.text}-{b.bracketed(PRODUCT)}", self.value - b.value, SUM)

    def __rsub__(self, other: Number) -> Term:
        return term(other) - self

    def __mul__(self, other: Number) -> Term:
        b = term(other)
        text = f"{self.bracketed(PRODUCT)}*{b.bracketed(PRODUCT)}"
        return Term(text, self.value * b.value, PRODUCT)

    def __rmul__(self, other: Number) -> Term:
        return term(other) * self

    def __truediv__(self, other: Number) -> Term:
        b = term(other)
        text = f"{self.bracketed(PRODUCT)}/{b.bracketed(POWER)}"
        return Term(text, self.value / b.value, PRODUCT)

    def __rtruediv__(self, other: Number) -> Term:
        return term(other) / self

    def __pow__(self, other: Number) -> Term:
        b = term(other)
        return Term(f"{self.bracketed(WHOLE)}^{b.bracketed(WHOLE)}", self.value**b.value, POWER)

    def bracketed(self, needed: int) -> str:
        """The text, in brackets where it is looser than ``needed``."""
        return self.text if self.holds >= needed else f"({self.text})"

    @property
    def formula(self) -> Formula:
        """For a cell."""
        return Formula(self.text, self.value)


def term(value: Number) -> Term:
    """A number as a term; one below zero holds together like a sum."""
    if isinstance(value, Term):
        return value
    whole = float(value).is_integer() and abs(value) < 1e15
    text = repr(int(value)) if whole else repr(float(value)).upper()
    return Term(text, value, WHOLE if value >= 0 else SUM)


def largest(*terms: Number) -> Term:
    """The largest of several."""
    made = [term(each) for each in terms]
    return Term(f"MAX({','.join(t.text for t in made)})", max(t.value for t in made))


def smallest(*terms: Number) -> Term:
    """The smallest of several."""
    made = [term(each) for each in terms]
    return Term(f"MIN({','.join(t.text for t in made)})", min(t.value for t in made))
