"""What prompts have in common: one of several texts that they begin with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InputError
from perfmodel.serving.lengths import BLOCK
from perfmodel.serving.sequence import Prefix
from perfmodel.specs.workload import LARGEST


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Prompts begin with one of ``count`` texts of ``tokens`` tokens, each as likely.

    The tokens are part of the prompt's length; a shorter prompt lies within its prefix. Prefixes of
    another ``name`` hold other tokens.
    """

    tokens: int
    count: int = 1
    name: str = "prefix"

    def __post_init__(self) -> None:
        whole_number("--prefix-tokens", self.tokens, 1, LARGEST)
        whole_number("--prefix-count", self.count, 1, LARGEST)

    def stream(self, generator: np.random.Generator) -> Iterator[Prefix]:
        """Prefixes without end."""
        parts: list[Prefix] = []
        while True:
            for which in generator.integers(0, self.count, BLOCK).tolist():
                while which >= len(parts):
                    parts.append(((f"{self.name}-{len(parts)}", self.tokens),))
                yield parts[which]


def whole_number(name: str, value: float, low: int, high: int) -> None:
    """Refuse a ``value`` that is no whole number within a range.

    Raises:
        InputError: names the flag.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name}: a whole number from {low} to {high:,} is needed (got {value!r})")
