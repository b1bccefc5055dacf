"""One engine: it admits sequences, runs steps, and jumps over stretches in which nothing changes.

Between two events (an arrival, a sequence's end, a full cache) every decode step has the same
sequences, each one token longer: the stretch is one jump, whose time is the integral of the step
time over the context.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from math import ceil, inf, sqrt
from typing import Protocol

from perfmodel.serving.blocks import Blocks
from perfmodel.serving.policy import Policy
from perfmodel.serving.sequence import Sequence

Chunk = tuple[int, int]
"""Tokens of one prompt that a step computes, and those before them in the cache."""


class StepTimes(Protocol):
    """Seconds of an engine's steps."""

    tokens_per_step: float
    """Tokens that a decoding sequence gains in a step: more than one with speculation."""
    width: int
    """Tokens that a decoding sequence puts into a step: one, and its drafts."""

    def decode(self, sequences: int, context: float) -> float:
        """A step of ``sequences`` decoding sequences with ``context`` cached tokens in all."""

    def mixed(self, sequences: int, context: float, chunks: list[Chunk], ended: int) -> float:
        """The same beside ``chunks`` of prompts, of which ``ended`` end in this step."""

    def linear_up_to(self, sequences: int, context: float) -> float:
        """The context in all up to which the decode step's time is linear in it."""


class Observer(Protocol):
    """What an engine tells while it runs."""

    def gap(self, seconds: float, tokens: float) -> None:
        """``tokens`` came ``seconds`` after the ones before them."""

    def step(self, instance: Instance, start: float, prefill_tokens: int, decodes: int) -> None:
        """Steps ran from ``start`` to the clock, ``decodes`` of them decoding.

        Told before what they change: the engine shows what it held while they ran.
        """

    def preempted(self, sequence: Sequence, now: float) -> None:
        """A sequence lost its cache."""


