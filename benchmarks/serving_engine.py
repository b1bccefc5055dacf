"""CPU time of the serving engine alone, with step times that cost next to nothing.

256 users in a closed loop, 1,024-token prompts and 256-token outputs, or up to a fifth shorter.
Run: ``python benchmarks/serving_engine.py``. Goal: 150,000 requests of equal length per CPU-second
under chunked_mixed.
"""

import platform
import random
import statistics
import time
from collections.abc import Iterator
from itertools import repeat

import numpy as np

from perfmodel.serving.blocks import Blocks
from perfmodel.serving.instance import Instance
from perfmodel.serving.metrics import Collector
from perfmodel.serving.policy import POLICIES
from perfmodel.serving.sequence import Sequence
from perfmodel.serving.step_times import Chunk

USERS, REQUESTS, RUNS = 256, 20_000, 9
CASES = (("equal lengths", 30_000), ("varied lengths", 30_000), ("equal lengths, full", 12_000))


class Times:
    """Made-up step times of about an 8B model's."""

    tokens_per_step = 1.0
    width = 1

    def decode(self, sequences: int, context: float) -> float:
        """A step."""
        return 5e-3 + 1e-5 * sequences + context * 4e-8

    def mixed(self, sequences: int, context: float, chunks: list[Chunk], ended: int) -> float:
        """A step with prompts."""
        return self.decode(sequences, context) + sum([size for size, _ in chunks]) * 25e-6

    def linear_up_to(self, sequences: int, context: float) -> float:
        """Always linear."""
        return 1e18


class Silent(Collector):
    """Counts what ends, and no more."""

    def step(self, instance: Instance, start: float, prefill_tokens: int) -> None:
        """Nothing."""

    def runs(self, instance: Instance, start: float, ended: int, decodes: int) -> None:
        """Nothing."""

    def preempted(self, sequence: Sequence, now: float) -> None:
        """Nothing."""


def lengths(kind: str) -> Iterator[tuple[int, int]]:
    """Prompts and outputs."""
    if kind.startswith("equal"):
        return repeat((1024, 256))
    rng = random.Random(0)  # noqa: S311
    drawn = [(rng.randint(819, 1024), rng.randint(205, 256)) for _ in range(REQUESTS)]
    return iter(drawn)


def run(policy: str, kind: str, capacity: int) -> float:
    """CPU-seconds of one run."""
    drawn, told = lengths(kind), Silent()
    instance = Instance(Times(), Blocks(capacity, 16), POLICIES[policy], 1024, 8192, told)
    start = time.process_time()
    for number in range(USERS):
        instance.submit(Sequence(number, 0.0, *next(drawn)), 0.0)
    number = USERS
    while not instance.idle:
        done = instance.advance()
        if done:
            told.ended(done)
            for _ in done[: REQUESTS - number]:
                instance.submit(Sequence(number, instance.clock, *next(drawn)), instance.clock)
                number += 1
    told.flush()
    return time.process_time() - start


def main() -> None:
    """Print requests per CPU-second, medians of several runs."""
    print(f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")  # noqa: T201
    for policy in POLICIES:
        for kind, capacity in CASES:
            rates = [REQUESTS / run(policy, kind, capacity) for _ in range(RUNS)]
            print(  # noqa: T201
                f"{policy:26} {kind:20} {statistics.median(rates):9,.0f} requests/CPU-s "
                f"({min(rates):,.0f}–{max(rates):,.0f})"
            )


if __name__ == "__main__":
    main()
