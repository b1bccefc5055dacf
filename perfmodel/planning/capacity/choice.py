"""A confirmed deployment as a fleet: sized, priced, with what its users see and what it draws."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import numpy as np

from perfmodel.planning.capacity.answer import Choice, Energy, Month, Range
from perfmodel.planning.capacity.candidates import Candidate
from perfmodel.planning.capacity.confirm import Confirmed, load_limit
from perfmodel.planning.capacity.energy import energy_of
from perfmodel.planning.capacity.question import Question
from perfmodel.planning.capacity.sizing import Fleet, Level, size_fleet
from perfmodel.planning.capacity.trial import Run
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import load_engine

FLAGS = {
    "tp": "--tensor-parallel-size",
    "pp": "--pipeline-parallel-size",
    "ep": "--expert-parallel-size",
    "dp": "--data-parallel-size",
    "weights": "--quantization",
    "kv_cache": "--kv-cache-dtype",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
}
"""Fields that a plan searches, as the flags that `perfmodel` takes; most are vLLM's."""


def fleet_of(
    candidate: Candidate, question: Question, rate: float, share: float, usd: float, month: int = 0
) -> Fleet:
    """Replicas of ``candidate`` for a month, each of which carries ``rate``."""
    return size_fleet(rate, candidate.gpus, share, question.needs(usd, month))


def middle_price(candidate: Candidate, question: Question) -> float:
    """USD per GPU and hour; NaN without a price."""
    price = question.price(candidate.hardware)
    return nan if price is None else price.middle


def made_choice(
    found: Confirmed, best: Run, question: Question, shares: Sequence[float] = ()
) -> Choice:
    """The fleet of ``found``, each replica carrying at most the load of ``best``.

    ``shares``: of that load, at which the replica is simulated too.
    """
    candidate, rate, share = found.candidate, best.level.rate, best.prefill_share
    price, usd = question.price(candidate.hardware), middle_price(candidate, question)
    fleets = [
        fleet_of(candidate, question, rate, share, usd, month)
        for month in range(question.traffic.months + 1)
    ]
    busiest = found.explorer.at(question.traffic.peak_at(0) / fleets[0].replicas)
    ends = None
    if price is not None:
        ends = [fleet_of(candidate, question, rate, share, end) for end in (price.low, price.high)]

    def between(name: str) -> Range | None:
        return None if ends is None else Range(*(getattr(fleet, name) for fleet in ends))

    explored = found.explorer.widen(shares)
    return Choice(
        hardware=candidate.hardware,
        deployment=candidate.deployment,
        serving=candidate.serving,
        gpus_per_replica=candidate.gpus,
        levels=explored.levels,
        level=best.level,
        load_limit=load_limit(explored, question),
        prefill_share=share,
        fleet=fleets[0],
        usd_per_hour=between("usd_per_hour"),
        usd_per_million_prompt_tokens=between("usd_per_million_prompt_tokens"),
        usd_per_million_output_tokens=between("usd_per_million_output_tokens"),
        energy=_energy(candidate, question, fleets[0], explored.levels),
        months=tuple(
            Month(month, question.traffic.rate_at(month), fleet)
            for month, fleet in enumerate(fleets)
        ),
        calibration=candidate.case.calibration,
        settings=settings(candidate),
        front=False,
        label=candidate.label,
        busiest=busiest.level,
        risks=candidate.risks,
    )


def _energy(
    candidate: Candidate, question: Question, fleet: Fleet, levels: Sequence[Level]
) -> Energy | None:
    """At the mean rate, spread over all replicas, the spare ones too."""
    tdp_w = candidate.hardware.tdp_w
    if tdp_w is None:
        return None
    mean = question.traffic.rate / fleet.replicas
    return energy_of(
        tdp_w, fleet.gpus, busy_share(levels, mean), question.traffic.rate * sum(question.tokens)
    )


def busy_share(levels: Sequence[Level], rate: float) -> float:
    """The share of time in which steps run, between the loads that were simulated and none."""
    rates = [0.0, *(level.rate for level in levels)]
    return float(np.interp(rate, rates, [0.0, *(level.utilisation for level in levels)]))


def settings(candidate: Candidate) -> tuple[str, ...]:
    """What a deployment sets otherwise than its engine does by itself, as flags."""
    d, serving, default = candidate.deployment, candidate.serving, Deployment()
    flags = [
        f"{flag} {getattr(d, name)}"
        for name, flag in FLAGS.items()
        if getattr(d, name) != getattr(default, name)
    ]
    if d.speculation is not None:
        said = d.speculation
        flags.append(f"--speculative-method {said.method}")
        if said.tokens is not None:
            flags.append(f"--num-speculative-tokens {said.tokens}")
    if serving.disaggregate is not None:
        flags.append("--disaggregate {}:{}".format(*serving.disaggregate))
    preset = load_engine(d.engine).scheduler
    caches = preset is not None and preset.prefix_caching
    if serving.prefix_caching and not caches:
        flags.append("--prefix-caching")
    return tuple(flags)
