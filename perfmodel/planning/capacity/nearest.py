"""Where nothing does: the deployment that comes nearest, the limit it fails, and what would do."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.planning.capacity.answer import Choice, Nearest, Rejected
from perfmodel.planning.capacity.candidates import MEMORY
from perfmodel.planning.capacity.confirm import Confirmed, missed
from perfmodel.planning.capacity.loads import strain
from perfmodel.planning.capacity.question import Question
from perfmodel.planning.capacity.words import duration, named, rounded_up


def nearest(
    question: Question,
    failed: Sequence[Confirmed],
    too_many: Sequence[Choice],
    rejected: Sequence[Rejected],
) -> Nearest:
    """What comes nearest: too many GPUs before broken promises, those before missing memory.

    Args:
        question: what was asked.
        failed: deployments that were simulated and keep the promises at no load.
        too_many: those that keep them with more GPUs than are allowed.
        rejected: everything else that was looked at.
    """
    if too_many:
        return _too_many(question, too_many)
    if failed:
        return _too_slow(question, failed)
    return _too_large(rejected)


def _too_many(question: Question, choices: Sequence[Choice]) -> Nearest:
    least = min(choices, key=lambda c: max(m.fleet.gpus for m in c.months))
    gpus = max(month.fleet.gpus for month in least.months)
    return Nearest(
        least.hardware.name,
        least.label,
        f"GPUs: {gpus} needed, {question.rules.max_gpus} allowed",
        f"--max-gpus {gpus}",
    )


def _too_slow(question: Question, failed: Sequence[Confirmed]) -> Nearest:
    """The smallest load of each is the best that it can do."""
    least = min(failed, key=lambda f: strain(f.explorer.emptiest.level, question.promised)[0])
    run = least.explorer.emptiest
    relaxed = []
    for kind, seen in zip(question.traffic.classes, run.level.seen, strict=True):
        for name in seen.missed(kind.level):
            value = rounded_up(getattr(seen, f"{name}_s"))
            relaxed.append(f"{named(name)} of {kind.name}: {duration(value)}")
    candidate = least.candidate
    return Nearest(
        candidate.hardware.name,
        candidate.label,
        f"{missed(run, question)}, on an almost empty replica",
        "; ".join(relaxed),
    )


def _too_large(rejected: Sequence[Rejected]) -> Nearest:
    """Of those that memory is too small for, the one looked at last: most GPUs, fewest bits.

    Where it isn't memory, the first reason is as good as any. Its message says what is missing.
    """
    short = [item for item in rejected if item.reason.startswith(MEMORY)]
    last = short[-1] if short else rejected[0]
    limit, _, remedy = last.reason.rpartition("; " if "; " in last.reason else ": ")
    return Nearest(last.hardware, last.label, limit, remedy)