class Instance:
    """The state of one engine.

    Args:
        times: what its steps take.
        blocks: its cache.
        policy: how it fills a step.
        max_num_seqs: sequences that it holds at most, decoding or being prefilled.
        max_num_batched_tokens: tokens of a step at most.
        observer: what is told of tokens, gaps and steps.
    """

    def __init__(
        self,
        times: StepTimes,
        blocks: Blocks,
        policy: Policy,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        observer: Observer,
    ) -> None:
        self.times = times
        self.blocks = blocks
        self.policy = policy
        self.max_num_seqs = max_num_seqs
        self.budget = max_num_batched_tokens
        self.observer = observer
        self.clock = 0.0
        self.waiting: deque[Sequence] = deque()
        self.prefilling: deque[Sequence] = deque()
        self.running: dict[int, Sequence] = {}
        """Decoding sequences in the order in which they began."""
        self.context = 0.0
        """Tokens in the cache of all that a decode step computes."""
        self.slots = 0
        """Sequences that a decode step computes: those that decode, and padded ones."""
        self.steps = 0
        """Decode steps so far."""
        self._due: list[int] = []
        self._ending: dict[int, list[Sequence]] = {}
        self._last_token: list[tuple[int, float]] = []
        """How many sequences had their last token when."""
        self._filling = True
        """A batch that is run until it has drained still takes sequences in."""
        self._padded: list[Sequence] = []

    @property
    def idle(self) -> bool:
        """Nothing to do until a request comes."""
        return not (self.running or self.waiting or self.prefilling)

    @property
    def load(self) -> int:
        """Sequences in the engine, waiting ones too."""
        return len(self.running) + len(self.waiting) + len(self.prefilling)

    def cache_used(self, steps: int = 0) -> float:
        """Blocks in use ``steps`` decode steps on."""
        return self.blocks.used(self._tokens(steps))

    def earliest_end(self) -> float:
        """A time before which no sequence ends or is preempted, if no prompt is admitted.

        It holds for step times that don't fall with the context. Needs a decoding sequence.
        """
        steps = self._due[0] - self.steps
        if self.blocks.growing:
            if not self.blocks.fits_after(self._tokens(1)):
                return self.clock
            steps = self._steps_that_fit(steps)
        return self.clock + steps * self.times.decode(self.slots, self.context)

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a sequence at ``now``, which isn't before what it has run to."""
        if self.idle:
            self.clock = max(self.clock, now)
        self.waiting.append(sequence)

    def advance(self, limit: float = inf) -> list[Sequence]:
        """Run to the next event, or until the step that is running at ``limit`` ends.

        Returns the sequences that ended, at `clock`.
        """
        if self.blocks.growing and not self.blocks.fits_after(self._tokens(1)):
            self._preempt()
        if self.waiting or self.prefilling:
            chunks = self._fill_step()
            if chunks:
                return self._prefill_step(chunks)
        return self._decode(limit) if self.running else []

    def _tokens(self, more: int = 0) -> int:
        """Tokens that a sequence decoding since the start would have gained, ``more`` steps on."""
        steps = self.steps + more
        per_step = self.times.tokens_per_step
        return steps if per_step == 1 else ceil(steps * per_step)

    # What a step computes

    def _fill_step(self) -> list[tuple[Sequence, int]]:
        """The prompts' tokens of the next step; nothing where it only decodes."""
        policy = self.policy
        if policy.prefill == "drained" and not self._filling:
            return []
        budget = self.budget
        if policy.prefill == "mixed":
            budget -= self.slots * self.times.width
        chunks: list[tuple[Sequence, int]] = []
        for sequence in self.prefilling:
            if budget <= 0:
                break
            size = min(sequence.to_prefill, budget)
            chunks.append((sequence, size))
            budget -= size
        while self.waiting and budget > 0 and self.slots + len(self.prefilling) < self.max_num_seqs:
            sequence = self.waiting[0]
            size = sequence.to_prefill
            if size > budget:
                if policy.chunked:
                    size = budget
                elif chunks or (policy.prefill == "mixed" and self.slots and size <= self.budget):
                    break  # it has a step that holds it whole
            if not self._take(sequence):
                break
            self.waiting.popleft()
            if size:
                self.prefilling.append(sequence)
                chunks.append((sequence, size))
                budget -= size
            else:  # its cache was computed elsewhere
                self._begin_decode(sequence, sequence.first_s)
        return chunks

    def _take(self, sequence: Sequence) -> bool:
        """Set the cache of a sequence's prompt aside, if it fits."""
        blocks, reserve = self.blocks, self.policy.reserve
        prompt = sequence.prompt + sequence.generated
        asked = blocks.of(prompt + ceil(reserve * sequence.remaining)) + blocks.fixed
        if not blocks.fits_after(self._tokens(1), asked):
            return False
        sequence.held = asked if reserve == 1 else blocks.of(prompt) + blocks.fixed
        blocks.held += sequence.held
        if sequence.admitted_s < 0:
            sequence.admitted_s = self.clock
        return True

    # What a step changes

    def _prefill_step(self, chunks: list[tuple[Sequence, int]]) -> list[Sequence]:
        start = self.clock
        sizes = []
        ended = 0
        for sequence, size in chunks:
            before = sequence.prompt + sequence.generated - sequence.to_prefill
            sizes.append((size, before))
            ended += size == sequence.to_prefill
        mixed = self.policy.prefill == "mixed" and self.running
        slots, context = (self.slots, self.context) if mixed else (0, 0.0)
        seconds = self.times.mixed(slots, context, sizes, ended)
        self.clock = start + seconds
        tokens = sum(size for size, _ in sizes)
        self.observer.step(self, start, tokens, 1 if mixed else 0)
        done = self._decoded(1, seconds, start) if mixed else []
        for sequence, size in chunks:
            sequence.to_prefill -= size
            if not sequence.to_prefill:
                self.prefilling.remove(sequence)
                self._first_token(sequence, done)
        return done

    def _first_token(self, sequence: Sequence, done: list[Sequence]) -> None:
        sequence.generated += 1
        if sequence.first_s < 0:
            sequence.first_s = self.clock
        if sequence.remaining:
            self._begin_decode(sequence, self.clock)
        else:
            self._release(sequence)
            sequence.finish_s = self.clock
            done.append(sequence)

    def _begin_decode(self, sequence: Sequence, last: float) -> None:
        """A sequence decodes from the next step on; it had its ``last`` token then."""
        self.running[sequence.number] = sequence
        self.slots += 1
        self.context += sequence.context
        sequence.base = sequence.context - self.steps * self.times.tokens_per_step
        finish = self.steps + ceil(sequence.remaining / self.times.tokens_per_step)
        sequence.finish_step = finish
        if finish in self._ending:
            self._ending[finish].append(sequence)
        else:
            self._ending[finish] = [sequence]
            heappush(self._due, finish)
        if self.policy.reserve < 1:
            own = sequence.held - self.blocks.fixed
            self.blocks.held -= own
            sequence.held = self.blocks.fixed
            self.blocks.grow(sequence, self._tokens())
        if self._last_token and self._last_token[-1][1] == last:
            count, _ = self._last_token[-1]
            self._last_token[-1] = (count + 1, last)
        else:
            self._last_token.append((1, last))

    def _decode(self, limit: float) -> list[Sequence]:
        times, slots, context = self.times, self.slots, self.context
        self._filling = False
        steps = self._due[0] - self.steps
        if self.blocks.growing:
            steps = self._steps_that_fit(steps)
        growth = slots * times.tokens_per_step
        first = times.decode(slots, context)
        if steps > 1:
            linear = int((times.linear_up_to(slots, context) - context) / growth) + 1
            steps = min(steps, max(linear, 1))
        start = self.clock
        if steps > 1:
            last = times.decode(slots, context + (steps - 1) * growth)
            seconds = steps * (first + last) / 2
            if start + seconds > limit:
                steps, seconds = _until(limit - start, first, (last - first) / (steps - 1), steps)
        else:
            seconds = first
        self.clock = start + seconds
        self.observer.step(self, start, 0, steps)
        return self._decoded(steps, seconds, start)

    def _steps_that_fit(self, most: int) -> int:
        per_step = self.times.tokens_per_step
        tokens = self.blocks.steps_that_fit(self._tokens(), ceil(most * per_step))
        return min(most, max(1, int(tokens / per_step)))

    def _decoded(self, steps: int, seconds: float, start: float) -> list[Sequence]:
        """Count ``steps`` decode steps that took ``seconds`` from ``start``."""
        gap, running = self.observer.gap, len(self.running)
        each = seconds / steps
        for count, last in self._last_token:
            gap(start + each - last, count)
        if steps > 1:
            gap(each, (steps - 1) * running)
        self.steps += steps
        self.context += steps * self.slots * self.times.tokens_per_step
        done: list[Sequence] = []
        if self._due and self._due[0] == self.steps:
            heappop(self._due)
            done = self._ending.pop(self.steps)
            for sequence in done:
                self._end(sequence)
        self._last_token = [(len(self.running), start + seconds)] if self.running else []
        return done

    def _end(self, sequence: Sequence) -> None:
        """A decoding sequence has all its tokens."""
        del self.running[sequence.number]
        sequence.generated = sequence.output
        sequence.finish_s = self.clock
        if self.policy.padded and self.running:
            self._padded.append(sequence)
            return
        self._leave(sequence)
        if not self.running:
            for waited in self._padded:
                self._leave(waited)
            self._padded.clear()
            self._filling = True

    def _leave(self, sequence: Sequence) -> None:
        """Take a sequence out of the decode step."""
        self.slots -= 1
        self.context -= sequence.base + self.steps * self.times.tokens_per_step
        if self.policy.reserve < 1:
            self.blocks.stop(sequence)
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        self.blocks.held -= sequence.held
        sequence.held = 0.0

    def _preempt(self) -> None:
        """Take blocks from the sequences that began last until the others can grow."""
        while len(self.running) > 1 and not self.blocks.fits_after(self._tokens(1)):
            _, sequence = self.running.popitem()
            others = self._ending[sequence.finish_step]
            others.remove(sequence)
            if not others:
                del self._ending[sequence.finish_step]
                self._due.remove(sequence.finish_step)
                heapify(self._due)
            made = (sequence.finish_step - self.steps) * self.times.tokens_per_step
            sequence.generated = max(1, sequence.output - ceil(made))
            self._leave(sequence)
            self._forget_token()
            sequence.to_prefill = sequence.prompt + sequence.generated
            sequence.preemptions += 1
            self.waiting.appendleft(sequence)
            self.observer.preempted(sequence, self.clock)

    def _forget_token(self) -> None:
        count, last = self._last_token.pop()
        if count > 1:
            self._last_token.append((count - 1, last))


def _until(span: float, first: float, slope: float, steps: int) -> tuple[int, float]:
    """Steps of first, first + slope, … seconds until ``span`` is over, and their time.

    k steps take k·first + slope·k(k − 1)/2; the smallest k that reaches ``span`` is taken.
    """
    if slope > 0:
        half = first - slope / 2
        taken = (sqrt(half * half + 2 * slope * span) - half) / slope
    else:
        taken = span / first
    count = min(steps, max(1, ceil(taken - 1e-9)))
    return count, count * first + slope * count * (count - 1) / 2
