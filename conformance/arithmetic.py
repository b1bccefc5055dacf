"""Evaluates derivations: exact arithmetic over plain numbers, with words as labels.

Labels are for the reader: words after a number or a closing bracket, and nothing else.

>>> evaluate("2 · 8 KV heads · 128 · 32 layers · 2 B")
Fraction(131072, 1)
>>> evaluate("8 experts · (1 − (1 − 2 / 8)^4)")
Fraction(175, 32)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from conformance.errors import ConformanceError

LONGEST = 4000
"""Characters of a derivation."""
DEEPEST = 50
"""Brackets within brackets."""
LARGEST_POWER = 10_000
"""An exponent beyond this is a slip of the pen, and would take long."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)(?![\w.])|(?P<word>[A-Za-z]\w*)|(?P<sign>[-+−·*×/÷^(),]))"
)
_PRODUCTS = {"·": "*", "*": "*", "×": "*", "/": "/", "÷": "/"}
_SUMS = {"+": 1, "-": -1, "−": -1}
_FUNCTIONS: dict[str, Callable[..., Fraction]] = {
    "min": min,
    "max": max,
    "ceil": lambda x: Fraction(math.ceil(x)),
    "floor": lambda x: Fraction(math.floor(x)),
}
_ARGUMENTS = {"min": 2, "max": 2, "ceil": 1, "floor": 1}


class _Token(NamedTuple):
    kind: str
    text: str


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None or match.lastgroup is None:
            raise ConformanceError(f"can't be read from {stripped[at : at + 20]!r} on")
        found.append(_Token(match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


class _Reader:
    """Recursive descent: sum, product, power, value."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _Token("end", "its end")

    def take(self) -> _Token:
        token = self.next
        self.at += 1
        return token

    def expect(self, sign: str) -> None:
        if self.next.text != sign:
            raise ConformanceError(f"{sign!r} is missing before {self.next.text!r}")
        self.at += 1

    def sum(self) -> Fraction:
        value = self.product()
        while self.next.text in _SUMS:
            value += _SUMS[self.take().text] * self.product()
        return value

    def product(self) -> Fraction:
        value = self.power()
        while self.next.text in _PRODUCTS:
            if _PRODUCTS[self.take().text] == "*":
                value *= self.power()
                continue
            divisor = self.power()
            if divisor == 0:
                raise ConformanceError("divides by zero")
            value /= divisor
        return value

    def power(self) -> Fraction:
        value = self.value()
        if self.next.text != "^":
            return value
        self.take()
        exponent = self.value()
        if exponent.denominator != 1 or not 0 <= exponent <= LARGEST_POWER:
            raise ConformanceError(f"an exponent must be whole, from 0 to {LARGEST_POWER}")
        return value ** int(exponent)

    def value(self) -> Fraction:
        token = self.take()
        if token.kind == "number":
            value = Fraction(token.text)
        elif token.text == "(":
            (value,) = self.bracket(1)
        elif token.kind == "word" and token.text in _FUNCTIONS:
            self.expect("(")
            value = _FUNCTIONS[token.text](*self.bracket(_ARGUMENTS[token.text]))
        else:
            raise ConformanceError(f"a number is missing before {token.text!r}")
        while self.next.kind == "word":
            self.take()
        return value

    def bracket(self, parts: int) -> list[Fraction]:
        """What stands between brackets, the opening one taken."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise ConformanceError(f"brackets are nested more than {DEEPEST} deep")
        values = [self.sum()]
        while len(values) < parts:
            self.expect(",")
            values.append(self.sum())
        self.expect(")")
        self.depth -= 1
        return values


def evaluate(text: str) -> Fraction:
    """The exact value of ``text``.

    Numbers are digits with or without a decimal point; ``+ − - · * × / ÷ ^`` and brackets mean what
    they mean on paper (``^`` binds tightest and takes one number or bracket), ``min``, ``max``,
    ``ceil`` and ``floor`` are known.

    Raises:
        ConformanceError: anything else, with what stands there.
    """
    if len(text) > LONGEST:
        raise ConformanceError(f"is longer than {LONGEST} characters")
    reader = _Reader(_tokens(text))
    value = reader.sum()
    if reader.next.kind != "end":
        raise ConformanceError(f"an operator is missing before {reader.next.text!r}")
    return value
