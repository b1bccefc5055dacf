"""Lengths of prompts and outputs: one number, or a distribution written as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, repeat
from math import exp, isfinite
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.specs.plain_numbers import typed_float, typed_int
from perfmodel.specs.workload import LARGEST

BLOCK = 4096
"""Lengths that are drawn at once: one by one, drawing costs more than simulating."""
FORMS: dict[str, tuple[str, ...]] = {
    "uniform": ("LOW", "HIGH"),
    "normal": ("MEAN", "DEVIATION"),
    "lognormal": ("MEAN", "SIGMA"),
    "exponential": ("MEAN",),
}
"""Distributions and their parameters; all but ``uniform`` take one more, the longest length."""
KNOWN = (
    "a whole number such as 1024, uniform:LOW:HIGH, normal:MEAN:DEVIATION[:MAX], "
    "lognormal:MEAN:SIGMA[:MAX] or exponential:MEAN[:MAX]"
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts or of outputs: whole numbers, at least 1.

    ``uniform`` includes both ends. The others are rounded and clipped to 1 … MAX. ``lognormal``
    takes the mean of the lengths themselves (before clipping) and the standard deviation of their
    natural logarithm.
    """

    kind: str
    values: tuple[float, ...]

    @classmethod
    def parse(cls, text: str | int | Lengths, name: str) -> Lengths:
        """Read ``1024`` or, say, ``uniform:800:1200``; ``name`` is the flag or field, for errors.

        Raises:
            InputError: naming the text and the forms that are known.
        """
        if isinstance(text, Lengths):
            return text
        kind, *rest = str(text).strip().split(":")
        if not rest:
            return cls("constant", (_whole(kind, name, str(text)),))
        if kind not in FORMS:
            raise InputError(f"{name}: unknown form {str(text)[:60]!r}; write {KNOWN}")
        fixed = len(FORMS[kind])
        if not fixed <= len(rest) <= fixed + (kind != "uniform"):
            many = "1 value" if len(rest) == 1 else f"{len(rest)} values"
            raise InputError(f"{name}: {str(text)[:60]!r} has {many}; write {KNOWN}")
        values: list[float]
        if kind == "uniform":
            values = [_whole(value, name, str(text)) for value in rest]
        else:
            values = [_number(value, name, str(text)) for value in rest[:fixed]]
            values += [_whole(value, name, str(text)) for value in rest[fixed:]]
        made = cls(kind, tuple(values))
        made._check(name)
        return made

    def _check(self, name: str) -> None:
        kind, values = self.kind, self.values
        if kind == "uniform" and values[0] > values[1]:
            raise InputError(f"{name}: {self.spec}: the first length is above the second: swap")
        if kind != "uniform" and not 1 <= values[0] <= LARGEST:
            raise InputError(f"{name}: {self.spec}: the mean must lie in 1 … {LARGEST:,}")
        if kind in {"normal", "lognormal"} and not 0 <= values[1] <= LARGEST:
            raise InputError(f"{name}: {self.spec}: the spread must not be negative or enormous")

    @property
    def spec(self) -> str:
        """The text that gives the same lengths again."""
        numbers = [f"{value:.15g}" for value in self.values]
        return ":".join(numbers if self.kind == "constant" else [self.kind, *numbers])

    @property
    def longest(self) -> int | None:
        """The longest length that may be drawn; None where the distribution has no end."""
        bounded = self.kind in {"constant", "uniform"} or len(self.values) > len(FORMS[self.kind])
        return int(self.values[-1]) if bounded else None

    @property
    def mean(self) -> float:
        """The mean length, before rounding and clipping."""
        if self.kind == "uniform":
            return (self.values[0] + self.values[1]) / 2
        return self.values[0]

    def quantiles(self, count: int) -> NDArray[np.float64]:
        """The lengths at ``count`` shares evenly within (0, 1), in order: for means over them."""
        shares = (np.arange(count) + 0.5) / count
        kind, values = self.kind, self.values
        if kind == "constant":
            return np.full(count, float(values[0]))
        if kind == "uniform":
            low, high = values
            return low + shares * (high - low)
        mean = values[0]
        if kind == "exponential":
            lengths = -mean * np.log1p(-shares)
        else:
            normal = np.array([NormalDist().inv_cdf(share) for share in shares.tolist()])
            if kind == "normal":
                lengths = mean + values[1] * normal
            else:
                lengths = mean * np.exp(values[1] * normal - values[1] ** 2 / 2)
        longest = float(self.longest or LARGEST)
        return np.clip(lengths, 1.0, longest)

    def draw(self, generator: np.random.Generator, number: int) -> list[int]:
        """``number`` lengths."""
        kind, values = self.kind, self.values
        if kind == "constant":
            return [int(values[0])] * number
        if kind == "uniform":
            whole = generator.integers(int(values[0]), int(values[1]), number, endpoint=True)
            return [int(value) for value in whole.tolist()]
        mean = values[0]
        if kind == "normal":
            drawn = generator.normal(mean, values[1], number)
        elif kind == "lognormal":
            # E[exp(N(0, σ²))] = exp(σ²/2)
            drawn = generator.lognormal(0.0, values[1], number) * (
                mean * exp(-(values[1] ** 2) / 2)
            )
        else:
            drawn = generator.exponential(mean, number)
        clipped = np.clip(np.rint(drawn), 1, self.longest or LARGEST)
        return [int(value) for value in clipped.tolist()]

    def stream(self, generator: np.random.Generator) -> Iterator[int]:
        """Lengths without end."""
        if self.kind == "constant":
            return repeat(int(self.values[0]))
        return chain.from_iterable(self.draw(generator, BLOCK) for _ in count())


def _place(text: str, whole: str) -> str:
    """A value, and what it is part of where that is more."""
    return f"{text[:40]!r}" if text == whole else f"{text[:40]!r} in {whole[:60]!r}"


def _whole(text: str, name: str, whole: str) -> int:
    try:
        value = typed_int(text)
    except ValueError:
        raise InputError(
            f"{name}: {_place(text, whole)} is no whole number; write {KNOWN}"
        ) from None
    if not 1 <= value <= LARGEST:
        raise InputError(f"{name}: {text[:40]} tokens: a length must lie in 1 … {LARGEST:,}")
    return value


def _number(text: str, name: str, whole: str) -> float:
    try:
        value = typed_float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise InputError(f"{name}: {_place(text, whole)} is no number; write {KNOWN}")
    return value
