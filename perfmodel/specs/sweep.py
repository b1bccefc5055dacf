"""What a sweep goes through: the values of each axis, and what is looked for in the results."""

from __future__ import annotations

import difflib
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.errors import InputError
from perfmodel.specs.base import Case, FieldError
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.ranges import numbers
from perfmodel.specs.speculation import Speculation
from perfmodel.specs.workload import Workload
from perfmodel.specs.yaml_file import read_yaml

OF_LOAD = ("prefill_chunk", "prefix_share", "cached_prefix")
"""Fields of a workload of which each value is worked out by itself, as those of a deployment."""
INNER = ("batch", "prompt", "context", "output")
"""Axes of arrays. ``context`` is prompt + output: it takes the place of ``prompt``."""
AXES = ("model", "hardware", *Deployment.model_fields, *OF_LOAD, *INNER)
"""All axes, the slowest first."""
ALIASES = {
    "models": "model",
    "kv_cache_dtype": "kv_cache",
    "quantization": "weights",
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "expert_parallel_size": "ep",
    "data_parallel_size": "dp",
}
"""Other names of axes, vLLM's among them."""
WANTED = ("where", "best_by", "top", "per", "pareto")
TOP = 10


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """Axes in the order of `AXES`, each with its values, and selections."""

    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    where: str | None = None
    """An expression over the columns; rows for which it doesn't hold are left out."""
    best_by: str | None = None
    """The column by which the best settings are found."""
    top: int = TOP
    """How many of them, of each group."""
    per: tuple[str, ...] = ()
    """Columns whose values form the groups."""
    pareto: tuple[str, ...] = ()
    """Columns between which no setting of the front is beaten in all."""

    def values(self, axis: str) -> tuple[Any, ...]:
        """The values of an axis; none for one that isn't said."""
        return dict(self.axes).get(axis, ())

    def record(self) -> dict[str, Any]:
        """As plain data that `parse_sweep` reads again."""
        axes = {name: [_plain(value) for value in values] for name, values in self.axes}
        rest = {"where": self.where, "best_by": self.best_by, "top": self.top,
                "per": list(self.per), "pareto": list(self.pareto)}  # fmt: skip
        return axes | {name: value for name, value in rest.items() if value not in (None, [])}


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_defaults=True) if isinstance(value, Speculation) else value


def load_sweep(path: str | os.PathLike[str], changes: Mapping[str, Any] | None = None) -> SweepSpec:
    """The sweep of a YAML file, with some keys replaced.

    Raises:
        InputError: one line that names the file, the key and what is wrong.
    """
    name = os.fspath(path)
    given = _canonical(read_yaml(name), f"{name}: ")
    changed = _canonical(changes or {}, "")
    for one, other in (("prompt", "context"), ("context", "prompt")):
        if one in changed:
            given.pop(other, None)
    return parse_sweep(given | changed)


def parse_sweep(given: Mapping[str, Any]) -> SweepSpec:
    """A sweep of plain data: values by axis, as numbers, text with ranges, or lists of both.

    Raises:
        InputError: one line that names the key and what is wrong.
    """
    data = _canonical(given, "")
    for needed in ("model", "hardware"):
        if needed not in data:
            raise InputError(f"sweep: {needed} is missing; name at least one")
    if "prompt" in data and "context" in data:
        raise InputError("sweep: context is prompt + output; give one of prompt and context")
    axes = tuple((name, _axis(name, data[name])) for name in AXES if name in data)
    return SweepSpec(axes, **_wanted(data))


