"""What a capacity plan says: the records that the command line, workbook and report read."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.planning.capacity.sizing import Fleet, Level
from perfmodel.serving.serve import Serving
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model
from perfmodel.specs.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Range:
    """A figure that is known between two ends."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The mean of both."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class Terms:
    """What a plan was asked for beside the traffic."""

    utilisation_target: float
    spare: int
    usd_per_gpu_hour: dict[str, Range]
    """By hardware: the profile's price, or the user's."""
    price_source: dict[str, str]


@dataclass(frozen=True, slots=True)
class Month:
    """The fleet of one month."""

    month: int
    rate: float
    fleet: Fleet
    """At the middle price."""


@dataclass(frozen=True, slots=True)
class Energy:
    """Electric power of the GPUs alone, from TDP, idle share and utilisation."""

    watts: Range
    """Of the whole fleet at the mean rate."""
    kwh_per_million_tokens: Range
    """Prompt and output tokens together."""
    source: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One deployment that meets the service levels, simulated and sized."""

    hardware: Hardware
    deployment: Deployment
    serving: Serving
    gpus_per_replica: int
    levels: tuple[Level, ...]
    """The replica under ascending loads."""
    level: Level
    """The largest load that keeps every service level."""
    load_limit: str
    """What the next load would exceed, in words; empty at the last one."""
    prefill_share: float
    """Prefill's share of the time that steps take at ``level``."""
    fleet: Fleet
    """Of the first month at the middle price."""
    usd_per_hour: Range | None
    usd_per_million_prompt_tokens: Range | None
    usd_per_million_output_tokens: Range | None
    energy: Energy | None
    """None where the profile has no TDP."""
    months: tuple[Month, ...]
    calibration: str
    """Where kernel times come from."""
    settings: tuple[str, ...]
    """What differs from the engine's defaults, as flags."""
    front: bool
    """Whether no other choice is both cheaper and faster for the user, who gets a token every
    TPOT of the busiest hour."""
    label: str = ""
    """Layout, formats and settings in a few words."""
    busiest: Level | None = None
    """A replica in the busiest hour of the first month, all replicas running: what users see."""
    risks: tuple[str, ...] = ()
    """What number formats other than the model's own cost in accuracy, with the source."""

    @property
    def tpot_s(self) -> float | None:
        """What the worst served class waits for a token in the busiest hour; None of one token."""
        seen = (self.busiest or self.level).seen
        return max((s.tpot_s for s in seen if s.tpot_s is not None), default=None)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A deployment that was looked at and isn't offered."""

    hardware: str
    label: str
    """Its layout and formats in a few words."""
    reason: str


@dataclass(frozen=True, slots=True)
class Nearest:
    """Where nothing meets the service levels: the setting that comes nearest, and what it gives."""

    hardware: str
    label: str
    limit: str
    """The first limit that fails: ``memory``, ``ttft of CLASS``, …, with value and promise."""
    would_do: str
    """A promise or change with which it would do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How many GPUs of which kind, in which layout, at what cost; cheapest first."""

    model: Model
    traffic: Traffic
    terms: Terms
    choices: tuple[Choice, ...]
    rejected: tuple[Rejected, ...]
    nearest: Nearest | None
    """Set where ``choices`` is empty."""
    considered: int
    """Deployments that were looked at."""

    @property
    def best(self) -> Choice | None:
        """The cheapest choice."""
        return self.choices[0] if self.choices else None
