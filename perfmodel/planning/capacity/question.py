"""What a plan is asked: model, traffic, what is fixed, and the rules by which a fleet is sized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from perfmodel.errors import InputError
from perfmodel.planning.capacity.answer import Range, Terms
from perfmodel.planning.capacity.requests import mean_tokens
from perfmodel.planning.capacity.sizing import Needs
from perfmodel.serving.mix import Part
from perfmodel.serving.serve import Serving
from perfmodel.specs.base import FieldError
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model
from perfmodel.specs.traffic import ServiceLevel, Traffic


@dataclass(frozen=True, slots=True)
class Rules:
    """How a plan is made, beside traffic and deployment.

    Raises:
        InputError: names the field, its value and what would do.
    """

    utilisation: float = 0.8
    """Share of a replica's greatest load that it gets in the busiest hour."""
    spare: int = 1
    """Replicas that may fail while the others still hold the busiest hour: 1 is N+1."""
    usd_per_gpu_hour: Mapping[str, float] = field(default_factory=dict)
    """Rent of one GPU by hardware, in place of the profile's range."""
    max_gpus: int | None = None
    """GPUs of the whole fleet at most, in any month."""
    weights: tuple[str, ...] = ()
    """Formats of weights to look at; empty: the checkpoint's, and FP8 where the chip has it."""
    kv_cache: tuple[str, ...] = ()
    """Formats of the cache, likewise."""
    disaggregated: bool = True
    """Whether pools that prefill and decode apart are looked at too."""
    confirm: int = 8
    """Deployments that are simulated until so many are found that do."""
    seed: int = 0
    """Of the simulated requests."""

    def __post_init__(self) -> None:
        if not 0 < self.utilisation <= 1:
            raise InputError(f"--utilisation: must lie above 0, up to 1 (got {self.utilisation})")
        for flag, value, low in (
            ("--spare", self.spare, 0), ("--confirm", self.confirm, 1), ("--seed", self.seed, 0),
            ("--max-gpus", 1 if self.max_gpus is None else self.max_gpus, 1),
        ):  # fmt: skip
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= 10**6:
                raise InputError(f"{flag}: a whole number from {low} on is needed (got {value!r})")
        _check_formats("--weight-formats", "weights", self.weights)
        _check_formats("--kv-formats", "kv_cache", self.kv_cache)
        for name, usd in self.usd_per_gpu_hour.items():
            if not (usd > 0 and isfinite(usd)):
                raise InputError(f"--price: {name}={usd}: must be above 0 USD per GPU and hour")


def _check_formats(flag: str, field: str, names: tuple[str, ...]) -> None:
    for name in names:
        try:
            Deployment.model_validate({field: name})
        except FieldError as error:
            raise InputError(f"{flag}: {error.problem}") from None


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that is the same for all deployments of one plan."""

    model: Model
    traffic: Traffic
    parts: tuple[Part, ...]
    """The traffic's classes, as the simulator takes them."""
    given: Deployment
    fixed: frozenset[str]
    """Fields of ``given`` that the user set: they aren't searched."""
    serving: Serving
    """As given: scheduler, router, and pools or prefix caching where they are fixed."""
    rules: Rules
    terms: Terms

    @property
    def promised(self) -> tuple[ServiceLevel, ...]:
        """The service levels by class."""
        return tuple(c.level for c in self.traffic.classes)

    @property
    def tokens(self) -> tuple[float, float]:
        """Mean prompt and output tokens of a request."""
        return mean_tokens(self.traffic)

    def price(self, hardware: Hardware) -> Range | None:
        """USD per GPU and hour."""
        return self.terms.usd_per_gpu_hour.get(hardware.name)

    def needs(self, usd_per_gpu_hour: float, month: int = 0) -> Needs:
        """What the fleet of a month is sized for."""
        return needs_of(self.traffic, self.terms, usd_per_gpu_hour, month)


def needs_of(traffic: Traffic, terms: Terms, usd_per_gpu_hour: float, month: int = 0) -> Needs:
    """What the fleet of a month is sized for; ``usd_per_gpu_hour`` NaN where nobody knows it."""
    prompt, output = mean_tokens(traffic)
    return Needs(
        rate=traffic.rate_at(month),
        peak=traffic.peak,
        prompt=prompt,
        output=output,
        utilisation_target=terms.utilisation_target,
        spare=terms.spare,
        usd_per_gpu_hour=usd_per_gpu_hour,
    )


def terms_of(kinds: tuple[Hardware, ...], rules: Rules) -> Terms:
    """Prices of each hardware with their source.

    Raises:
        InputError: a price of hardware that isn't asked about.
    """
    known = [kind.name for kind in kinds]
    for name in rules.usd_per_gpu_hour:
        if name not in known:
            raise InputError(f"--price: {name[:40]!r} isn't among --hardware: {', '.join(known)}")
    prices: dict[str, Range] = {}
    sources: dict[str, str] = {}
    for kind in kinds:
        stated, own = rules.usd_per_gpu_hour.get(kind.name), kind.price
        if stated is not None:
            prices[kind.name], sources[kind.name] = Range(stated, stated), "as stated"
        elif own is not None:
            prices[kind.name] = Range(own.usd_per_hour_low, own.usd_per_hour_high)
            when = f" ({own.date})" if own.date else ""
            sources[kind.name] = f"{own.source or 'the profile states no source'}{when}"
    return Terms(rules.utilisation, rules.spare, prices, sources)
