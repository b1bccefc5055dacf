"""Several engines: replicas behind a router, and pools that prefill and decode apart.

Engines run ahead of each other where nothing can reach them: each has a time before which it ends
no sequence, and the least of those and of the next arrival is as far as any of them may go. A
request therefore meets the state of its own time, and stretches are still jumped over.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from perfmodel.serving.arrivals import Source
from perfmodel.serving.engine import Engine, Transfer
from perfmodel.serving.occupancy import Occupancy
from perfmodel.serving.recorder import Recorder, Watch
from perfmodel.serving.router import Router
from perfmodel.serving.sequence import Sequence


class Replica:
    """One instance of a cluster, run no further than others' events allow."""

    def __init__(self, engine: Engine, watch: Watch, *, prefills_only: bool = False) -> None:
        self.instance = engine.instance(watch)
        self.watch = watch
        self.prefills_only = prefills_only
        self.load = 0
        self.link_free_s = 0.0
        self.bound = inf
        """A time before which no sequence ends; infinite where nothing runs."""
        self._stuck = False
        """The first waiting sequence isn't admitted before another ends."""
        self._blocked = False
        """Nothing runs, and what waits needs memory that transfers hold."""

    @property
    def rests(self) -> bool:
        """Nothing runs until something comes."""
        return self._blocked or self.instance.idle

    def update_bound(self) -> None:
        """Find `bound` anew."""
        engine = self.instance
        if self.rests:
            self.bound = inf
        elif engine.running and (self._stuck or not (engine.waiting or engine.prefilling)):
            self.bound = engine.earliest_end()
        else:
            self.bound = engine.clock

    def advance(self, limit: float) -> list[Sequence]:
        """Run to the next event, or until the step that is running at ``limit`` ends."""
        engine = self.instance
        before = self._admissions()
        done = engine.advance(limit)
        nothing_new = not done and bool(engine.waiting) and self._admissions() == before
        self._stuck = nothing_new and bool(engine.running)
        self._blocked = nothing_new and not engine.running
        return done

    def _admissions(self) -> tuple[int, int, int]:
        """What differs after an advance in which a sequence came in, went on, or was sent back."""
        return len(self.instance.waiting), self.watch.prefill_tokens, self.watch.preemptions

    def rest_until(self, now: float) -> None:
        """Bring an engine that runs nothing to ``now``."""
        if self.rests and self.instance.clock < now:
            self.watch.rests(self.instance, now)
            self.instance.clock = now

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a sequence with an engine that has run to ``now``."""
        self.rest_until(now)
        if self.instance.clock > now:
            self.watch.waits(now, self.instance.clock)
        self.instance.submit(sequence, now)
        self.load += 1

    def release(self, sequence: Sequence, held: float, now: float) -> None:
        """Free what an engine kept of a prompt; it has run to ``now``."""
        self.rest_until(now)
        self.instance.drop(sequence, held)
        self._stuck = self._blocked = False


class Cluster:
    """Replicas of one engine, or one pool that prefills and one that decodes.

    Args:
        recorder: is told of everything.
        router: chooses the replica of each request.
        engine: what the replicas are.
        replicas: how many.
        decode: of the pool that decodes, if it is another: its engine, replicas and router.
        transfer: between the pools.
    """

    def __init__(
        self,
        recorder: Recorder,
        router: Router,
        engine: Engine,
        replicas: int,
        decode: tuple[Engine, int, Router] | None = None,
        transfer: Transfer | None = None,
    ) -> None:
        self._recorder = recorder
        self._router = router
        self._transfer = transfer
        self._entrance = self._pool(engine, replicas, prefills_only=decode is not None)
        self._decoding = self._pool(decode[0], decode[1]) if decode else []
        self._decode_router = decode[2] if decode else router
        self._outputs: dict[int, int] = {}
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._bounds: list[tuple[float, int, Replica]] = []

    def _pool(self, engine: Engine, replicas: int, *, prefills_only: bool = False) -> list[Replica]:
        watch = Watch(self._recorder, Occupancy(engine.capacity, replicas))
        return [Replica(engine, watch, prefills_only=prefills_only) for _ in range(replicas)]

    def run(self, source: Source) -> None:
        """Serve every request."""
        self._source = source
        upcoming = next(source.arrivals, None)
        while True:
            arrival = upcoming.arrival_s if upcoming else inf
            event = self._events[0][0] if self._events else inf
            replica = self._least_bound()
            bound = replica.bound if replica else inf
            if replica and bound < min(arrival, event):
                heappop(self._bounds)
                replica.bound = inf
                behind = self._least_bound()
                self._advance(replica, min(arrival, event, behind.bound if behind else inf))
            elif self._events and event <= arrival:
                now, _, act, arguments = heappop(self._events)
                act(now, *arguments)
            elif upcoming:
                self._arrive(arrival, upcoming)
                upcoming = next(source.arrivals, None)
            else:
                break
        for replica in (*self._entrance, *self._decoding):
            replica.rest_until(self._recorder.last_end)

    def _least_bound(self) -> Replica | None:
        """The engine that may end a sequence first; its entry is the heap's first."""
        bounds = self._bounds
        while bounds:
            bound, _, replica = bounds[0]
            if bound == replica.bound:
                return replica
            heappop(bounds)  # it has changed since
        return None

    def _bound_anew(self, replica: Replica) -> None:
        before = replica.bound
        replica.update_bound()
        if before != replica.bound < inf:
            heappush(self._bounds, (replica.bound, next(self._order), replica))

    def _push(self, time: float, act: Callable[..., None], *arguments: Any) -> None:
        heappush(self._events, (time, next(self._order), act, arguments))

    def _advance(self, replica: Replica, limit: float) -> None:
        done = replica.advance(limit)
        if done:
            now = replica.instance.clock
            self._push(now, self._ended, replica, done)
            if replica.prefills_only:
                for sequence in done:
                    self._hand_over(now, replica, sequence)
        self._bound_anew(replica)

    def _catch_up(self, replica: Replica, now: float) -> None:
        while not replica.rests and replica.instance.clock < now:
            self._advance(replica, now)

    def _arrive(self, now: float, sequence: Sequence) -> None:
        self._recorder.arrived(sequence)
        replica = self._entrance[self._router.choose(self._entrance, sequence.prefix)]
        if replica.prefills_only:  # one token is all that is asked of it
            self._outputs[sequence.number] = sequence.output
            sequence.output = 1
        self._submit(now, replica, sequence)

    def _submit(self, now: float, replica: Replica, sequence: Sequence) -> None:
        self._catch_up(replica, now)
        replica.submit(sequence, now)
        self._bound_anew(replica)

    def _ended(self, now: float, replica: Replica, done: list[Sequence]) -> None:
        replica.load -= len(done)
        done = [sequence for sequence in done if sequence.finish_s >= 0]
        if not done:
            return
        self._recorder.ended(done)
        for sequence in self._source.follow_all(len(done), now):
            if sequence.arrival_s > now:
                self._push(sequence.arrival_s, self._arrive, sequence)
            else:
                self._arrive(now, sequence)

    def _hand_over(self, now: float, replica: Replica, sequence: Sequence) -> None:
        """Send a prompt's cache on its way, if there is more to generate."""
        sequence.output = self._outputs.pop(sequence.number)
        if sequence.output == 1 or self._transfer is None:
            return
        sequence.finish_s = -1.0
        held = replica.instance.keep(sequence)
        start = max(now, replica.link_free_s)
        replica.link_free_s = start + self._transfer.occupied_s(sequence.prompt)
        arrived = replica.link_free_s + self._transfer.latency_s
        self._push(arrived, self._delivered, replica, sequence, held)

    def _delivered(self, now: float, sender: Replica, sequence: Sequence, held: float) -> None:
        self._catch_up(sender, now)
        sender.release(sequence, held, now)
        self._bound_anew(sender)
        chosen = self._decode_router.choose(self._decoding, sequence.prefix)
        self._submit(now, self._decoding[chosen], sequence)


def serve_alone(engine: Engine, source: Source, recorder: Recorder) -> None:
    """Serve every request with one instance: what a cluster of one does, in less time."""
    watch = Watch(recorder, Occupancy(engine.capacity, 1))
    replica = Replica(engine, watch)
    instance = replica.instance
    upcoming = next(source.arrivals, None)
    while True:
        limit = upcoming.arrival_s if upcoming else inf
        if instance.idle or instance.clock >= limit:
            if upcoming is None:
                break
            recorder.arrived(upcoming)
            replica.submit(upcoming, limit)
            upcoming = next(source.arrivals, None)
            continue
        done = instance.advance(limit)
        if not done:
            continue
        recorder.ended(done)
        if source.follows:
            followers = source.follow_all(len(done), instance.clock)
            recorder.followed(followers)
            instance.submit_all(followers, instance.clock)
