"""The settings of a sweep by number: deployments outside, batch, prompt and output inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.operators.quantity import Array
from perfmodel.planning.sweep.bounds import Bounds
from perfmodel.planning.sweep.fast import Extent
from perfmodel.planning.sweep.places import distinct
from perfmodel.specs.sweep import INNER, SweepSpec
from perfmodel.specs.workload import Workload

MOST = 10**12
"""Settings of a sweep; more is a typing error."""


@dataclass(frozen=True, slots=True)
class Loads:
    """Settings of one deployment: flat arrays of one length."""

    setting: NDArray[np.int64]
    """Their numbers in the sweep."""
    batch: Array
    prompt: Array
    output: Array

    def at(self, flags: Any) -> Loads:
        """Some of them."""
        return Loads(self.setting[flags], self.batch[flags], self.prompt[flags], self.output[flags])


class Grid:
    """All combinations of a sweep's values, numbered with the last axis the fastest.

    Raises:
        InputError: more settings than anybody waits for.
    """

    def __init__(self, spec: SweepSpec) -> None:
        self.spec = spec
        self._outer = [(name, values) for name, values in spec.axes if name not in INNER]
        self.by_context = bool(spec.values("context"))
        second = "context" if self.by_context else "prompt"
        self._inner = [_numbers(spec, name) for name in ("batch", second, "output")]
        self.per_deployment = prod(len(values) for values in self._inner)
        self.deployments = prod(len(values) for _, values in self._outer)
        self.settings = self.deployments * self.per_deployment
        if self.settings > MOST:
            raise InputError(f"sweep: {self.settings:.1e} settings; at most {MOST:.0e} are swept")

    @property
    def longest(self) -> int:
        """The largest sum of prompt and output."""
        _, second, outputs = self._inner
        return int(second.max() + (0 if self.by_context else outputs.max()))

    def deployment(self, number: int) -> Mapping[str, Any]:
        """The values of the outer axes of the deployment with that number."""
        found: dict[str, Any] = {}
        for name, values in reversed(self._outer):
            number, place = divmod(number, len(values))
            found[name] = values[place]
        return dict(reversed(found.items()))

    def within(self, start: int, stop: int) -> Iterator[tuple[int, Loads]]:
        """Settings from ``start`` to before ``stop``, by deployment."""
        while start < stop:
            number, first = divmod(start, self.per_deployment)
            last = min(first + stop - start, self.per_deployment)
            yield number, self._loads(start, first, last)
            start += last - first

    def _loads(self, setting: int, first: int, last: int) -> Loads:
        batches, second, outputs = self._inner
        at = np.arange(first, last)
        rest, o = np.divmod(at, len(outputs))
        b, p = np.divmod(rest, len(second))
        output = outputs[o]
        prompt = second[p] - output if self.by_context else second[p]
        numbers = setting + np.arange(last - first)
        return Loads(numbers, batches[b], prompt, output)

    def extent(self, bounds: Bounds) -> Extent:
        """What the settings within the bounds ask for of one deployment; empty where none is."""
        batches, second, outputs = self._inner
        batches = batches[bounds.batches(batches)]
        most = np.full(len(second), batches.max(initial=0))
        prompt = length = np.empty(0)
        for output in outputs:
            asked = second - output if self.by_context else second
            out = np.full(len(asked), output)
            kept = asked[bounds.kept(most, asked, out)]
            prompt = distinct(np.concatenate([prompt, kept]))
            length = distinct(np.concatenate([length, kept + output]))
        if not len(prompt):
            return Extent(np.empty(0), prompt, length)
        sequences = distinct(np.ceil(batches / bounds.dp))
        return Extent(sequences, prompt - bounds.cached, length)


def _numbers(spec: SweepSpec, name: str) -> Array:
    values = spec.values(name) or (getattr(Workload(), name),)
    return np.asarray(values, dtype=np.float64)
