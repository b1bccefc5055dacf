"""How many GPUs of which kind a traffic needs at its service levels, and what they cost."""

from __future__ import annotations

import os
from collections.abc import Sequence

from perfmodel.errors import InputError
from perfmodel.planning.capacity.answer import Choice, Plan, Rejected
from perfmodel.planning.capacity.choice import made_choice
from perfmodel.planning.capacity.front import with_front
from perfmodel.planning.capacity.loads import CURVE, SKETCH
from perfmodel.planning.capacity.nearest import nearest
from perfmodel.planning.capacity.question import Question, Rules, terms_of
from perfmodel.planning.capacity.requests import parts_of
from perfmodel.planning.capacity.search import Progress, Search
from perfmodel.serving.policy import policy_named
from perfmodel.serving.router import router_named
from perfmodel.serving.serve import Serving
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import Model
from perfmodel.specs.traffic import Traffic

CURVES = 3
"""Choices whose whole curves are simulated, the cheapest first."""
Kind = Hardware | str | os.PathLike[str]


def plan(
    model: Model | str | os.PathLike[str],
    hardware: Kind | Sequence[Kind],
    traffic: Traffic,
    deployment: Deployment | None = None,
    rules: Rules | None = None,
    *,
    serving: Serving | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Deployments that serve ``traffic`` at its service levels, cheapest first.

    Args:
        model: a `Model`, or what `load_model` takes.
        hardware: one kind or several, each a `Hardware` or what `load_hardware` takes.
        traffic: request classes with their shares, lengths and promises; rate, peak and growth.
        deployment: what is fixed: fields that are set are kept, even at their defaults
            (``Deployment(tp=1)``); the others are searched, as far as a plan searches them. Engine,
            stack and the like are taken as they are. Speculation is looked at beside plain
            decoding, with the acceptance that is stated.
        rules: utilisation target, spare replicas, prices, formats, most GPUs.
        serving: scheduler and router; pools and prefix caching where they are fixed.
        progress: is told how far the search is.

    Returns:
        The plan; without choices where nothing does, and then with what comes nearest.

    Raises:
        InputError: one line that names what is wrong, and what would do.
    """
    rules, serving = rules or Rules(), serving or Serving()
    router_named(serving.router)
    if serving.scheduler is not None:
        policy_named(serving.scheduler)
    kinds = _kinds(hardware)
    given = deployment or Deployment()
    question = Question(
        model=model if isinstance(model, Model) else load_model(model),
        traffic=traffic,
        parts=parts_of(traffic),
        given=given,
        fixed=frozenset(given.model_fields_set),
        serving=serving,
        rules=rules,
        terms=terms_of(kinds, rules),
    )
    search = Search(question, progress)
    search.run(kinds)
    return _answer(question, search)


def _kinds(hardware: Kind | Sequence[Kind]) -> tuple[Hardware, ...]:
    several = [hardware] if isinstance(hardware, Hardware | str | os.PathLike) else list(hardware)
    kinds = tuple(h if isinstance(h, Hardware) else load_hardware(h) for h in several)
    if not kinds:
        raise InputError("--hardware: at least one kind is needed, such as h100-sxm")
    names = [kind.name for kind in kinds]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--hardware: {name} is given twice: leave one out, or rename it")
    return kinds


def _answer(question: Question, search: Search) -> Plan:
    rejected = list(search.rejected)
    few: list[Choice] = []
    many: list[Choice] = []
    for place, found in enumerate(search.found):
        if found.best is None:
            continue
        search.tell("fleets", place, len(search.found))
        shares = CURVE if place < CURVES else SKETCH
        choice = made_choice(found, found.best, question, shares)
        allowed = _within(choice, question)
        (few if allowed else many).append(choice)
        if not allowed:
            gpus = max(month.fleet.gpus for month in choice.months)
            reason = f"needs {gpus} GPUs, {question.rules.max_gpus} are allowed"
            rejected.append(Rejected(choice.hardware.name, choice.label, reason))
    return Plan(
        model=question.model,
        traffic=question.traffic,
        terms=question.terms,
        choices=with_front(few),
        rejected=tuple(rejected),
        nearest=None if few else nearest(question, search.failed, many, rejected),
        considered=search.considered,
    )


def _within(choice: Choice, question: Question) -> bool:
    most = question.rules.max_gpus
    return most is None or all(month.fleet.gpus <= most for month in choice.months)
