"""Attention data parallelism: replicas of attention that share experts, as one engine.

Each rank is an `Instance` with a queue, seats, a cache and a step's tokens of its own; a sequence
stays on its rank for life. A step runs on all ranks at once and takes as long as the slowest needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import inf

from perfmodel.serving.fill import fill_step
from perfmodel.serving.instance import Instance
from perfmodel.serving.lockstep import LockstepSteps, Share
from perfmodel.serving.router import LeastLoaded
from perfmodel.serving.sequence import Sequence, Work
from perfmodel.serving.step_times import Chunk, Observer, steps_until


class Together(Collection[Sequence]):
    """The sequences of all ranks in one of their collections."""

    def __init__(self, parts: list[Collection[Sequence]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Sequence]:
        for part in self._parts:
            yield from part

    def __contains__(self, item: object) -> bool:
        return any(item in part for part in self._parts)


class Rank(Instance):
    """One rank: an engine whose steps others begin and end.

    What follows is what `Instance.advance` does at once: cut up there, its calls would cost every
    simulation of one engine 2 to 3 %.
    """

    def plan(self) -> Work:
        """Make room for the next step, and choose its prompts."""
        if self.overflows:
            self._preempt()
        if self.prefixes is not None:
            self.prefixes.make_room(self.batch.tokens_after(1))
        return fill_step(self) if self.waiting or self.prefilling else []

    def share(self, work: Work) -> tuple[Share, list[Sequence]]:
        """What it computes in a step with these chunks, counted as done; prompts that end."""
        chunks: list[Chunk] = []
        ended: list[Sequence] = []
        for sequence, size in work:
            left = sequence.to_prefill
            chunks.append((size, sequence.prompt + sequence.generated - left))
            sequence.to_prefill = left - size
            if size == left:
                ended.append(sequence)
        decodes = bool(self.running) and (self.mixes or not work)
        slots, context = (self.batch.slots, self.batch.context) if decodes else (0, 0.0)
        return Share(slots, context, tuple(chunks), len(ended)), ended

    def stepped(
        self, share: Share, ended: list[Sequence], start: float, seconds: float
    ) -> list[Sequence]:
        """Give out the tokens of a step in which some rank had prompts; those that ended."""
        if not share.chunks:
            return self.decoded(1, start, seconds, seconds) if share.sequences else []
        done: list[Sequence] = []
        if share.sequences:
            done = self._leave(self.batch.advance(1, start, seconds, seconds))
        self._first_tokens(ended, done)
        return done

    def decoded(self, steps: int, start: float, first: float, seconds: float) -> list[Sequence]:
        """Give out the tokens of ``steps`` without prompts, as of `Batch.advance`; what ended."""
        self.filling = False
        if self.prefixes is not None:
            self.prefixes.make_room(self.batch.tokens_after(steps))
        return self._leave(self.batch.advance(steps, start, first, seconds))

    def steps_to_event(self) -> int:
        """Decode steps up to the next end or full cache."""
        steps = self.batch.due[0] - self.batch.steps
        if self.blocks.growing and steps > 1:
            return self._steps_that_fit(steps)
        return steps


class Ranks:
    """Ranks in lockstep, as an `Instance` is used.

    Args:
        times: what their steps take.
        ranks: the instances, which are all alike and step only when this says so.
        observer: what is told of steps; the ranks tell it of tokens and gaps.
    """

    def __init__(self, times: LockstepSteps, ranks: list[Rank], observer: Observer) -> None:
        self.times = times
        self.ranks = ranks
        self.observer = observer
        self.clock = 0.0
        self.longest = ranks[0].longest
        """Tokens, prompt and output, of the longest request that one rank can serve."""
        self.waiting = Together([rank.waiting for rank in ranks])
        self.prefilling = Together([rank.prefilling for rank in ranks])
        self.running = Together([rank.running.values() for rank in ranks])
        self._router = LeastLoaded()

    @property
    def idle(self) -> bool:
        """Nothing to do until a request comes."""
        return all(rank.idle for rank in self.ranks)

    def cache_used(self, steps: int = 0) -> float:
        """Blocks in use on all ranks ``steps`` decode steps on."""
        return sum(rank.cache_used(steps) for rank in self.ranks)

    def earliest_end(self) -> float:
        """As `Instance.earliest_end`."""
        if any(rank.overflows for rank in self.ranks):
            return self.clock
        steps, first, last = self._stretch()
        return self.clock + steps * (first + last) / 2

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue one sequence, as `submit_all` does."""
        self.submit_all([sequence], now)

    def submit_all(self, sequences: list[Sequence], now: float) -> None:
        """Queue sequences at ``now``, each with the rank that has the fewest.

        Raises:
            InputError: one never fits a rank, however empty it is.
        """
        if now > self.clock and self.idle:
            self.clock = now
        for sequence in sequences:
            sequence.rank = self._router.choose(self.ranks, ())
            self.ranks[sequence.rank].submit(sequence, now)

    def keep(self, sequence: Sequence) -> float:
        """As `Instance.keep`, on the sequence's rank."""
        return self.ranks[sequence.rank].keep(sequence)

    def drop(self, sequence: Sequence, held: float) -> None:
        """As `Instance.drop`."""
        self.ranks[sequence.rank].drop(sequence, held)

    def advance(self, limit: float = inf) -> list[Sequence]:
        """Run to the next event of any rank, or as `Instance.advance` until ``limit``."""
        self._set(self.clock)
        works = [rank.plan() for rank in self.ranks]
        if any(works):
            return self._prompts_step(works)
        return self._decode(limit) if self.running else []

    def _set(self, clock: float) -> None:
        self.clock = clock
        for rank in self.ranks:
            rank.clock = clock

    def _prompts_step(self, works: list[Work]) -> list[Sequence]:
        """One step; ranks without a prompt decode beside those that have some."""
        begun = self.clock
        start = begun + self._moved()
        parts = [rank.share(work) for rank, work in zip(self.ranks, works, strict=True)]
        seconds = self.times.mixed([share for share, _ in parts])
        self._set(start + seconds)
        ended = sum(share.ended for share, _ in parts)
        decodes = any(share.sequences for share, _ in parts)
        self.observer.runs(self, begun, ended, int(decodes))
        done: list[Sequence] = []
        for rank, (share, ends) in zip(self.ranks, parts, strict=True):
            done += rank.stepped(share, ends, start, seconds)
        tokens = sum(size for work in works for _, size in work)
        self.observer.step(self, begun, tokens)
        return done

    def _decode(self, limit: float) -> list[Sequence]:
        """A stretch of steps in which all that decode do."""
        steps, first, last = self._stretch()
        begun = self.clock
        start = begun + self._moved()
        seconds = steps * (first + last) / 2
        if steps > 1 and start + seconds > limit:
            slope = (last - first) / (steps - 1)
            steps, seconds = steps_until(limit - start, first, slope, steps)
        self._set(start + seconds)
        self.observer.runs(self, begun, 0, steps)
        done: list[Sequence] = []
        for rank in self.ranks:
            if rank.running:
                done += rank.decoded(steps, start, first, seconds)
        self.observer.step(self, begun, 0)
        return done

    def _stretch(self) -> tuple[int, float, float]:
        """As `Instance._stretch`, up to the next event of any rank."""
        running = [rank for rank in self.ranks if rank.running]
        steps = min(rank.steps_to_event() for rank in running)
        shares = [Share(rank.batch.slots, rank.batch.context) for rank in running]
        return self.times.stretch(shares, steps)

    def _moved(self) -> float:
        """The transfers that a step waits for: the longest of a rank's."""
        return max(rank.moved() for rank in self.ranks)
