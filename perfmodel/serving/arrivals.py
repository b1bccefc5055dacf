"""Request streams: users who wait for their answers, a rate, or a trace; generated as they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice, repeat
from math import inf, isfinite
from pathlib import Path

import numpy as np

from perfmodel.errors import InputError
from perfmodel.serving.lengths import BLOCK, Lengths
from perfmodel.serving.sequence import Prefix, Sequence
from perfmodel.serving.trace import Misfit, read_trace
from perfmodel.specs.workload import LARGEST

DEFAULT_PROMPT, DEFAULT_OUTPUT = Lengths("constant", (1024,)), Lengths("constant", (256,))
"""Those of `perfmodel.specs.workload.Workload`."""
Maker = Callable[[Iterable[float]], Iterator[Sequence]]
"""Makes the next requests, one for each time of arrival."""
MOST = 10**12
"""Requests and seeds beyond which a number is a typing error."""


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """``concurrency`` users: all send at 0, each its next ``think_s`` after its last ended."""

    concurrency: int
    think_s: float = 0.0

    def __post_init__(self) -> None:
        _whole("--concurrency", self.concurrency, 1, LARGEST)
        if not 0 <= self.think_s < inf:
            raise InputError(f"think_s: must be 0 or more seconds (got {self.think_s})")


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests that come at ``rate`` per second, whatever becomes of those before them.

    The gaps are gamma distributed with mean 1/rate and shape ``burstiness``, as in
    ``vllm bench serve --burstiness``: 1 is a Poisson process, less comes in bursts (the squared
    coefficient of variation is 1/burstiness), more is more even. An infinite rate sends all at 0.
    """

    rate: float
    burstiness: float = 1.0

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise InputError(f"--rate: must be above 0 requests per second (got {self.rate})")
        if not (self.burstiness > 0 and isfinite(self.burstiness)):
            raise InputError(f"--burstiness: must be above 0; 1 is Poisson (got {self.burstiness})")

    def times(self, generator: np.random.Generator) -> Iterator[float]:
        """Arrival times without end, in seconds."""
        now = 0.0
        while True:
            gaps = generator.standard_gamma(self.burstiness, BLOCK) / (self.burstiness * self.rate)
            gaps[0] += now
            times = np.cumsum(gaps)
            now = float(times[-1])
            yield from times.tolist()


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests of a CSV file: see `perfmodel.serving.trace.read_trace`."""

    path: Path


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Prompts begin with one of ``count`` texts of ``tokens`` tokens, each as likely.

    The tokens are part of the prompt's length; a shorter prompt lies within its prefix.
    """

    tokens: int
    count: int = 1

    def __post_init__(self) -> None:
        _whole("--prefix-tokens", self.tokens, 1, LARGEST)
        _whole("--prefix-count", self.count, 1, LARGEST)

    def stream(self, generator: np.random.Generator) -> Iterator[Prefix]:
        """Prefixes without end."""
        parts: list[Prefix] = []
        while True:
            for which in generator.integers(0, self.count, BLOCK).tolist():
                while which >= len(parts):
                    parts.append(((f"prefix-{len(parts)}", self.tokens),))
                yield parts[which]


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked: when requests come, how long they are, how many.

    Args:
        arrivals: who sends them.
        prompt: tokens of a prompt; not used by a trace, which has its own. Text and whole numbers
            are read by `Lengths.parse`.
        output: tokens that are generated, likewise.
        requests: how many; None: all of a trace.
        seed: of all draws. Arrivals, prompts and outputs have streams of their own, so that
            another rate meets the same requests.
        prefix: what prompts have in common.
    """

    arrivals: ClosedLoop | OpenLoop | Trace
    prompt: Lengths = DEFAULT_PROMPT
    output: Lengths = DEFAULT_OUTPUT
    requests: int | None = 1000
    seed: int = 0
    prefix: SharedPrefix | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "output"):
            object.__setattr__(self, name, Lengths.parse(getattr(self, name), f"--{name}"))
        if self.requests is not None:
            _whole("--requests", self.requests, 1, MOST)
        elif not isinstance(self.arrivals, Trace):
            raise InputError("--requests: a number is needed where no trace gives the requests")
        _whole("--seed", self.seed, 0, MOST)

    @property
    def traced(self) -> bool:
        """Whether a trace gives the requests."""
        return isinstance(self.arrivals, Trace)

    def source(self, misfit: Misfit) -> Source:
        """The stream itself.

        Raises:
            InputError: a request can never be served, or a row of a trace is wrong. A trace is
                read through before anything is simulated.
        """
        if isinstance(self.arrivals, Trace):
            path = self.arrivals.path
            total = sum(1 for _ in islice(read_trace(path, misfit), self.requests))
            return Source(islice(read_trace(path), total), total)
        total = self.requests or 0
        made = self._drawn(misfit)
        if isinstance(self.arrivals, ClosedLoop):
            first = min(total, self.arrivals.concurrency)
            start = list(made(repeat(0.0, first)))
            return Source(iter(start), total, made, first, self.arrivals.think_s)
        times = self.arrivals.times(_generator(self.seed, 0))
        return Source(made(islice(times, total)), total)

    def _drawn(self, misfit: Misfit) -> Maker:
        """What makes the next requests, in the order of their numbers."""
        self._check_longest(misfit)
        prompts = self.prompt.stream(_generator(self.seed, 1))
        outputs = self.output.stream(_generator(self.seed, 2))
        prefixes: Iterator[Prefix] = (
            self.prefix.stream(_generator(self.seed, 3)) if self.prefix else repeat(())
        )
        bounded = self.prompt.longest and self.output.longest
        each = zip(count(), prompts, outputs, prefixes, strict=False)

        def make(arrivals: Iterable[float]) -> Iterator[Sequence]:
            for arrival, (number, prompt, output, prefix) in zip(arrivals, each, strict=False):
                if not bounded and (reason := misfit(prompt, output)):
                    raise InputError(
                        f"request {number + 1} ({prompt} prompt and {output} output tokens, drawn "
                        f"from {self.prompt.spec} and {self.output.spec}) can never be served: "
                        f"{reason}"
                    )
                yield Sequence(number, arrival, prompt, output, prefix)

        return make

    def _check_longest(self, misfit: Misfit) -> None:
        prompt, output = self.prompt.longest, self.output.longest
        if prompt and output and (reason := misfit(prompt, output)):
            raise InputError(
                f"--prompt {self.prompt.spec}, --output {self.output.spec}: a request of {prompt} "
                f"and {output} tokens can never be served: {reason}"
            )


class Source:
    """Requests as a simulation draws them: those that come by themselves, and those that follow.

    Args:
        arrivals: in the order in which they come.
        total: how many there are in all.
        make: makes the requests that users send after others, where users wait.
        made: how many of all ``arrivals`` hold.
        think_s: seconds from the end of one to its user's next.
    """

    def __init__(
        self,
        arrivals: Iterator[Sequence],
        total: int,
        make: Maker | None = None,
        made: int = 0,
        think_s: float = 0.0,
    ) -> None:
        self.arrivals = arrivals
        self.total = total
        self.think_s = think_s
        self.follows = make is not None
        self._make = make
        self._left = total - made

    def follow(self, now: float) -> Sequence | None:
        """What a user sends whose last request ended ``now``; None where no more is to be sent."""
        sent = self.follow_all(1, now)
        return sent[0] if sent else None

    def follow_all(self, ended: int, now: float) -> list[Sequence]:
        """What users send whose last requests, ``ended`` of them, have ended ``now``."""
        if self._make is None:
            return []
        sent = min(ended, self._left)
        self._left -= sent
        return list(self._make(repeat(now + self.think_s, sent)))


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng([stream, seed])


def _whole(name: str, value: float, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name}: a whole number from {low} to {high:,} is needed (got {value!r})")
