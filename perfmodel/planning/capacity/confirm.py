"""Candidates put to the test: the largest load that each carries in the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfmodel.errors import InputError
from perfmodel.planning.capacity.candidates import Candidate
from perfmodel.planning.capacity.loads import Explored, Explorer, strain
from perfmodel.planning.capacity.question import Question
from perfmodel.planning.capacity.ranking import Predicted, bound
from perfmodel.planning.capacity.trial import Run, Trial
from perfmodel.planning.capacity.words import duration, named

START = 0.85
"""Share of the mean field's load that is tried first: percentiles bind before means do."""
WORTH = 1.04
"""A setting must carry so many times the load to take another's place."""
ROOM = 0.7
"""Share of the promised TTFT below which a smaller batch, in which more wait, may pay."""
MULTIPLE = 8
"""Batch limits are multiples of it."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A candidate as simulated."""

    candidate: Candidate
    explorer: Explorer
    explored: Explored

    @property
    def best(self) -> Run | None:
        """The largest load that keeps every promise."""
        return self.explored.best

    @property
    def rate(self) -> float:
        """Of the best load; 0 where none does."""
        return self.best.level.rate if self.best else 0.0


def confirm(candidate: Candidate, predicted: Predicted, question: Question) -> Confirmed:
    """Simulate ascending loads of one candidate.

    Raises:
        InputError: a request that is drawn can never be served.
    """
    trial = Trial(candidate, question, predicted.e2e_s)
    explorer = Explorer(trial.at, question.promised, predicted.capacity)
    explored = explorer.explore(START * (predicted.rate or predicted.capacity))
    return Confirmed(candidate, explorer, explored)


def tuned(found: Confirmed, question: Question) -> Confirmed:
    """``found`` under the batch limit and chunk size with which it carries most.

    A setting is explored where it keeps the promises at a load 4 % above the best so far.
    """
    for candidate in _settings(found, question):
        predicted = Predicted.of(bound(candidate, question), question)
        target = WORTH * found.rate
        if predicted.capacity <= target:
            continue
        trial = Trial(candidate, question, predicted.e2e_s)
        try:
            first = trial.at(target)
        except InputError:
            continue
        if not (first.steady and first.level.keeps(question.promised)):
            continue
        explorer = Explorer(trial.at, question.promised, predicted.capacity)
        explored = explorer.explore(target)
        if explored.best is not None:
            found = Confirmed(candidate, explorer, explored)
    return found


def _settings(found: Confirmed, question: Question) -> Iterator[Candidate]:
    """Batch limits and chunks that may help against what limits ``found``, if they aren't fixed."""
    base, failed = found.candidate, found.explored.failed
    if failed is None or base.serving.disaggregate:
        return
    limit = strain(failed.level, question.promised)[2]
    engine = base.case.engine
    if "max_num_seqs" not in question.fixed and limit in {"tpot", "e2e"}:
        most = _largest_batch(base, question) // engine.ranks // MULTIPLE * MULTIPLE
        if MULTIPLE <= most < engine.max_num_seqs and _waits_little(found, question):
            yield from _made(base, max_num_seqs=most)
    if "max_num_batched_tokens" not in question.fixed and engine.policy.chunked:
        budget = engine.max_num_batched_tokens
        for factor in (2, 0.5) if limit == "ttft" else (0.25, 2):
            yield from _made(base, max_num_batched_tokens=int(budget * factor))


def _made(base: Candidate, **values: int) -> Iterator[Candidate]:
    made = base.varied(**values)
    if made is not None:
        yield made


def _largest_batch(candidate: Candidate, question: Question) -> int:
    """Sequences up to which TPOT is kept on average."""
    return int(Predicted.of(bound(candidate, question), question).users)


def _waits_little(found: Confirmed, question: Question) -> bool:
    best = found.best
    if best is None:
        return True
    pairs = zip(best.level.seen, question.promised, strict=True)
    return all(p.ttft_s is None or s.ttft_s < ROOM * p.ttft_s for s, p in pairs)


def load_limit(explored: Explored, question: Question) -> str:
    """What the load after the best one would exceed, in words; empty where none was simulated."""
    failed = explored.failed
    if failed is None:
        return "its capacity, beyond which a queue only grows"
    return missed(failed, question)


def missed(run: Run, question: Question) -> str:
    """The worst limit that a load exceeds, with value and promise; or that its queue grows."""
    worst, index, name = strain(run.level, question.promised)
    if not run.steady and worst <= 1:
        return f"a queue that keeps growing at {run.level.rate:.3g} requests/s"
    kind, seen = question.traffic.classes[index], run.level.seen[index]
    value, limit = getattr(seen, f"{name}_s"), getattr(kind.level, f"{name}_s")
    return (
        f"{named(name)} of {kind.name}: {duration(value)} at p{question.traffic.percentile:g}, "
        f"{duration(limit)} promised"
    )
