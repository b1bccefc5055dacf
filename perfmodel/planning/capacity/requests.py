"""Traffic as a stream of requests for the simulator, and what each class of them sees."""

from __future__ import annotations

from functools import cache
from math import ceil, fsum
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.errors import InputError
from perfmodel.planning.capacity.sizing import Seen
from perfmodel.serving.arrivals import Demand, OpenLoop
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.mix import Part
from perfmodel.serving.shared_prefix import SharedPrefix

if TYPE_CHECKING:
    from perfmodel.serving.sequence import Sequence
    from perfmodel.specs.traffic import RequestClass, Traffic

QUANTILES = 2000
"""By which a mean is taken: within 0.5 % for a lognormal of σ = 1."""


def parts_of(traffic: Traffic, where: str = "traffic") -> tuple[Part, ...]:
    """The classes of ``traffic`` as parts of a mix; ``where`` names it in errors.

    Raises:
        InputError: a length that can't be read, a prefix longer than its prompt, two classes of
            one name.
    """
    names = [c.name for c in traffic.classes]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError(
                f"{where}: classes.{index}.name: {name[:40]!r} is another class's too: rename one"
            )
    return tuple(_part(c, i, where) for i, c in enumerate(traffic.classes))


def _part(kind: RequestClass, index: int, where: str) -> Part:
    field = f"{where}: classes.{index}"
    prompt = Lengths.parse(kind.prompt, f"{field}.prompt")
    output = Lengths.parse(kind.output, f"{field}.output")
    prefix = None
    if kind.prefix_tokens:
        if prompt.longest is not None and kind.prefix_tokens > prompt.longest:
            raise InputError(
                f"{field}.prefix_tokens: {kind.prefix_tokens:,} is longer than the prompt "
                f"({prompt.longest:,} at most), which it is part of: shorten it"
            )
        prefix = SharedPrefix(kind.prefix_tokens, name=f"class-{index}")
    return Part(kind.share, prompt, output, prefix)


def mean_tokens(traffic: Traffic) -> tuple[float, float]:
    """Prompt and output tokens of a request on average, over all classes."""
    parts, shares = parts_of(traffic), traffic.shares()
    prompt = fsum(s * mean_length(p.prompt) for s, p in zip(shares, parts, strict=True))
    output = fsum(s * mean_length(p.output) for s, p in zip(shares, parts, strict=True))
    return prompt, output


@cache
def mean_length(lengths: Lengths) -> float:
    """The mean of a distribution as it is drawn, clipped where it has a largest length."""
    if lengths.kind in {"constant", "uniform"}:
        return lengths.mean
    return float(lengths.quantiles(QUANTILES).mean())


def demand_of(
    traffic: Traffic, parts: tuple[Part, ...], rate: float, requests: int, seed: int
) -> Demand:
    """``requests`` of the mix that come at ``rate`` per second."""
    return Demand(OpenLoop(rate, traffic.burstiness), requests=requests, seed=seed, mix=parts)


class ClassLatencies:
    """Latencies by class of the requests from ``first`` on and before ``end``, by their number.

    Given to a simulation as what is told of sequences that have ended.
    """

    def __init__(self, classes: int, first: int, end: int) -> None:
        self._first, self._end = first, end
        self._times: list[list[tuple[float, float, float, int]]] = [[] for _ in range(classes)]

    def __call__(self, ended: list[Sequence]) -> None:
        """Take in sequences that have ended."""
        for s in ended:
            if self._first <= s.number < self._end:
                self._times[s.part].append((s.arrival_s, s.first_s, s.finish_s, s.output))

    def seen(self, percentile: float) -> tuple[Seen, ...]:
        """What each class sees at ``percentile``: the value that so many per cent don't exceed.

        A class of which no request was counted sees NaN, which keeps no limit and misses none.
        """
        return tuple(_seen(rows, percentile) for rows in self._times)

    def growth(self) -> float:
        """The median time that requests spend in the later half, over that in the earlier half.

        It grows without end where more come than can be served.
        """
        rows = sorted(row for rows in self._times for row in rows)
        spent = np.array([finish - arrival for arrival, _, finish, _ in rows])
        half = len(spent) // 2
        return float(np.median(spent[half:]) / np.median(spent[:half])) if half else 1.0


def _seen(rows: list[tuple[float, float, float, int]], percentile: float) -> Seen:
    if not rows:
        return Seen(float("nan"), None, float("nan"))
    arrival, first, finish, output = np.array(rows).T
    several = output > 1
    tpot = (finish - first)[several] / (output[several] - 1)
    return Seen(
        ttft_s=_quantile(first - arrival, percentile),
        tpot_s=_quantile(tpot, percentile) if several.any() else None,
        e2e_s=_quantile(finish - arrival, percentile),
    )


def _quantile(values: np.ndarray, percentile: float) -> float:
    """The smallest value that ``percentile`` per cent of all don't exceed."""
    place = max(0, ceil(percentile / 100 * len(values) - 1e-9) - 1)
    return float(np.partition(values, place)[place])
