"""Which optimisation gains what on one case: every lever tried, ranked, and combined."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from perfmodel.errors import InputError
from perfmodel.planning.lever import Idle, Lever, Limits, View, allowed_gpus
from perfmodel.planning.levers import LEVERS
from perfmodel.planning.options import Option, at_largest, make_option, rank_key
from perfmodel.planning.outcome import METRICS, Metric, Outcome
from perfmodel.planning.search import Search
from perfmodel.planning.situation import Estimator, Situation
from perfmodel.specs.base import Case
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload

Given = TypeVar("Given", bound=Case)


@dataclass(frozen=True, slots=True)
class Unused:
    """A lever, or one setting of it, that can't be used or has nothing to change."""

    lever: str
    setting: str
    """The setting that was refused; empty for the lever as a whole."""
    reason: str
    without: Option | None = None
    """The case without a lever that is on already."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The base case and what each change of it gives, best first."""

    base: Outcome
    base_largest: Outcome | None
    """The base case at the largest batch that fits and keeps the limits."""
    metric: Metric
    limits: Limits
    options: tuple[Option, ...]
    """Single changes, ranked by the metric: what fits first, then what keeps the limits."""
    pairs: tuple[Option, ...]
    triples: tuple[Option, ...]
    unused: tuple[Unused, ...]

    def useful(self) -> tuple[Option, ...]:
        """Single changes that fit, keep the limits and gain in the metric (or make it fit)."""
        return tuple(option for option in self.options if self.helps(option))

    def helps(self, option: Option) -> bool:
        """Whether an option is worth a line in the ranking.

        It fits and keeps the limits, and the base case doesn't, or the metric gets better at all
        noticeably.
        """
        outcome = option.outcome
        if not (outcome.fits and outcome.keeps(self.limits)):
            return False
        mended = not (self.base.fits and self.base.keeps(self.limits))
        return mended or option.gains.factor(self.metric) >= NOTICED

    @property
    def max_gpus(self) -> int:
        """GPUs that changes were allowed to use."""
        return allowed_gpus(self.base.estimate, self.limits)

    @property
    def solvable(self) -> bool:
        """Whether the case or some change of it fits."""
        every = (*self.options, *self.pairs, *self.triples)
        return self.base.fits or any(option.outcome.fits for option in every)


NOTICED = 1.02
"""Times better from which a gain is ranked; below, a lever counts as doing (next to) nothing."""


def _given(record: Given | None, kind: type[Given]) -> Given:
    """The record, or its defaults where it is None.

    Raises:
        InputError: something else was given.
    """
    if record is None:
        return kind()
    if not isinstance(record, kind):
        name = kind.__name__
        raise InputError(f"{name.lower()}: a perfmodel.{name} is needed")
    return record


def _base(
    model: Model | str | os.PathLike[str],
    hardware: Hardware | str | os.PathLike[str],
    workload: Workload | None,
    deployment: Deployment | None,
) -> Situation:
    load = _given(workload, Workload)
    for name in ("batch", "prompt", "output", "cached_prefix"):
        if np.ndim(getattr(load, name)):
            raise InputError(f"{name}: advice is about one case, not an array of them")
    return Situation(
        model=model if isinstance(model, Model) else load_model(model),
        hardware=hardware if isinstance(hardware, Hardware) else load_hardware(hardware),
        workload=load,
        deployment=_given(deployment, Deployment),
    )


def _check(metric: Metric, base: Outcome) -> None:
    if metric not in METRICS:
        raise InputError(f"--by: {metric!r:.40} is no metric; known: {', '.join(METRICS)}")
    if metric == "cost" and base.usd_per_million_tokens is None:
        raise InputError(
            f"--by cost: the profile of {base.estimate.hardware.name} has no price; give it one "
            "(price: usd_per_hour_low, usd_per_hour_high)"
        )
    if metric == "tpot" and base.tpot_s is None:
        raise InputError("--by tpot: with --output 1 no token follows the first")


def _try(lever: Lever, view: View, base: Outcome) -> tuple[list[Option], list[Unused]]:
    """The options of a lever, and what of it can't be used."""
    changes = lever.changes(view)
    if isinstance(changes, Idle):
        return [], [Unused(lever.name, "", changes.reason, _without(changes, view, base))]
    options, refused = [], []
    for change in changes:
        try:
            options.append(make_option(view.estimator, base, (change,), view.limits))
        except InputError as error:
            refused.append(Unused(lever.name, change.setting, str(error)))
    return options, refused


def _without(idle: Idle, view: View, base: Outcome) -> Option | None:
    if idle.without is None:
        return None
    try:
        return make_option(view.estimator, base, (idle.without,), view.limits)
    except InputError:
        return None  # what is on can't be taken away: the reason alone says it is on


def advise(
    model: Model | str | os.PathLike[str],
    hardware: Hardware | str | os.PathLike[str],
    workload: Workload | None = None,
    deployment: Deployment | None = None,
    *,
    by: Metric = "throughput",
    limits: Limits | None = None,
    roofline_only: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Advice:
    """Try every lever on one case, and the best pairs and triples of them.

    Args:
        model: a `Model`, or what `load_model` takes.
        hardware: a `Hardware`, or what `load_hardware` takes.
        workload: numbers, no arrays.
        deployment: the present setting.
        by: the quantity that changes are ranked and combined by.
        limits: what a change has to keep.
        roofline_only: the datasheet's roof instead of a calibration.
        progress: called with the number of estimates made so far.

    Raises:
        InputError: one line: what `estimate` refuses, arrays, or a metric without a value.
    """
    situation = _base(model, hardware, workload, deployment)
    estimator = Estimator(roofline_only=roofline_only, progress=progress)
    base = Outcome(situation, estimator.of(situation))
    _check(by, base)
    view = View(base.estimate, situation, limits or Limits(), estimator)
    options: list[Option] = []
    unused: list[Unused] = []
    for lever in LEVERS:
        found, idle = _try(lever, view, base)
        options += found
        unused += idle
    options.sort(key=lambda option: rank_key(option, by, view.limits))
    largest = at_largest(estimator, situation, view.limits)
    pairs, triples = Search(view, base, largest, by).combine(options)
    return Advice(
        base=base,
        base_largest=largest,
        metric=by,
        limits=view.limits,
        options=tuple(options),
        pairs=pairs,
        triples=triples,
        unused=tuple(unused),
    )
