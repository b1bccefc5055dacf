"""What a simulation writes down while it runs: every request's times, and what engines held."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from perfmodel.serving.instance import Instance
from perfmodel.serving.metrics import BUFFER, Collector, Histogram
from perfmodel.serving.occupancy import Occupancy
from perfmodel.serving.ranks import Ranks
from perfmodel.serving.sequence import Sequence

Ended = Callable[[list[Sequence]], None]
"""Is given the sequences that have just ended, in the order of their ends."""
Progress = Callable[[int], None]
"""Is told now and then how many requests have ended."""


class Recorder(Collector):
    """Metrics of requests, without the first ``warmup`` of them.

    Args:
        warmup: requests, in the order of arrival, that no distribution holds. Rates and means over
            time count from the arrival of the one after them.
        ended: is given every sequence that ends.
        progress: is told how many have.
    """

    def __init__(
        self, warmup: int = 0, ended: Ended | None = None, progress: Progress | None = None
    ) -> None:
        super().__init__()
        self.warmup = warmup
        self.begin = self.first_arrival = inf
        self.last_end = 0.0
        self.extra = self.extra_prompt = self.extra_output = 0
        """Requests of the warm-up that ended after it, and their tokens."""
        self.all_ended = 0
        self.pools: list[Watch] = []
        self._tell = ended
        self._progress = progress

    def arrived(self, sequence: Sequence) -> None:
        """A request came, before any engine has it."""
        if sequence.number == 0:
            self.first_arrival = sequence.arrival_s
        if sequence.number == self.warmup:
            self.begin = sequence.arrival_s
            self.flush()
            self.itl = Histogram()
            for pool in self.pools:
                pool.occupancy.count_from(self.begin)

    def followed(self, sequences: list[Sequence]) -> None:
        """Requests came that others' ends brought about."""
        if sequences and sequences[0].number <= self.warmup <= sequences[-1].number:
            for sequence in sequences:
                self.arrived(sequence)

    def ended(self, sequences: list[Sequence]) -> None:
        """Take in sequences that have all their tokens, in the order of their ends."""
        self.last_end = sequences[-1].finish_s
        self.all_ended += len(sequences)
        if self._tell:
            self._tell(sequences)
        if self.warmup:
            sequences = self._without_warmup(sequences)
        super().ended(sequences)

    def _without_warmup(self, sequences: list[Sequence]) -> list[Sequence]:
        for sequence in sequences:
            if sequence.number < self.warmup:
                tokens = sequence.prompt + sequence.output
                self.longest_tokens = max(self.longest_tokens, tokens)
                if self.begin < inf:
                    self.extra += 1
                    self.extra_prompt += sequence.prompt
                    self.extra_output += sequence.output
        return [s for s in sequences if s.number >= self.warmup]

    def flush(self) -> None:
        """Count what was gathered."""
        super().flush()
        for pool in self.pools:
            pool.occupancy.flush()
        if self._progress:
            self._progress(self.all_ended)


class Watch:
    """The observer of the engines of one pool.

    Args:
        recorder: of the whole simulation.
        occupancy: of this pool.
    """

    def __init__(self, recorder: Recorder, occupancy: Occupancy) -> None:
        self.recorder = recorder
        self.occupancy = occupancy
        self.prefill_tokens = 0
        self.preemptions = 0
        self._add = occupancy.add
        recorder.pools.append(self)

    def gap(self, seconds: float, tokens: float) -> None:
        """``tokens`` came ``seconds`` after the ones before them."""
        self.recorder.gap(seconds, tokens)

    def step(self, instance: Instance | Ranks, start: float, prefill_tokens: int) -> None:
        """Steps ran from ``start`` to the engine's clock."""
        self.prefill_tokens += prefill_tokens

    def runs(self, instance: Instance | Ranks, start: float, ended: int, decodes: int) -> None:
        """Steps run, and have changed nothing yet."""
        first = last = instance.cache_used()
        if decodes > 1:
            last = instance.cache_used(decodes - 1)
        gathered = self._add((
            start, instance.clock, len(instance.running) + len(instance.prefilling) + ended,
            len(instance.waiting), (first + last) / 2, last,
        ))  # fmt: skip
        if gathered >= BUFFER:
            self.recorder.flush()

    def preempted(self, sequence: Sequence, now: float) -> None:
        """A sequence lost its cache."""
        self.preemptions += 1

    def waits(self, start: float, end: float) -> None:
        """A request that came while a step ran waits for its end."""
        self._add((start, end, 0, 1, 0.0, 0.0))

    def rests(self, instance: Instance | Ranks, end: float) -> None:
        """An engine that runs nothing has done so since its clock, whatever it holds."""
        used = instance.cache_used()
        if used or instance.waiting:
            self._add((instance.clock, end, 0, len(instance.waiting), used, used))
