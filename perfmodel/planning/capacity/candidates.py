"""Which deployments are looked at: layouts and formats that are sensible, and whether they fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from perfmodel.errors import CapacityError, InputError
from perfmodel.inference.format_choice import resolve_formats
from perfmodel.planning.capacity.answer import Rejected
from perfmodel.planning.capacity.formats import Named, named_formats, risks
from perfmodel.planning.capacity.layouts import LAYOUT, Layout, layouts, wide_layouts
from perfmodel.planning.capacity.question import Question
from perfmodel.planning.situation import changed
from perfmodel.serving.serve import Served, Serving, served
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import load_engine
from perfmodel.specs.hardware import Hardware

MEMORY = "memory: "
"""How reasons begin where something doesn't fit."""
LIMITS = {"max_num_seqs": "at most {:,} sequences", "max_num_batched_tokens": "chunk {:,}"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One replica that might do."""

    hardware: Hardware
    deployment: Deployment
    serving: Serving
    case: Served = field(repr=False, compare=False)
    risks: tuple[str, ...] = ()
    """What its formats cost in accuracy beside the model's own."""

    @property
    def gpus(self) -> int:
        """Of one replica, all pools and data-parallel ranks counted."""
        pools = self.serving.disaggregate
        return self.case.plan.parallel.gpus * (sum(pools) if pools else self.case.replicas)

    @property
    def label(self) -> str:
        """Layout, formats and what else sets it apart, in a few words."""
        return label_of(self.deployment, self.serving)

    def with_serving(self, serving: Serving) -> Candidate:
        """The same deployment, served otherwise."""
        return replace(self, serving=serving)

    def varied(self, **values: Any) -> Candidate | None:
        """The same replica under other settings; None where they don't fit."""
        deployment = changed(self.deployment, values)
        try:
            case = fitted(self.case, deployment, self.serving)
        except InputError:
            return None
        return replace(self, deployment=deployment, case=case)


def label_of(d: Deployment, serving: Serving) -> str:
    """A deployment in a few words: layout, formats, limits and pools as far as they are stated."""
    words = [f"{n.upper()} {getattr(d, n)}" for n in LAYOUT if getattr(d, n) > 1] or ["1 GPU"]
    if d.weights != "auto":
        words.append(f"weights {d.weights}")
    if d.kv_cache != "auto":
        words.append(f"cache {d.kv_cache}")
    if d.speculation is not None:
        words.append(f"{d.speculation.method} speculation")
    words += [said.format(getattr(d, n)) for n, said in LIMITS.items() if getattr(d, n) is not None]
    if serving.disaggregate:
        words.append("{} prefill + {} decode".format(*serving.disaggregate))
    if serving.prefix_caching:
        words.append("prefix caching")
    return ", ".join(words)


@dataclass(slots=True)
class Looked:
    """What has been looked at of one kind of hardware."""

    fitting: list[Candidate] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    considered: int = 0


def fitted(like: Served, deployment: Deployment, serving: Serving) -> Served:
    """The engine of ``deployment``, known to hold weights and a cache.

    Raises:
        InputError: model, hardware or engine don't allow it, or memory is short.
    """
    case = served(like.model, like.hardware, deployment, serving)
    case.engine.blocks()
    return case


def candidates(question: Question, hardware: Hardware) -> Looked:
    """Deployments of one kind of hardware, those with pools apart: which fit, and why others don't.

    Layouts over several servers are looked at only where none within one fits.

    Raises:
        InputError: a format or engine that no layout can change.
    """
    looked = Looked()
    engine, fixed, model = question.given.engine, question.fixed, question.model
    own = resolve_formats(model, hardware, question.given)[0]
    chosen = named_formats(question, hardware, own)
    for sizes in (layouts, wide_layouts):
        if not looked.fitting:
            _look(question, hardware, sizes(model, hardware, engine, fixed), chosen, looked)
    return looked


def _look(
    question: Question, hardware: Hardware, sizes: Iterable[Layout], chosen: list[Named],
    looked: Looked,
) -> None:  # fmt: skip
    for layout in sizes:
        for formats in chosen:
            for values in _speculations(question):
                deployment = changed(question.given, {**layout, **formats, **values})
                for serving in _servings(question):
                    looked.considered += 1
                    made = _made(question, hardware, deployment, serving)
                    if isinstance(made, Rejected):
                        looked.rejected.append(made)
                    else:
                        looked.fitting.append(replace(made, risks=risks(formats, chosen[0])))


def _made(
    question: Question, hardware: Hardware, deployment: Deployment, serving: Serving
) -> Candidate | Rejected:
    """A candidate that holds the longest request, or why there is none."""
    try:
        case = served(question.model, hardware, deployment, serving)
        case.engine.blocks()
        misfit = case.engine.misfit()
    except CapacityError as error:
        return Rejected(hardware.name, label_of(deployment, serving), f"{MEMORY}{error}")
    except InputError as error:
        return Rejected(hardware.name, label_of(deployment, serving), str(error))
    for part in question.parts:
        prompt, output = part.prompt.longest, part.output.longest
        if prompt and output and (reason := misfit(prompt, output)):
            return Rejected(hardware.name, label_of(deployment, serving), f"{MEMORY}{reason}")
    return Candidate(hardware, deployment, serving, case)


def _speculations(question: Question) -> Iterator[dict[str, Any]]:
    """With the user's speculation, and plainly; a draft's acceptance is never assumed."""
    if question.given.speculation is not None:
        yield {}
    yield {"speculation": None}


def _servings(question: Question) -> Iterator[Serving]:
    """Prefix caching as the engine does by default, and switched on where requests share anything.

    Without a shared prefix there is nothing to find, so that it is off: the same, sooner.
    """
    given = question.serving
    shares = any(part.prefix is not None for part in question.parts)
    if given.prefix_caching is not None:
        yield given
    elif not shares:
        yield replace(given, prefix_caching=False)
    else:
        preset = load_engine(question.given.engine).scheduler
        if preset is None or not preset.prefix_caching:
            yield replace(given, prefix_caching=False)
        yield replace(given, prefix_caching=True)
