"""One engine: it admits sequences, runs steps, and jumps over stretches in which nothing changes.

Between two events (an arrival, a sequence's end, a full cache) every decode step has the same
sequences, each some tokens longer: the stretch is one jump, whose time is the integral of the step
time over the context.
"""

from __future__ import annotations

from collections import deque
from math import ceil, inf

from perfmodel.serving.batch import Batch
from perfmodel.serving.blocks import Blocks
from perfmodel.serving.fill import fill_step
from perfmodel.serving.kv_cache import KvCache
from perfmodel.serving.policy import Policy
from perfmodel.serving.prefix_cache import PrefixCache
from perfmodel.serving.sequence import Sequence, Work
from perfmodel.serving.step_times import Chunk, Observer, StepTimes, steps_until
from perfmodel.serving.tier import Tier


class Instance:
    """The state of one engine.

    Args:
        times: what its steps take.
        blocks: its cache.
        policy: how it fills a step.
        max_num_seqs: sequences that it holds at most, decoding or being prefilled.
        max_num_batched_tokens: tokens of a step at most.
        observer: what is told of tokens, gaps and steps.
        prefixes: prompts that stay cached in ``blocks``; None: each is computed.
        swap: host memory for sequences that are preempted; None: they are computed again.
    """

    def __init__(
        self,
        times: StepTimes,
        blocks: Blocks,
        policy: Policy,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        observer: Observer,
        *,
        prefixes: PrefixCache | None = None,
        swap: Tier | None = None,
    ) -> None:
        self.times = times
        self.blocks = blocks
        self.policy = policy
        self.max_num_seqs = max_num_seqs
        self.budget = max_num_batched_tokens
        self.observer = observer
        self.prefixes = prefixes
        self.cache = KvCache(blocks, policy, ceil(times.tokens_per_step), prefixes, swap)
        grows = policy.reserve < 1 and blocks.grows
        self.batch = Batch(times, blocks, observer, grows=grows, padded=policy.padded)
        self.clock = 0.0
        self.waiting: deque[Sequence] = deque()
        self.prefilling: deque[Sequence] = deque()
        """Sequences whose prompts are computed in part."""
        self.running = self.batch.running
        """Decoding sequences by number, in the order in which they began."""
        self.mixes = policy.prefill == "mixed"
        self.drains = policy.prefill == "drained"
        self.filling = True
        """A batch that is run until it has drained still takes sequences in."""
        self._spare = 0 if times.tokens_per_step == 1 else ceil(times.tokens_per_step) + 1

    @property
    def idle(self) -> bool:
        """Nothing to do until a request comes."""
        return not (self.running or self.waiting or self.prefilling)

    @property
    def load(self) -> int:
        """Sequences in the engine, waiting ones too."""
        return len(self.running) + len(self.waiting) + len(self.prefilling)

    @property
    def longest(self) -> int:
        """Tokens, prompt and output, of the longest request that it can serve."""
        return self.cache.longest - self._spare

    @property
    def overflows(self) -> bool:
        """The next decode step doesn't fit into the cache."""
        blocks = self.blocks
        return bool(blocks.growing) and not blocks.fits_after(self.batch.tokens_after(1))

    def cache_used(self, steps: int = 0) -> float:
        """Blocks in use ``steps`` decode steps on."""
        return self.blocks.used(self.batch.tokens_after(steps))

    def earliest_end(self) -> float:
        """A time before which no sequence ends or is preempted, if no prompt is admitted.

        Needs a decoding sequence.
        """
        if self.overflows:
            return self.clock
        steps, first, last = self._stretch()
        return self.clock + steps * (first + last) / 2

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue one sequence, as `submit_all` does."""
        self.submit_all([sequence], now)

    def submit_all(self, sequences: list[Sequence], now: float) -> None:
        """Queue sequences at ``now``, which isn't before what it has run to.

        Raises:
            InputError: one never fits, however empty the engine is.
        """
        longest = self.longest
        for sequence in sequences:
            if sequence.prompt + sequence.output > longest:
                self.cache.refuse(sequence, self._spare)
        if now > self.clock and self.idle:
            self.clock = now
        self.waiting += sequences

    def advance(self, limit: float = inf) -> list[Sequence]:
        """Run to the next event, or until the step that is running at ``limit`` ends.

        Returns the sequences that ended, at `clock`.
        """
        blocks = self.blocks
        if blocks.growing and not blocks.fits_after(self.batch.tokens_after(1)):
            self._preempt()
        if self.prefixes is not None:
            self.prefixes.make_room(self.batch.tokens_after(1))
        if self.waiting or self.prefilling:
            work = fill_step(self)
            if work:
                return self._prefill_step(work)
        return self._decode(limit) if self.running else []

    def _prefill_step(self, work: Work) -> list[Sequence]:
        batch = self.batch
        start = self.clock + self.moved()
        chunks: list[Chunk] = []
        ended: list[Sequence] = []
        tokens = 0
        for sequence, size in work:
            left = sequence.to_prefill
            chunks.append((size, sequence.prompt + sequence.generated - left))
            tokens += size
            sequence.to_prefill = left - size
            if size == left:
                ended.append(sequence)
        begun = self.clock
        mixed = self.mixes and bool(self.running)
        slots, context = (batch.slots, batch.context) if mixed else (0, 0.0)
        seconds = self.times.mixed(slots, context, chunks, len(ended))
        self.clock = start + seconds
        self.observer.runs(self, begun, len(ended), int(mixed))
        done = self._leave(batch.advance(1, start, seconds, seconds)) if mixed else []
        self._first_tokens(ended, done)
        self.observer.step(self, begun, tokens)
        return done

    def _first_tokens(self, sequences: list[Sequence], done: list[Sequence]) -> None:
        clock = self.clock
        begun: list[Sequence] = []
        for sequence in sequences:
            made = sequence.generated + 1
            sequence.generated = made
            if sequence.first_s < 0:
                sequence.first_s = clock
            else:  # computed again
                self.observer.gap(clock - sequence.last_s, 1)
            if made < sequence.output:
                begun.append(sequence)
            else:
                sequence.finish_s = clock
                self.cache.release([sequence])
                done.append(sequence)
        if begun:
            self.batch.begin(begun, clock)

    def _decode(self, limit: float) -> list[Sequence]:
        """A stretch of steps. What doesn't fit into the cache now fits less on the way.

        (Where a share of outputs must be free, rounding to blocks may let it in steps earlier.)
        """
        batch = self.batch
        self.filling = False
        steps, first, last = self._stretch()
        begun = self.clock
        start = begun + self.moved()
        seconds = steps * (first + last) / 2
        if steps > 1 and start + seconds > limit:
            slope = (last - first) / (steps - 1)
            steps, seconds = steps_until(limit - start, first, slope, steps)
        self.clock = start + seconds
        self.observer.runs(self, begun, 0, steps)
        if self.prefixes is not None:
            self.prefixes.make_room(batch.tokens_after(steps))
        done = self._leave(batch.advance(steps, start, first, seconds))
        self.observer.step(self, begun, 0)
        return done

    def _stretch(self) -> tuple[int, float, float]:
        """Steps up to the next end, full cache or bend of the step time; those of first and last.

        Between them the steps' times lie on a line.
        """
        times, batch = self.times, self.batch
        slots, context = batch.slots, batch.context
        steps = batch.due[0] - batch.steps
        if self.blocks.growing and steps > 1:
            steps = self._steps_that_fit(steps)
        first = times.decode(slots, context)
        if steps == 1:
            return 1, first, first
        growth = slots * times.tokens_per_step
        reach = times.linear_up_to(slots, context)
        if context + (steps - 1) * growth > reach:
            steps = max(1, int((reach - context) / growth) + 1)
        return steps, first, times.decode(slots, context + (steps - 1) * growth)

    def moved(self) -> float:
        """The transfers that a step waits for."""
        seconds, self.cache.moving_s = self.cache.moving_s, 0.0
        return seconds

    def _steps_that_fit(self, most: int) -> int:
        """Steps until the cache is full, at least the one that is known to fit."""
        batch = self.batch
        gained = batch.tokens_after(most) - batch.tokens
        fit = self.blocks.tokens_that_fit(batch.tokens, gained)
        if fit >= gained:
            return most
        steps = max(1, int(fit / batch.per_step))
        while steps > 1 and batch.tokens_after(steps) - batch.tokens > fit:
            steps -= 1
        return steps

    def _leave(self, done: list[Sequence]) -> list[Sequence]:
        """Give back what the ended ones held, once their slots are free."""
        if done:
            self.cache.release(self.batch.leavers(done))
            if not self.running:
                self.filling = True
        return done

    def _preempt(self) -> None:
        """Take blocks from the sequences that came last until the others can grow."""
        batch = self.batch
        while not self.blocks.fits_after(batch.tokens_after(1)):
            if self.prefilling:
                sequence = self.prefilling.pop()
                self.cache.release([sequence])
                sequence.to_prefill = sequence.prompt + sequence.generated
            elif len(self.running) > 1:
                sequence = batch.take_last()
                self.cache.give_way(sequence)
            else:
                return
            sequence.preemptions += 1
            self.waiting.appendleft(sequence)
            self.observer.preempted(sequence, self.clock)

    def keep(self, sequence: Sequence) -> float:
        """Keep the cache of a prompt that has just ended; the blocks to give to `drop`."""
        blocks, prefixes = self.blocks, self.prefixes
        held = blocks.of(sequence.prompt) + blocks.fixed_of(sequence.prompt + 1)
        if prefixes is not None:
            match = prefixes.match(sequence)
            prefixes.take(sequence, match)
            held -= match.blocks
            sequence.to_prefill = 0
        blocks.held += held
        return held

    def drop(self, sequence: Sequence, held: float) -> None:
        """Free what `keep` held."""
        self.blocks.held -= held
        if self.prefixes is not None:
            self.prefixes.release([sequence])
