"""Requests of several kinds in one stream: each with its share, lengths and prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from math import fsum, isfinite

import numpy as np

from perfmodel.errors import InputError
from perfmodel.serving.lengths import BLOCK, Lengths
from perfmodel.serving.sequence import Prefix
from perfmodel.serving.shared_prefix import SharedPrefix

Drawn = tuple[int, int, int, Prefix]
"""A request as it is drawn: its part, prompt and output tokens, and prefix."""
CHOICE, APART = 4, 4
"""The stream of draws that chooses parts, and how far apart those of two parts lie."""


@dataclass(frozen=True, slots=True)
class Part:
    """Requests alike: their weight among all, their lengths, what their prompts share."""

    weight: float
    prompt: Lengths
    output: Lengths
    prefix: SharedPrefix | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "output"):
            object.__setattr__(self, name, Lengths.parse(getattr(self, name), name))
        if not (self.weight > 0 and isfinite(self.weight)):
            raise InputError(f"weight: must be above 0 (got {self.weight})")

    def stream(
        self, generator: Callable[[int], np.random.Generator], which: int
    ) -> Iterator[tuple[int, int, Prefix]]:
        """Prompts, outputs and prefixes without end, each from draws of its own."""
        first = APART * which
        prefixes: Iterator[Prefix] = repeat(())
        if self.prefix is not None:
            prefixes = self.prefix.stream(generator(first + 3))
        return zip(
            self.prompt.stream(generator(first + 1)),
            self.output.stream(generator(first + 2)),
            prefixes,
            strict=False,
        )


def drawn(
    parts: tuple[Part, ...], generator: Callable[[int], np.random.Generator]
) -> Iterator[Drawn]:
    """Requests without end; ``generator`` makes the stream of draws of a number.

    Which part comes next depends on the weights alone, and a part's lengths on how many of it came
    before: another rate meets the same requests.
    """
    streams = [part.stream(generator, which) for which, part in enumerate(parts)]
    for which in _choices(parts, generator):
        prompt, output, prefix = next(streams[which])
        yield which, prompt, output, prefix


def _choices(
    parts: tuple[Part, ...], generator: Callable[[int], np.random.Generator]
) -> Iterable[int]:
    if len(parts) == 1:
        yield from repeat(0)
    whole = fsum(part.weight for part in parts)
    shares = np.array([part.weight / whole for part in parts])
    choice = generator(CHOICE)
    while True:
        yield from choice.choice(len(parts), BLOCK, p=shares).tolist()
