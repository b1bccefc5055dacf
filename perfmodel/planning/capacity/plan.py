"""How many GPUs of which kind a traffic needs at its service levels, and what they cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan

from perfmodel.planning.capacity.answer import (
    Choice,
    Month,
    Plan,
    Range,
    Rejected,
    Terms,
)
from perfmodel.planning.capacity.candidates import Candidate, candidates
from perfmodel.planning.capacity.energy import energy_of
from perfmodel.planning.capacity.loads import Explored, Trial, explore
from perfmodel.planning.capacity.ranking import Predicted, predict
from perfmodel.planning.capacity.requests import mean_tokens, parts_of
from perfmodel.planning.capacity.sizing import Fleet, Level, Needs, best_level, size_fleet
from perfmodel.serving.mix import Part
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import Model
from perfmodel.specs.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Rules:
    """How a plan is made, beside traffic and deployment."""

    utilisation: float = 0.8
    spare: int = 1
    usd_per_gpu_hour: Mapping[str, float] = field(default_factory=dict)
    max_gpus: int | None = None
    confirm: int = 6
    seed: int = 0


def plan(
    model: Model | str | os.PathLike[str],
    hardware: Sequence[Hardware | str | os.PathLike[str]],
    traffic: Traffic,
    deployment: Deployment | None = None,
    rules: Rules | None = None,
    *,
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """Deployments that serve ``traffic`` at its service levels, cheapest first."""
    rules = rules or Rules()
    model = model if isinstance(model, Model) else load_model(model)
    kinds = [h if isinstance(h, Hardware) else load_hardware(h) for h in hardware]
    given = deployment or Deployment()
    fixed = frozenset(given.model_fields_set)
    parts = parts_of(traffic)
    terms = _terms(kinds, rules)
    found = [c for kind in kinds for c in candidates(model, kind, given, fixed)]
    ranked = sorted(
        ((c, predict(c, traffic, parts)) for c in found),
        key=lambda pair: _cost(pair[0], pair[1].rate, traffic, parts, terms),
    )
    choices: list[Choice] = []
    rejected: list[Rejected] = []
    for candidate, predicted in ranked[: rules.confirm]:
        if not predicted.rate:
            continue
        made = _confirmed(candidate, predicted, traffic, parts, terms, rules)
        if isinstance(made, Choice):
            choices.append(made)
        else:
            rejected.append(made)
    choices.sort(key=lambda c: c.fleet.usd_per_hour)
    front = [replace(c, front=_on_front(c, choices)) for c in choices]
    return Plan(model, traffic, terms, tuple(front), tuple(rejected), None, len(found))


def _terms(kinds: Sequence[Hardware], rules: Rules) -> Terms:
    prices, sources = {}, {}
    for kind in kinds:
        stated = rules.usd_per_gpu_hour.get(kind.name)
        own = kind.price_usd_per_hour
        if stated is not None:
            prices[kind.name], sources[kind.name] = Range(stated, stated), "as stated"
        elif own is not None and kind.price is not None:
            prices[kind.name] = Range(*own)
            sources[kind.name] = f"{kind.price.source or 'no source'} ({kind.price.date})"
    return Terms(rules.utilisation, rules.spare, prices, sources)


def _needs(
    traffic: Traffic, parts: tuple[Part, ...], terms: Terms, usd: float, month: int
) -> Needs:
    prompt, output = mean_tokens(traffic, parts)
    return Needs(
        traffic.rate_at(month), traffic.peak, prompt, output, terms.utilisation_target,
        terms.spare, usd,
    )  # fmt: skip


def _cost(
    candidate: Candidate, rate: float, traffic: Traffic, parts: tuple[Part, ...], terms: Terms
) -> float:
    if not rate:
        return float("inf")
    price = terms.usd_per_gpu_hour.get(candidate.hardware.name)
    needs = _needs(traffic, parts, terms, price.middle if price else nan, 0)
    return size_fleet(rate, candidate.gpus, 0.5, needs).usd_per_hour


def _confirmed(
    candidate: Candidate,
    predicted: Predicted,
    traffic: Traffic,
    parts: tuple[Part, ...],
    terms: Terms,
    rules: Rules,
) -> Choice | Rejected:
    trial = Trial(candidate, traffic, parts, rules.seed)
    promised = tuple(c.level for c in traffic.classes)
    explored = explore(
        lambda rate: trial.at(rate, predicted.e2e_s), promised, 0.8 * predicted.rate,
        predicted.capacity,
    )  # fmt: skip
    level = best_level(explored.levels, promised)
    if level is None:
        return Rejected(candidate.hardware.name, str(candidate.deployment.tp), "misses")
    return _choice(candidate, explored, level, traffic, parts, terms)


def _choice(
    candidate: Candidate,
    explored: Explored,
    level: Level,
    traffic: Traffic,
    parts: tuple[Part, ...],
    terms: Terms,
) -> Choice:
    kind = candidate.hardware
    price = terms.usd_per_gpu_hour.get(kind.name)
    share = 0.5

    def fleet(usd: float, month: int = 0) -> Fleet:
        needs = _needs(traffic, parts, terms, usd, month)
        return size_fleet(level.rate, candidate.gpus, share, needs)

    first = fleet(price.middle if price else nan)
    low, high = (fleet(price.low), fleet(price.high)) if price else (None, None)

    def between(name: str) -> Range | None:
        return Range(getattr(low, name), getattr(high, name)) if low and high else None

    prompt, output = mean_tokens(traffic, parts)
    energy = None
    if kind.tdp_w is not None:
        busy = level.utilisation * traffic.rate / (first.replicas * level.rate)
        energy = energy_of(kind.tdp_w, first.gpus, busy, traffic.rate * (prompt + output))
    return Choice(
        hardware=kind,
        deployment=candidate.deployment,
        serving=candidate.serving,
        gpus_per_replica=candidate.gpus,
        levels=explored.levels,
        level=level,
        load_limit="",
        prefill_share=share,
        fleet=first,
        usd_per_hour=between("usd_per_hour"),
        usd_per_million_prompt_tokens=between("usd_per_million_prompt_tokens"),
        usd_per_million_output_tokens=between("usd_per_million_output_tokens"),
        energy=energy,
        months=tuple(
            Month(m, traffic.rate_at(m), fleet(price.middle if price else nan, m))
            for m in range(traffic.months + 1)
        ),
        calibration=candidate.case.calibration,
        settings=(f"--tensor-parallel-size {candidate.deployment.tp}",),
        front=False,
    )


def _on_front(choice: Choice, choices: Sequence[Choice]) -> bool:
    def tpot(c: Choice) -> float:
        return max((s.tpot_s or 0.0) for s in c.level.seen)

    mine = choice.fleet.usd_per_hour, tpot(choice)
    others = [(c.fleet.usd_per_hour, tpot(c)) for c in choices if c is not choice]
    return not any(o[0] <= mine[0] and o[1] <= mine[1] and o != mine for o in others)
