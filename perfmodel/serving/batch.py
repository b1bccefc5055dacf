"""The sequences that decode: each step gives every one of them the same number of tokens.

So a sequence's end is known when it begins, and a stretch of steps costs as much work as one.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import ceil

from perfmodel.serving.blocks import Blocks
from perfmodel.serving.sequence import Sequence
from perfmodel.serving.step_times import Observer, StepTimes

TOUCH = 1e-9
"""Of a token: what rounding may add to a whole number of them."""
SPREAD = 0.01
"""Step times of one stretch that differ by less are told as one gap."""


class Batch:
    """The decoding sequences of one engine.

    Args:
        times: gives the tokens of a step.
        blocks: the cache.
        observer: is told of the gaps between tokens.
        grows: whether sequences' blocks grow with their tokens, or are held from the start.
        padded: whether a slot stays computed until all have ended.
    """

    def __init__(
        self, times: StepTimes, blocks: Blocks, observer: Observer, *, grows: bool, padded: bool
    ) -> None:
        self.per_step = times.tokens_per_step
        self.blocks = blocks
        self.grows = grows
        self.padded = padded
        self._gap = observer.gap
        self.running: dict[int, Sequence] = {}
        """By number, in the order in which they began."""
        self.slots = 0
        """Sequences that a step computes: those that decode, and padded ones."""
        self.context = 0
        """Tokens in the cache of all that a step computes."""
        self.ahead = 0
        """Context that all of them will have had in the end."""
        self.steps = 0
        self.tokens = 0
        """Tokens that a sequence decoding since the start would have gained."""
        self.due: list[int] = []
        """Steps at whose end sequences end, as a heap."""
        self._ending: dict[int, list[Sequence]] = {}
        self._last: list[tuple[int, float]] = []
        """How many sequences had their last token when, in the order in which they began."""
        self._waiting: list[Sequence] = []
        """Ended sequences that keep their slots."""

    @property
    def to_come(self) -> int:
        """Tokens that the decoding sequences have still to generate."""
        return self.ahead - self.context

    def tokens_after(self, steps: int) -> int:
        """What `tokens` will be ``steps`` steps on."""
        if self.per_step == 1:
            return self.tokens + steps
        return ceil((self.steps + steps) * self.per_step - TOUCH)

    def _finish_step(self, sequence: Sequence) -> int:
        target = self.tokens + sequence.remaining
        steps = max(1, int(sequence.remaining / self.per_step) - 1)
        while self.tokens_after(steps) < target:
            steps += 1
        return self.steps + steps

    def begin(self, sequences: list[Sequence], last_s: float) -> None:
        """Take in sequences, prefilled and with tokens to come, whose last one came at ``last_s``.

        What was held for their context grows from now on.
        """
        running, ending, steps, tokens = self.running, self._ending, self.steps, self.tokens
        one = self.per_step == 1
        context = ahead = 0
        for sequence in sequences:
            running[sequence.number] = sequence
            own = sequence.prompt + sequence.generated - 1
            context += own
            left = sequence.output - sequence.generated
            ahead += own + left
            sequence.born = own - tokens
            finish = steps + left if one else self._finish_step(sequence)
            sequence.finish_step = finish
            if finish in ending:
                ending[finish].append(sequence)
            else:
                ending[finish] = [sequence]
                heappush(self.due, finish)
        self.context += context
        self.ahead += ahead
        self.slots += len(sequences)
        if self.grows:
            self.blocks.grow(sequences)
        if self._last and self._last[-1][1] == last_s:
            self._last[-1] = (self._last[-1][0] + len(sequences), last_s)
        else:
            self._last.append((len(sequences), last_s))

    def advance(self, steps: int, start: float, first: float, seconds: float) -> list[Sequence]:
        """Run ``steps`` steps from ``start``, no further than the next end.

        Args:
            steps: at least one.
            start: when the first begins.
            first: its time.
            seconds: the time of all.

        Returns:
            The sequences that have all their tokens, in no slot any more (see `leavers`).
        """
        before = self.tokens
        if self.per_step == 1:
            each, gained = 1, steps
        else:
            each, gained = self.tokens_after(1) - before, self.tokens_after(steps) - before
        self.steps += steps
        self.tokens += gained
        self.context += gained * self.slots
        running = len(self.running)
        late = (gained - each) * running
        done: list[Sequence] = []
        if self.due and self.due[0] == self.steps:
            heappop(self.due)
            done = self._ending.pop(self.steps)
            if self.per_step != 1:
                late -= self._tell_ended(done, before, steps, (start, first, seconds))
            for sequence in done:
                del self.running[sequence.number]
                sequence.generated = sequence.output
                sequence.finish_s = start + seconds
        self._tell_first(start + first, each)
        if steps > 1:
            # Sequences that end have told their last step already.
            told = len(done) if self.per_step != 1 else 0
            self._tell_stretch(steps - 1, first, seconds - first, (late, running, told))
        self._last = [(running - len(done), start + seconds)] if running > len(done) else []
        return done

    def _tell_ended(
        self, done: list[Sequence], before: int, steps: int, times: tuple[float, float, float]
    ) -> int:
        """The last gaps of sequences that end: the tokens that they keep share the step's time.

        Args:
            done: those sequences, still with what they had when they began to decode.
            before: `tokens` before the stretch.
            steps: of the stretch.
            times: its start, and the seconds of its first step and of all.

        Returns the tokens of its later steps that are told so.
        """
        start, first, seconds = times
        end = start + seconds
        each = self.tokens - (before if steps == 1 else self.tokens_after(-1))
        since = end - (2 * seconds / steps - first)  # the steps' times lie on a line
        for sequence in done:
            kept = each - (sequence.born + self.tokens - sequence.prompt - sequence.output + 1)
            if steps == 1:
                fresh = sequence.born + before < sequence.prompt + sequence.generated
                since = self._taken(newest=fresh)
            self._gap((end - since) / kept, kept)
        return 0 if steps == 1 else each * len(done)

    def _taken(self, *, newest: bool) -> float:
        """When one of those that began last, or first, had its last token; it is counted out."""
        places = range(len(self._last))
        place = next(i for i in (reversed(places) if newest else places) if self._last[i][0])
        count, last = self._last[place]
        self._last[place] = (count - 1, last)
        return last

    def _tell_first(self, end: float, each: int) -> None:
        """The gaps that a step closes; the tokens of one sequence share its gap evenly."""
        for count, last in self._last:
            if count:
                self._gap((end - last) / each, count * each)

    def _tell_stretch(
        self, steps: int, first: float, seconds: float, counts: tuple[int, int, int]
    ) -> None:
        """Gaps of ``steps`` steps after the first, each longer than the last.

        ``counts``: tokens that came in them, to how many sequences, and of how many the last step
        is told.
        """
        tokens, running, fewer = counts
        if not tokens:
            return
        share = (steps * running - fewer) / tokens  # steps from a token to the next
        mean = seconds / steps
        # The k-th takes first + k·slope, so that all take steps·first + slope·steps·(steps + 1)/2.
        slope = 2 * (mean - first) / (steps + 1)
        pieces = min(steps, int(abs(slope) * steps / (SPREAD * first)) + 1)
        if pieces == 1:
            self._gap(mean * share, tokens)
            return
        told = given = 0
        for piece in range(1, pieces + 1):
            until = steps * piece // pieces
            upto = tokens * until // steps
            middle = first + slope * (told + 1 + until) / 2
            self._gap(middle * share, upto - given)
            told, given = until, upto

    def leavers(self, done: list[Sequence]) -> list[Sequence]:
        """Those whose slots become free when ``done`` have ended; they are taken out."""
        if self.padded:
            self._waiting += done
            if self.running:
                return []
            done, self._waiting = self._waiting, []
        self._leave(done)
        return done

    def _leave(self, sequences: list[Sequence]) -> None:
        self.slots -= len(sequences)
        context = ahead = 0
        for sequence in sequences:
            context += sequence.born
            ahead += sequence.prompt + sequence.output - 1
        self.context -= context + self.tokens * len(sequences)
        self.ahead -= ahead
        if self.grows:
            self.blocks.stop(sequences)

    def take_last(self) -> Sequence:
        """Take out the sequence that began last, with the tokens that it has so far."""
        _, sequence = self.running.popitem()
        others = self._ending[sequence.finish_step]
        others.remove(sequence)
        if not others:
            del self._ending[sequence.finish_step]
            self.due.remove(sequence.finish_step)
            heapify(self.due)
        self._leave([sequence])
        sequence.generated = sequence.born + self.tokens - sequence.prompt + 1
        count, sequence.last_s = self._last.pop()
        if count > 1:
            self._last.append((count - 1, sequence.last_s))
        return sequence
