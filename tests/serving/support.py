"""Engines with made-up step times, a recorder that checks every step, and a driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfmodel.serving.blocks import Blocks
from perfmodel.serving.engine import Engine
from perfmodel.serving.instance import Instance
from perfmodel.serving.lockstep import LockstepSteps
from perfmodel.serving.policy import POLICIES
from perfmodel.serving.ranks import Ranks
from perfmodel.serving.sequence import Sequence
from perfmodel.serving.tier import Tier


class Times:
    """Linear step times in binary fractions, so that sums are exact."""

    def __init__(
        self,
        base: float = 1.0,
        each: float = 0.0,
        token: float = 0.0,
        prompt: float = 0.25,
        per_step: float = 1,
        width: int = 1,
        jumps: bool = True,
    ) -> None:
        self.base, self.each, self.token, self.prompt = base, each, token, prompt
        self.tokens_per_step = per_step
        self.width = width
        self.jumps = jumps

    def decode(self, sequences: int, context: float, everywhere: int = 0) -> float:
        return self.base + self.each * sequences + self.token * context

    def mixed(
        self, sequences: int, context: float, chunks: Any, ended: int, everywhere: int = 0
    ) -> float:
        tokens = sum(size for size, _ in chunks)
        return self.decode(sequences, context) + self.prompt * tokens

    def linear_up_to(self, sequences: int, context: float) -> float:
        return 1e18 if self.jumps else context


def ranks_of(instance: Instance | Ranks) -> list[Instance]:
    """The engine itself, or its ranks."""
    return list(instance.ranks) if isinstance(instance, Ranks) else [instance]


class Recorder:
    """Keeps what an engine tells, and checks what must hold after every step."""

    def __init__(self) -> None:
        self.gaps: list[tuple[float, float]] = []
        self.steps: list[tuple[float, float, int, int]] = []
        """Begin, end, tokens prefilled, sequences decoding at the end."""
        self.preempted_numbers: list[int] = []
        self.clock = 0.0

    def gap(self, seconds: float, tokens: float) -> None:
        assert seconds > 0
        assert tokens >= 0
        self.gaps.append((seconds, tokens))

    def runs(self, instance: Instance | Ranks, start: float, ended: int, decodes: int) -> None:
        assert start < instance.clock
        ranks = ranks_of(instance)
        seats = sum(rank.max_num_seqs for rank in ranks)
        assert 0 <= ended + len(instance.running) <= seats
        for rank in ranks:
            assert rank.clock == instance.clock
            assert rank.cache_used(max(0, decodes - 1)) <= rank.blocks.capacity + 1e-9

    def step(self, instance: Instance | Ranks, start: float, prefill_tokens: int) -> None:
        assert start >= self.clock
        assert instance.clock > start
        self.clock = instance.clock
        for rank in ranks_of(instance):
            used = rank.blocks.used(rank.batch.tokens)
            cached = 0 if rank.prefixes is None else rank.prefixes.tree.unheld
            assert used + cached <= rank.blocks.capacity + 1e-6
            assert used >= -1e-6
            assert rank.batch.slots + len(rank.prefilling) <= rank.max_num_seqs
        self.steps.append((start, instance.clock, prefill_tokens, len(instance.running)))

    def preempted(self, sequence: Sequence, now: float) -> None:
        self.preempted_numbers.append(sequence.number)

    @property
    def tokens(self) -> float:
        return sum(tokens for _, tokens in self.gaps)

    @property
    def seconds(self) -> float:
        return sum(seconds * tokens for seconds, tokens in self.gaps)


def engine(
    policy: str = "chunked_mixed",
    times: Any = None,
    blocks: Blocks | None = None,
    seqs: int = 8,
    budget: int = 64,
    **more: Any,
) -> tuple[Instance, Recorder]:
    told = Recorder()
    blocks = blocks or Blocks(1e6, 4)
    return Instance(times or Times(), blocks, POLICIES[policy], seqs, budget, told, **more), told


def ranked(
    ranks: int,
    policy: str = "chunked_mixed",
    times: Any = None,
    room: Callable[[], Blocks] = lambda: Blocks(1e6, 4),
    seqs: int = 8,
    budget: int = 64,
    prefixes: tuple[Tier, ...] | None = None,
    swap: Tier | None = None,
) -> tuple[Ranks, Recorder]:
    """Ranks in lockstep; blocks, sequences, tokens and host memory are those of each."""
    told = Recorder()
    steps = LockstepSteps(times or Times(), ranks)
    made = Engine(steps, room, POLICIES[policy], seqs, budget, prefixes=prefixes, swap=swap)
    instance = made.instance(told)
    assert isinstance(instance, Ranks)
    return instance, told


def requests(*rows: tuple[float, int, int]) -> list[Sequence]:
    """Sequences of (arrival, prompt, output)."""
    return [Sequence(number, *row) for number, row in enumerate(rows)]


def drive(instance: Instance | Ranks, sequences: list[Sequence]) -> list[Sequence]:
    """Send sequences when they arrive; those that ended, in the order in which they did."""
    done: list[Sequence] = []
    for sequence in sequences:
        while not instance.idle and instance.clock < sequence.arrival_s:
            done += advance(instance, sequence.arrival_s)
        instance.submit(sequence, sequence.arrival_s)
    while not instance.idle:
        done += advance(instance)
    return done


def advance(instance: Instance | Ranks, limit: float = float("inf")) -> list[Sequence]:
    before = instance.clock
    done = instance.advance(limit)
    assert instance.clock > before, "no progress"
    assert all(sequence.finish_s == instance.clock for sequence in done)
    return done
