"""Timing that can be trusted: warm-up, samples well above the clock's resolution, a tolerance.

A *sample* times ``repeats`` calls at once; a result is the median over samples. Sampling ends when
the median is known to the tolerance, or the budget is spent. Decisions rest on sampled times alone,
so that the ranks of a collective, which share them, take the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

SIGMAS_IN_QUARTILES = 1.349
"""A normal distribution's interquartile range over its standard deviation."""
MEDIAN_RANKS = 0.98
"""√n times so many ranks either way of the middle hold the median at 95 % (1.96/2)."""
CLEAN_SHARE = 0.01
"""Waiting for the core up to this share of a sample doesn't spoil it."""
MOST_REPEATS = 1000
"""Calls in a sample at most: CUDA queues about as many launches before it holds the host up."""
MOST_FLUSHED = 40
"""Samples at most where each one begins with flushing the cache, which takes longer than it."""
RESOLUTIONS_PER_SAMPLE = 1000
"""A sample is so many times longer than the smallest step of the clock."""


Quality = Literal["clean", "corrected", "disturbed"]


class Timer(Protocol):
    """Times a fixed number of calls."""

    @property
    def method(self) -> str:
        """``clock``, ``events`` or ``graph``: goes into the row."""

    @property
    def resolution_s(self) -> float:
        """The smallest difference in seconds that the clock shows."""

    def prepare(self, repeats: int) -> None:
        """Set how many calls the samples from now on hold."""

    def sample(self) -> Sample:
        """Time all the calls of one sample together."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample, all its calls together."""

    seconds: float
    waited_s: float = 0.0
    """Seconds that threads were ready to run but others held the core (CPU only)."""
    serial: bool = False
    """One thread did everything, so that taking off the wait leaves the work."""

    @property
    def clean(self) -> bool:
        """Whether nobody else took the core meanwhile."""
        return self.waited_s <= CLEAN_SHARE * self.seconds


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how exactly to measure."""

    tolerance: float = 0.02
    """Wanted relative half-width of the median's 95 % interval."""
    sample_s: float = 2e-3
    """Aim for a sample's length."""
    warmup_s: float = 2e-2
    budget_s: float = 0.5
    """Sampled seconds of a case at most; the fewest samples are taken all the same."""
    fewest: int = 5
    most: int = 200


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one call, and how well it is known."""

    seconds: float
    """Median over samples."""
    fastest_s: float
    """The fastest sample: what an undisturbed device does."""
    spread: float
    """Interquartile range as a standard deviation, relative to the median."""
    samples: int
    repeats: int
    error: float
    """Relative half-width of the median's 95 % interval."""
    reached: bool
    """Whether ``error`` is within the tolerance."""
    quality: Quality
    """``clean``: only samples that nobody disturbed; ``corrected``: the wait for the core taken
    off, since too few were clean; ``disturbed``: threads waited for cores, the time is too long."""
    discarded: int
    """Disturbed samples that aren't counted."""


def measure(
    timer: Timer,
    settings: Settings,
    repeats_at_most: int | None = None,
    ready: Callable[[], object] = lambda: None,
) -> Timing:
    """Warm up, choose the repeats, sample until the tolerance or the budget is reached.

    Args:
        timer: times the calls.
        settings: tolerance and budget.
        repeats_at_most: sets of inputs that are cold after a flush: a sample uses each once.
        ready: called once the device has warmed up, before the samples: to read its state.
    """
    single = warm_up(timer, settings, repeats_at_most)
    aim = max(settings.sample_s, RESOLUTIONS_PER_SAMPLE * timer.resolution_s)
    repeats = min(math.ceil(aim / single), MOST_REPEATS)
    most = settings.most
    if repeats_at_most is not None:
        repeats, most = min(repeats, repeats_at_most), min(most, MOST_FLUSHED)
    timer.prepare(repeats)
    timer.sample()  # a graph's first replay uploads it
    ready()
    taken: list[Sample] = []
    spent = 0.0
    while len(taken) < most:
        sample = timer.sample()
        taken.append(sample)
        spent += sample.seconds
        clean = [s.seconds for s in taken if s.clean]
        if len(clean) >= settings.fewest and error_of(clean) <= settings.tolerance:
            break
        if len(taken) >= settings.fewest and spent >= settings.budget_s:
            break
    return summarise(taken, repeats, settings)


def warm_up(timer: Timer, settings: Settings, repeats_at_most: int | None = None) -> float:
    """Run until clocks and caches have settled; returns an estimate of one call's seconds."""
    timer.prepare(1)
    timer.sample()  # compiles, allocates, chooses algorithms
    single = min(_worked(timer.sample(), timer) for _ in range(2))
    more = min(int(settings.warmup_s / single), repeats_at_most or MOST_REPEATS, MOST_REPEATS)
    if more <= 1:
        return single
    timer.prepare(more)
    return min(single, max(_worked(timer.sample(), timer) / more, timer.resolution_s / more))


def _worked(sample: Sample, timer: Timer) -> float:
    waited = sample.waited_s if sample.serial else 0.0
    return max(sample.seconds - waited, timer.resolution_s)


def summarise(samples: list[Sample], repeats: int, settings: Settings) -> Timing:
    """The time of one call, from the samples that can be trusted.

    Raises:
        ValueError: a time that isn't positive: the clock is broken.
    """
    clean = [sample.seconds for sample in samples if sample.clean]
    quality: Quality = "clean"
    if len(clean) >= min(settings.fewest, len(samples)):
        times = clean
    elif all(sample.serial for sample in samples):
        quality, times = "corrected", [s.seconds - s.waited_s for s in samples]
    else:
        quality, times = "disturbed", [s.seconds for s in samples]
    if not times or min(times) <= 0:
        raise ValueError("a sample took no time: the clock doesn't resolve it")
    error = error_of(times)
    return Timing(
        seconds=float(np.median(times)) / repeats,
        fastest_s=min(times) / repeats,
        spread=spread_of(times),
        samples=len(times),
        repeats=repeats,
        error=error,
        reached=error <= settings.tolerance and quality != "disturbed",
        quality=quality,
        discarded=len(samples) - len(times),
    )


def error_of(samples: list[float]) -> float:
    """Relative half-width of the 95 % interval of the median of ``samples``.

    The interval lies between two of the samples by rank, so it holds for any distribution, two
    peaks included, which a deviation from the median doesn't see. Of five samples it is the range.
    """
    values, count = sorted(samples), len(samples)
    below = max(0, math.floor(count / 2 - MEDIAN_RANKS * math.sqrt(count)))
    width = values[count - 1 - below] - values[below]
    return width / 2 / float(np.median(values))


def spread_of(samples: list[float]) -> float:
    """Interquartile range of ``samples`` as a standard deviation, relative to their median."""
    low, middle, high = np.percentile(samples, (25, 50, 75))
    return float((high - low) / SIGMAS_IN_QUARTILES / middle)
