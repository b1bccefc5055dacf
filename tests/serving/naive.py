"""The engine again, without any of its shortcuts: every step and every sequence by itself.

Without speculation, prefix caching, swap and padding.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from perfmodel.serving.policy import Policy


class Naive:
    """One engine with paged blocks; ``sent`` are (arrival, prompt, output)."""

    def __init__(
        self, policy: Policy, times: Any, capacity: float, block: int, seqs: int, budget: int
    ) -> None:
        self.policy, self.times = policy, times
        self.capacity, self.block = capacity, block
        self.seqs, self.budget = seqs, budget
        self.waiting: list[dict[str, Any]] = []
        self.prefilling: list[dict[str, Any]] = []
        self.running: list[dict[str, Any]] = []
        self.filling = True
        self.clock = 0.0
        self.preemptions = 0

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.prefilling) + len(self.running)

    def of(self, tokens: float) -> int:
        return -int(-tokens // self.block)

    def takes(self, s: dict[str, Any], more: int) -> int:
        """Blocks of an admitted sequence, ``more`` tokens of decoding from now."""
        if self.policy.reserve == 1:
            return self.of(s["prompt"] + s["output"])
        if s in self.prefilling:
            return self.of(s["prompt"] + s["made"])
        return self.of(s["prompt"] + s["made"] - 1 + more)

    def used(self, more: int) -> int:
        return sum(self.takes(s, more) for s in [*self.prefilling, *self.running])

    def run(self, sent: list[tuple[float, int, int]]) -> list[tuple[int, float, float]]:
        ended: list[tuple[int, float, float]] = []
        todo = [request(n, *row) for n, row in enumerate(sent)]
        while len(ended) < len(sent):
            if not (self.waiting or self.prefilling or self.running):
                self.clock = max(self.clock, todo[0]["arrival"])
            while todo and todo[0]["arrival"] <= self.clock:
                self.waiting.append(todo.pop(0))
            self.preempt()
            chunks = self.fill()
            self.clock += self.seconds(chunks)
            self.step(chunks)
            ended += self.leave()
        return sorted(ended)

    def leave(self) -> list[tuple[int, float, float]]:
        """Take out what has ended: number, times of first and last token."""
        done = [s for s in self.running if s["made"] == s["output"]]
        for s in done:
            self.running.remove(s)
        if not self.running:
            self.filling = True
        return [(s["number"], s["first"], self.clock) for s in done]

    def preempt(self) -> None:
        while self.running and self.used(1) > self.capacity:
            victims = self.prefilling or self.running
            if victims is self.running and len(self.running) == 1:
                return
            s = victims.pop()
            s["left"] = s["prompt"] + s["made"]
            self.waiting.insert(0, s)
            self.preemptions += 1

    def fill(self) -> list[tuple[dict[str, Any], int]]:
        policy, chunks = self.policy, []
        if policy.prefill == "drained" and not self.filling:
            return []
        left = self.budget - (len(self.running) if policy.prefill == "mixed" else 0)
        for s in self.prefilling:
            if left > 0:
                chunks.append((s, min(s["left"], left)))
                left -= chunks[-1][1]
        reserve = policy.reserve
        coming = sum(s["output"] - s["made"] for s in [*self.prefilling, *self.running])
        free = self.capacity - self.used(1) - (reserve < 1) * reserve * coming / self.block
        while self.waiting and left > 0 and len(self.running + self.prefilling) < self.seqs:
            s = self.waiting[0]
            if s["left"] > left and not policy.chunked:
                beside = policy.prefill == "mixed" and self.running
                if chunks or (beside and s["left"] <= self.budget):
                    break
            asked = self.of(s["prompt"] + s["made"] + ceil(reserve * (s["output"] - s["made"])))
            if asked > free:
                break
            free -= asked
            self.prefilling.append(self.waiting.pop(0))
            size = min(s["left"], left) if policy.chunked else s["left"]
            chunks.append((s, size))
            left -= size
        return chunks

    def decoding(self, chunks: list[tuple[dict[str, Any], int]]) -> list[dict[str, Any]]:
        """What decodes in a step with these chunks."""
        return list(self.running) if not chunks or self.policy.prefill == "mixed" else []

    def seconds(self, chunks: list[tuple[dict[str, Any], int]]) -> float:
        decoding = self.decoding(chunks)
        context = sum(s["prompt"] + s["made"] - 1 for s in decoding)
        return float(self.times.mixed(len(decoding), context, [(n, 0) for _, n in chunks], 0))

    def step(self, chunks: list[tuple[dict[str, Any], int]]) -> None:
        """What a step that has ended at the clock makes."""
        if self.running and not chunks:
            self.filling = False
        for s in self.decoding(chunks):
            s["made"] += 1
        for s, size in chunks:
            s["left"] -= size
            if not s["left"]:
                self.prefilling.remove(s)
                self.running.append(s)
                s["made"] += 1
                s.setdefault("first", self.clock)


class NaiveRanks:
    """Engines of which each request gets one, and whose steps end together."""

    def __init__(self, ranks: list[Naive]) -> None:
        self.ranks = ranks

    def run(self, sent: list[tuple[float, int, int]]) -> list[tuple[int, float, float]]:
        ended: list[tuple[int, float, float]] = []
        todo = [request(n, *row) for n, row in enumerate(sent)]
        clock, last = 0.0, -1
        while len(ended) < len(sent):
            if not any(rank.load for rank in self.ranks):
                clock = max(clock, todo[0]["arrival"])
            while todo and todo[0]["arrival"] <= clock:
                turns = [(last + 1 + n) % len(self.ranks) for n in range(len(self.ranks))]
                last = min(turns, key=lambda n: self.ranks[n].load)
                self.ranks[last].waiting.append(todo.pop(0))
            works = []
            for rank in self.ranks:
                rank.preempt()
                works.append(rank.fill())
            busy = [
                (rank, work)
                for rank, work in zip(self.ranks, works, strict=True)
                if rank.running or work
            ]
            clock += max(rank.seconds(work) for rank, work in busy)
            for rank, work in busy:
                rank.clock = clock
                rank.step(work)
                ended += rank.leave()
        return sorted(ended)


def request(number: int, arrival: float, prompt: int, output: int) -> dict[str, Any]:
    return {
        "number": number, "arrival": arrival, "prompt": prompt, "output": output, "made": 0,
        "left": prompt,
    }  # fmt: skip