def _canonical(given: Mapping[str, Any], place: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = ALIASES.get(key.replace("-", "_"), key.replace("-", "_"))
        if name not in AXES and name not in WANTED:
            known = [*AXES, *ALIASES, *WANTED]
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
            raise InputError(f"{place}no axis is called {key[:40]!r}; {hint}")
        if name in found:
            raise InputError(f"{place}{key} says {name} a second time; keep one")
        found[name] = value
    return found


def _wanted(data: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("where", "best_by"):
        if (value := data.get(name)) is not None:
            if not isinstance(value, str):
                raise FieldError(name, f"text is needed (got {value!r:.40})")
            found[name] = value
    for name in ("per", "pareto"):
        if (value := data.get(name)) is not None:
            found[name] = _names(name, value)
    if (top := data.get("top")) is not None:
        if not isinstance(top, int) or isinstance(top, bool) or not 1 <= top <= 10_000:
            raise FieldError("top", f"a whole number from 1 to 10,000 is needed (got {top!r:.40})")
        found["top"] = top
    return found


def _names(name: str, value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise FieldError(name, f"names of columns are needed (got {value!r:.40})")
    return tuple(dict.fromkeys(item.strip() for item in items if item.strip()))


def _axis(name: str, value: Any) -> tuple[Any, ...]:
    """The values of an axis, each checked by itself."""
    items = list(value) if _is_list(value) else [value]
    found = dict.fromkeys(each for item in items for each in _read(name, item))
    if not found:
        raise FieldError(name, "no value is given")
    if name in INNER and all(type(value) is int for value in found):
        return _whole(name, tuple(found))
    return tuple(dict.fromkeys(_checked(name, each) for each in found))


def _whole(name: str, values: tuple[int, ...]) -> tuple[int, ...]:
    """Whole numbers of a workload, checked together, and one by one where one is wrong."""
    try:
        Workload(batch=np.asarray(values))
    except FieldError:
        for value in values:
            _checked(name, value)
    return values


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or hasattr(value, "tolist")


def _read(name: str, item: Any) -> tuple[Any, ...]:
    """One item of an axis: text holds lists and ranges, everything else is one value."""
    if name == "speculation":
        return (None if item is None else _speculation(item),)
    if hasattr(item, "item"):
        item = item.item()
    if not isinstance(item, str):
        return (item,)
    kinds = value_kinds(name)
    if kinds & {int, float}:
        parts = [part.strip() for part in item.split(",")]
        if types.NoneType in kinds and any(part.lower() == "none" for part in parts):
            rest = ",".join(part for part in parts if part.lower() != "none")
            return (None, *(numbers(rest, name, whole=float not in kinds) if rest else ()))
        return numbers(item, name, whole=float not in kinds)
    return tuple(_word(name, part.strip(), kinds) for part in item.split(","))


def _word(name: str, text: str, kinds: set[Any]) -> Any:
    if text.lower() == "none" and types.NoneType in kinds:
        return None
    if bool not in kinds:
        if not text:
            raise FieldError(name, "an empty name in the list")
        return text
    if text.lower() not in {"true", "false"}:
        raise FieldError(name, f"true or false is needed (got {text[:40]!r})")
    return text.lower() == "true"


def value_kinds(name: str) -> set[Any]:
    """Types that the values of an axis may have."""
    if name in {"model", "hardware"}:
        return {str}
    if name in INNER:
        return {int}
    if name == "cached_prefix":
        return {int}
    if name in OF_LOAD:
        return {float if name == "prefix_share" else int, types.NoneType}
    found: set[Any] = set()
    _flatten(Deployment.model_fields[name].annotation, found)
    return found


def _flatten(annotation: Any, found: set[Any]) -> None:
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        found.update(type(value) for value in arguments)
    elif typing.get_origin(annotation) is typing.Annotated:
        _flatten(arguments[0], found)
    elif arguments:
        for argument in arguments:
            _flatten(argument, found)
    else:
        found.add(annotation)


def _speculation(item: Any) -> Speculation:
    if isinstance(item, Speculation):
        return item
    if not isinstance(item, Mapping):
        raise InputError(
            f"speculation: a record such as {{method: mtp, tokens: 2}} is needed (got {item!r:.40})"
        )
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in item.items()}
    try:
        return Speculation(**given)
    except FieldError as error:
        raise InputError(f"speculation.{error}") from None


def _checked(name: str, value: Any) -> Any:
    """A value as its record takes it.

    Raises:
        InputError: one line that names the axis.
    """
    if name in {"model", "hardware"}:
        if not isinstance(value, str | os.PathLike):
            raise FieldError(name, f"a name or a file is needed (got {value!r:.40})")
        return os.fspath(value)
    if name == "context":
        return _field(Workload, "prompt", value, name)
    record: type[Case] = Deployment if name in Deployment.model_fields else Workload
    if name == "cached_prefix":
        return _field(lambda **f: Workload(prompt=2**24, **f), name, value, name)
    if name == "prefix_share":
        return _field(lambda **f: Workload(cached_prefix=1, **f), name, value, name)
    return _field(record, name, value, name)


def _field(record: Callable[..., Any], field: str, value: Any, axis: str) -> Any:
    try:
        return getattr(record(**{field: value}), field)
    except FieldError as error:
        raise FieldError(axis, error.problem) from None
