"""What the instances of a pool are, and how a prompt's cache gets from one to another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from perfmodel.errors import InputError
from perfmodel.serving.blocks import Blocks
from perfmodel.serving.instance import Instance
from perfmodel.serving.lockstep import LockstepSteps
from perfmodel.serving.occupancy import Occupancy
from perfmodel.serving.policy import Policy
from perfmodel.serving.prefix_cache import PrefixCache
from perfmodel.serving.ranks import Rank, Ranks
from perfmodel.serving.recorder import Recorder, Watch
from perfmodel.serving.step_times import Observer, StepTimes
from perfmodel.serving.tier import Tier
from perfmodel.serving.trace import Misfit

Kind = TypeVar("Kind", bound=Instance)


@dataclass(frozen=True, slots=True)
class Engine:
    """What all instances of a pool are."""

    times: StepTimes | LockstepSteps
    """Of attention replicas that share experts, all of them together: its ranks."""
    blocks: Callable[[], Blocks]
    """A new, empty cache of one rank."""
    policy: Policy
    max_num_seqs: int
    """On one rank."""
    max_num_batched_tokens: int
    """In a step of one rank."""
    gpus: int = 1
    """GPUs of one instance."""
    prefixes: tuple[Tier, ...] | None = None
    """Prompts stay cached, evicted ones in these tiers of a rank; None: each is computed."""
    swap: Tier | None = None
    """Host memory for sequences that are preempted, of a rank; None: they are computed again."""

    def __post_init__(self) -> None:
        for flag, value in (
            ("--max-num-seqs", self.max_num_seqs),
            ("--max-num-batched-tokens", self.max_num_batched_tokens),
        ):
            if value < 1:
                raise InputError(f"{flag}: at least 1 is needed (got {value})")

    @property
    def ranks(self) -> int:
        """Attention replicas that step together; 1 where there is one engine."""
        return self.times.ranks if isinstance(self.times, LockstepSteps) else 1

    @property
    def capacity(self) -> float:
        """Blocks of all ranks."""
        return self.ranks * self.blocks().capacity

    def instance(self, observer: Observer) -> Instance | Ranks:
        """A new one, with nothing to do."""
        times = self.times
        if not isinstance(times, LockstepSteps):
            return self._made(Instance, times, observer)
        ranks = [self._made(Rank, times.one, observer) for _ in range(times.ranks)]
        return Ranks(times, ranks, observer)

    def _made(self, kind: type[Kind], times: StepTimes, observer: Observer) -> Kind:
        blocks = self.blocks()
        return kind(
            times, blocks, self.policy, self.max_num_seqs, self.max_num_batched_tokens,
            observer, swap=self.swap,
            prefixes=None if self.prefixes is None else PrefixCache(blocks, self.prefixes),
        )  # fmt: skip

    def misfit(self) -> Misfit:
        """Tells why a request can never be served, or None."""
        longest = self.instance(Watch(Recorder(), Occupancy(1.0, 1))).longest

        def told(prompt: int, output: int) -> str | None:
            if prompt + output <= longest:
                return None
            return (
                f"prompt and output are {prompt + output:,} tokens, one sequence has room for "
                f"{longest:,}: shorten them, or give the engine more memory"
            )

        return told


@dataclass(frozen=True, slots=True)
class Transfer:
    """How a prompt's cache gets from the instance that prefilled it to one that decodes.

    One after the other over each sender's link, once the prompt is complete. The sender keeps the
    cache until all of it has arrived.
    """

    bytes_per_token: float
    bandwidth: float
    """Bytes per second that one sending instance gets; may be infinite."""
    latency_s: float = 0.0
    bytes_per_sequence: float = 0.0
    """Whatever the prompt's length: recurrent states."""

    def __post_init__(self) -> None:
        if not (self.bandwidth > 0 and 0 <= self.latency_s < inf):
            raise InputError("KV transfer: needs a bandwidth above 0 and a latency of 0 or more")

    def occupied_s(self, tokens: int) -> float:
        """Seconds that ``tokens`` occupy the link."""
        return (self.bytes_per_token * tokens + self.bytes_per_sequence) / self.bandwidth
