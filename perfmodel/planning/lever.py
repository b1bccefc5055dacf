"""What a lever is: changes of a case, what they cost beside time, and when there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from perfmodel.inference.estimate import Estimate
from perfmodel.planning.situation import Estimator, Situation

Topic = Literal["formats", "cache", "execution", "parallel", "batching", "elsewhere"]
Values = tuple[tuple[str, Any], ...]
"""Fields of a record with their new values."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a change costs beside what the estimate says, in words; empty: nothing."""

    accuracy: str = ""
    memory: str = ""
    complexity: str = ""

    @property
    def words(self) -> str:
        """All of it on one line."""
        return "; ".join(part for part in (self.accuracy, self.memory, self.complexity) if part)


@dataclass(frozen=True, slots=True)
class Change:
    """One setting of a lever: the fields that it sets."""

    lever: str
    setting: str
    """The change in a few words: ``weights fp8``."""
    price: Price
    deployment: Values = ()
    workload: Values = ()
    grows: bool = False
    """Sets the batch to the largest that fits (and keeps the limits), whatever else is changed."""
    excludes: frozenset[str] = frozenset()
    """Further fields that it makes pointless to set, as ``workload.batch``."""
    remark: str = ""
    """What the numbers leave out or rest on."""
    supposes: bool = False
    """Rests on traffic that the case doesn't state: shown, but not combined."""

    @property
    def fields(self) -> frozenset[str]:
        """What it sets, as ``deployment.tp``."""
        own = {f"deployment.{name}" for name, _ in self.deployment}
        own |= {f"workload.{name}" for name, _ in self.workload}
        return frozenset(own | {"workload.batch"} if self.grows else own)

    def combines_with(self, other: Change) -> bool:
        """Whether both can be made together: other levers, other fields."""
        apart = not (self.fields | self.excludes) & other.fields and not (
            other.excludes & self.fields
        )
        return self.lever != other.lever and apart


@dataclass(frozen=True, slots=True)
class Idle:
    """A lever that has nothing to change here, and why."""

    reason: str
    without: Change | None = None
    """For one that is on already: taking it away, whose loss says what it gains now."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a change has to keep."""

    ttft_s: float | None = None
    """Longest time to first token, in seconds."""
    tpot_s: float | None = None
    """Longest time per output token, in seconds."""
    max_gpus: int | None = None
    """GPUs at most; None: eight, or as many as the case has."""


@dataclass(frozen=True, slots=True)
class View:
    """What a lever sees of the case."""

    base: Estimate
    situation: Situation
    limits: Limits
    estimator: Estimator
    """For levers whose reason is a number."""

    @property
    def max_gpus(self) -> int:
        """GPUs that a change may use."""
        return allowed_gpus(self.base, self.limits)


NODE_GPUS = 8
"""GPUs of the servers that most accelerators are sold in."""


def allowed_gpus(base: Estimate, limits: Limits) -> int:
    """GPUs that a change may use: as stated, else a server's; never fewer than the case has."""
    return max(base.plan.parallel.gpus, limits.max_gpus or NODE_GPUS)


@dataclass(frozen=True, slots=True)
class Lever:
    """Something that can be switched on; ``changes`` says what there is to change here."""

    name: str
    topic: Topic
    changes: Callable[[View], tuple[Change, ...] | Idle]
