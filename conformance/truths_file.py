"""The file of truths: a mapping of models, and a list of truths about them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from conformance.arithmetic import evaluate
from conformance.errors import ConformanceError, one_line
from conformance.kinds import KINDS, MODEL
from conformance.truth import ModelFacts, Question, Truth

FIELDS = ("id", "question", "answer", "unit", "tolerance", "derivation", "source")


def shipped() -> Traversable:
    """The file of truths that comes with the runner."""
    return resources.files("conformance") / "truths.yaml"


class _Loader(yaml.SafeLoader):
    """Refuses keys that are written twice, and those that are no text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            text = key.value if isinstance(key, yaml.ScalarNode) else None
            if text is None or text in seen:
                fault = f"the key {text!r:.40} is written twice" if text else "a key isn't text"
                raise yaml.MarkedYAMLError(problem=fault, problem_mark=key.start_mark)
            seen.add(text)
        return super().construct_mapping(node, deep)


def read_truths(file: Traversable | None = None) -> list[Truth]:
    """The truths of ``file``, or those that are shipped.

    Raises:
        ConformanceError: one line that names the file, and the truth and field where one is wrong.
    """
    source = shipped() if file is None else file
    where = one_line(source)
    data = _load(source, where)
    unknown = sorted(data.keys() - {"models", "truths"})
    if unknown:
        raise ConformanceError(f"{where}: {unknown[0]}: no such key; known: models, truths")
    models = {name: _model(name, said, where) for name, said in _named(data, "models", where)}
    listed = data.get("truths")
    if not isinstance(listed, list) or not listed:
        raise ConformanceError(f"{where}: truths: a list of at least one truth is needed")
    truths: dict[str, Truth] = {}
    for number, said in enumerate(listed, 1):
        truth = _truth(said, models, where, number)
        if truth.id in truths:
            raise ConformanceError(f"{where}: {truth.id}: id: another truth has it too")
        truths[truth.id] = truth
    return list(truths.values())


def _load(source: Traversable, where: str) -> dict[str, Any]:
    try:
        text = source.read_text(encoding="utf-8")
        data = yaml.load(text, Loader=_Loader)  # noqa: S506  (a SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or error
        raise ConformanceError(f"{where}: can't be read: {one_line(said)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConformanceError(f"{where}: not valid YAML: {one_line(error)}") from None
    if not isinstance(data, dict):
        raise ConformanceError(f"{where}: a mapping with models: and truths: is needed")
    return data


def _named(data: Mapping[str, Any], key: str, where: str) -> Iterator[tuple[str, Any]]:
    found = data.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise ConformanceError(f"{where}: {key}: a mapping of names is needed")
    yield from found.items()


def _model(name: str, said: Any, where: str) -> ModelFacts:
    place = f"{where}: models: {name}"
    if not isinstance(said, dict) or said.keys() != {"hub", "config"}:
        raise ConformanceError(f"{place}: needs hub and config, and nothing else")
    if not isinstance(said["hub"], str) or not said["hub"].strip():
        raise ConformanceError(f"{place}: hub: a repository's name is needed")
    if not isinstance(said["config"], dict) or "model_type" not in said["config"]:
        raise ConformanceError(f"{place}: config: a mapping with model_type is needed")
    return ModelFacts(name, said["hub"], said["config"])


def _truth(said: Any, models: Mapping[str, ModelFacts], where: str, number: int) -> Truth:
    if not isinstance(said, dict):
        raise ConformanceError(f"{where}: truth {number}: a mapping is needed")
    name = said.get("id")
    if not isinstance(name, str) or not name.strip():
        raise ConformanceError(f"{where}: truth {number}: id: a name is needed")
    place = f"{where}: {one_line(name, 80)}"
    for field in FIELDS:
        if field not in said:
            raise ConformanceError(f"{place}: {field}: is missing")
    for field in said:
        if field not in FIELDS:
            raise ConformanceError(f"{place}: {field}: no such field; known: {', '.join(FIELDS)}")
    question = _question(said["question"], models, place)
    truth = Truth(
        id=name,
        question=question,
        answer=_number(said["answer"], f"{place}: answer"),
        unit=_text(said["unit"], f"{place}: unit"),
        tolerance=float(_number(said["tolerance"], f"{place}: tolerance")),
        derivation=_text(said["derivation"], f"{place}: derivation"),
        source=_text(said["source"], f"{place}: source"),
    )
    _check(truth, place)
    return truth


def _question(said: Any, models: Mapping[str, ModelFacts], place: str) -> Question:
    if not isinstance(said, dict):
        raise ConformanceError(f"{place}: question: a mapping with kind is needed")
    kind = said.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        shown = one_line(repr(kind), 40)
        raise ConformanceError(
            f"{place}: question.kind: {shown} is unknown; known: {', '.join(KINDS)}"
        )
    try:
        inputs = KINDS[kind].complete({k: v for k, v in said.items() if k != "kind"})
    except ConformanceError as error:
        raise ConformanceError(f"{place}: question.{error}") from None
    name = inputs.pop(MODEL, None)
    if name is not None and name not in models:
        raise ConformanceError(f"{place}: question.model: {one_line(name, 60)} isn't in models:")
    return Question(kind, models[name] if name else None, inputs)


def _number(value: Any, place: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        hint = "; YAML reads 1e9 as text, write 1.0e+9" if isinstance(value, str) else ""
        shown = one_line(repr(value), 40)
        raise ConformanceError(f"{place}: a number is needed, not {shown}{hint}")
    return value


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConformanceError(f"{place}: text is needed, not {one_line(repr(value), 40)}")
    return " ".join(value.split())


def _check(truth: Truth, place: str) -> None:
    """That the fields of a truth agree with one another."""
    unit = KINDS[truth.question.kind].unit
    if truth.unit != unit:
        raise ConformanceError(f"{place}: unit: {truth.question.kind} is in {unit}")
    if not 0 <= truth.tolerance < 1:
        raise ConformanceError(f"{place}: tolerance: from 0 up to, not including, 1")
    try:
        value = evaluate(truth.derivation)
    except ConformanceError as error:
        raise ConformanceError(f"{place}: derivation: {error}") from None
    off = abs(value - Fraction(truth.answer))
    if off > Fraction(truth.tolerance) * abs(Fraction(truth.answer)):
        raise ConformanceError(
            f"{place}: derivation: comes to {_shown(value)}, but answer is {truth.answer}"
        )


def _shown(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.15g}"
