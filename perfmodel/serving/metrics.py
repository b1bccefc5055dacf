"""What users see, collected while the simulator runs, in memory that doesn't grow with requests.

Values go into a histogram of bins 0.1 % wide: means are exact, percentiles to 0.05 %. They are
gathered in lists first and counted by arrays, because a simulated request costs microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.serving.sequence import Sequence

Array = NDArray[np.float64]
BINS_PER_E = 1000
"""Bins for each factor e: one bin is exp(1/1000) − 1 = 0.1 % wide."""
SMALLEST = 1e-9
"""Seconds below which a value counts as none."""
BINS = 45_000
"""Up to 1e-9·exp(45) s: beyond any time."""
BUFFER = 8192
"""Values that are gathered before they are counted."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles of one metric, in seconds; NaN where nothing was counted."""

    mean: float
    p50: float
    p90: float
    p99: float
    count: float


class Histogram:
    """Weighted values: exact sum and extremes, and bins for the percentiles."""

    def __init__(self) -> None:
        self._bins = np.zeros(BINS + 1)
        self.count = 0.0
        self.total = 0.0
        self.smallest = np.inf
        self.largest = 0.0

    def add(self, values: Array, weights: Array | None = None) -> None:
        """Count values, each once or by its weight."""
        if not len(values):
            return
        weights = np.ones(len(values)) if weights is None else weights
        self.count += float(weights.sum())
        self.total += float(values @ weights)
        self.smallest = min(self.smallest, float(values.min()))
        self.largest = max(self.largest, float(values.max()))
        logs = np.log(np.maximum(values, SMALLEST) / SMALLEST)
        np.add.at(self._bins, np.minimum(BINS_PER_E * logs, BINS).astype(np.int64), weights)

    def quantile(self, share: float) -> float:
        """The value that ``share`` of all values don't exceed."""
        if not self.count:
            return float("nan")
        reached = np.cumsum(self._bins) >= share * self.count * (1 - 1e-12)
        key = int(np.argmax(reached))
        middle = SMALLEST * np.exp((key + 0.5) / BINS_PER_E) if key else 0.0
        return float(min(max(middle, self.smallest), self.largest))

    def distribution(self) -> Distribution:
        """Mean and percentiles."""
        mean = self.total / self.count if self.count else float("nan")
        p50, p90, p99 = (self.quantile(share) for share in (0.5, 0.9, 0.99))
        return Distribution(mean, p50, p90, p99, self.count)


class Collector:
    """Gathers what ended, and the gaps between tokens."""

    def __init__(self) -> None:
        self.ttft, self.tpot, self.itl = Histogram(), Histogram(), Histogram()
        self.e2e, self.queue = Histogram(), Histogram()
        self.requests = self.prompt_tokens = self.output_tokens = self.preemptions = 0
        self.longest_tokens = 0
        self._ended: list[Sequence] = []
        self._gaps: list[float] = []
        self._weights: list[float] = []

    def ended(self, sequences: list[Sequence]) -> None:
        """Take in sequences that have all their tokens."""
        self._ended += sequences
        if len(self._ended) >= BUFFER:
            self.flush()

    def gap(self, seconds: float, tokens: float) -> None:
        """``tokens`` came ``seconds`` after the ones before them."""
        self._gaps.append(seconds)
        self._weights.append(tokens)

    def flush(self) -> None:
        """Count what was gathered."""
        ended = self._ended
        if ended:
            arrival = np.array([s.arrival_s for s in ended])
            first = np.array([s.first_s for s in ended])
            finish = np.array([s.finish_s for s in ended])
            prompt = np.array([s.prompt for s in ended])
            output = np.array([s.output for s in ended])
            self.ttft.add(first - arrival)
            self.queue.add(np.array([s.admitted_s for s in ended]) - arrival)
            self.e2e.add(finish - arrival)
            several = output > 1
            self.tpot.add((finish - first)[several] / (output[several] - 1))
            self.requests += len(ended)
            self.prompt_tokens += int(prompt.sum())
            self.output_tokens += int(output.sum())
            self.longest_tokens = max(self.longest_tokens, int((prompt + output).max()))
            self.preemptions += sum([s.preemptions for s in ended])
        self.itl.add(np.array(self._gaps), np.array(self._weights))
        self._ended, self._gaps, self._weights = [], [], []
