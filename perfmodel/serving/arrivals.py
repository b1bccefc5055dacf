"""Request streams: users who wait for their answers, a rate, or a trace; generated as they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from math import isfinite
from pathlib import Path

import numpy as np

from perfmodel.errors import InputError
from perfmodel.serving.lengths import BLOCK, Lengths
from perfmodel.serving.mix import Part, drawn
from perfmodel.serving.sequence import Sequence
from perfmodel.serving.shared_prefix import SharedPrefix, whole_number
from perfmodel.serving.trace import LATEST, Misfit, read_trace
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
        whole_number("--concurrency", self.concurrency, 1, LARGEST)
        if not 0 <= self.think_s <= LATEST:
            raise InputError(
                f"think_s: must be from 0 to {LATEST:g} seconds (got {self.think_s:g})"
            )


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
        mix: parts of the requests that differ in lengths and prefixes; ``prompt``, ``output`` and
            ``prefix`` count for nothing then. Not with a trace.
    """

    arrivals: ClosedLoop | OpenLoop | Trace
    prompt: Lengths = DEFAULT_PROMPT
    output: Lengths = DEFAULT_OUTPUT
    requests: int | None = 1000
    seed: int = 0
    prefix: SharedPrefix | None = None
    mix: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        for name in ("prompt", "output"):
            object.__setattr__(self, name, Lengths.parse(getattr(self, name), f"--{name}"))
        if self.requests is not None:
            whole_number("--requests", self.requests, 1, MOST)
        elif not isinstance(self.arrivals, Trace):
            raise InputError("--requests: a number is needed where no trace gives the requests")
        whole_number("--seed", self.seed, 0, MOST)
        if self.mix and self.traced:
            raise InputError("mix: a trace has its own requests; leave it out")

    @property
    def traced(self) -> bool:
        """Whether a trace gives the requests."""
        return isinstance(self.arrivals, Trace)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The requests by kind: one part where no mix is given."""
        return self.mix or (Part(1.0, self.prompt, self.output, self.prefix),)

    @property
    def shares_prefixes(self) -> bool:
        """Whether prompts may have a beginning in common."""
        return self.traced or any(part.prefix is not None for part in self.parts)

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
        if total > LATEST * self.arrivals.rate:
            raise InputError(
                f"--rate: {total:,} requests at {self.arrivals.rate:g} per second come in more "
                f"than {LATEST:g} seconds: raise it, or ask for fewer --requests"
            )
        times = self.arrivals.times(_generator(self.seed, 0))
        return Source(made(islice(times, total)), total)

    def _drawn(self, misfit: Misfit) -> Maker:
        """What makes the next requests, in the order of their numbers."""
        parts = self.parts
        bounded = [_fits_always(part, misfit) for part in parts]
        each = enumerate(drawn(parts, lambda stream: _generator(self.seed, stream)))

        def make(arrivals: Iterable[float]) -> Iterator[Sequence]:
            for arrival, (number, (which, prompt, output, prefix)) in zip(
                arrivals, each, strict=False
            ):
                if not bounded[which] and (reason := misfit(prompt, output)):
                    part = parts[which]
                    raise InputError(
                        f"request {number + 1} ({prompt} prompt and {output} output tokens, drawn "
                        f"from {part.prompt.spec} and {part.output.spec}) can never be served: "
                        f"{reason}"
                    )
                yield Sequence(number, arrival, prompt, output, prefix, which)

        return make


def _fits_always(part: Part, misfit: Misfit) -> bool:
    """Whether every request of a part fits; False where its lengths have no end.

    Raises:
        InputError: the longest one can never be served.
    """
    prompt, output = part.prompt.longest, part.output.longest
    if not (prompt and output):
        return False
    if reason := misfit(prompt, output):
        raise InputError(
            f"--prompt {part.prompt.spec}, --output {part.output.spec}: a request of {prompt} "
            f"and {output} tokens can never be served: {reason}"
        )
    return True


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
