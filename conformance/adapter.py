"""Adapters: how a calculator is asked, and how one is found by name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from conformance.errors import ConformanceError, one_line
from conformance.kinds import KINDS
from conformance.truth import Question

Ask = Callable[[Question], "float | None"]
"""From a question to its answer; None where the calculator has none."""

SHIPPED = {
    "perfmodel": "conformance.perfmodel_adapter:PerfmodelAdapter",
    "tiny": "conformance.examples.tiny_adapter:TinyCalculator",
    "transformers": "conformance.examples.transformers_adapter:TransformersCounter",
}
"""Adapters that come with the runner, by a short name."""
DEFAULT_OBJECT = "adapter"
"""What a file is expected to define where no name follows it."""


class Calculator(Protocol):
    """An adapter that takes every question in one place.

    An adapter without ``answer`` has methods named like the kinds that it knows instead, each from
    a `Question` to a number or None; the kinds that it has no method for are unsupported.
    """

    def answer(self, question: Question) -> float | None:
        """The answer in the kind's unit, or None where this calculator has none."""


def load_adapter(name: str) -> Ask:
    """The calculator called ``name``: a shipped one, ``module:object``, or ``file.py[:object]``.

    The object is an instance, a class that is built without arguments, or a function of a question.

    Raises:
        ConformanceError: there is no such thing, it can't be imported, or it answers nothing.
    """
    return _ask(_object(SHIPPED.get(name, name)), name)


def _object(said: str) -> Any:
    place, colon, attribute = said.rpartition(":")
    if not colon:
        place, attribute = said, DEFAULT_OBJECT
    if not (place.endswith(".py") or colon):
        known = ", ".join(SHIPPED)
        raise ConformanceError(
            f"{one_line(said)}: no adapter; give {known}, module:object or a file.py"
        )
    try:
        is_file = place.endswith(".py")
        module = _from_file(Path(place)) if is_file else importlib.import_module(place)
    except ConformanceError:
        raise
    except Exception as error:
        raise ConformanceError(
            f"{one_line(said)}: can't be imported: {type(error).__name__}: {one_line(error)}"
        ) from error
    if not hasattr(module, attribute):
        raise ConformanceError(f"{one_line(place)}: defines no {attribute!r}")
    return getattr(module, attribute)


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise ConformanceError(f"{one_line(path)}: no such file")
    name = f"_conformance_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConformanceError(f"{one_line(path)}: isn't a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _ask(found: Any, name: str) -> Ask:
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise ConformanceError(
                f"{one_line(name)}: can't be built: {type(error).__name__}: {one_line(error)}"
            ) from error
    if callable(getattr(found, "answer", None)):
        ask: Ask = found.answer
        return ask
    methods = {kind: getattr(found, kind) for kind in KINDS if callable(getattr(found, kind, None))}
    if methods:

        def by_kind(question: Question) -> float | None:
            method: Ask | None = methods.get(question.kind)
            return None if method is None else method(question)

        return by_kind
    if callable(found):
        return found  # type: ignore[no-any-return]
    raise ConformanceError(
        f"{one_line(name)}: has neither answer(question) nor a method named like a kind"
    )
