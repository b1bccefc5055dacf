"""The schema of a profile as text: the table of hardware/README.md, and what an error explains."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from perfmodel.specs.yaml_file import one_line

COMMON = ("source", "recalled")
"""The keys that every group has."""
WRONG_VALUE = {"greater", "less", "float", "int", "finite", "literal", "model", "string", "tuple"}
"""How pydantic's names of faults begin that range, unit and meaning of the field explain."""


def schema_table(model: type[BaseModel]) -> str:
    """The fields of a profile as a Markdown table: key, unit, range, meaning."""
    lines = ["| key | unit | range | meaning |", "|---|---|---|---|"]
    lines += [row(key, field) for key, field in walk(model) if not common(key)]
    lines += [row(f"*.{key}", model.model_fields[key]) for key in COMMON]
    return "\n".join(lines) + "\n"


def row(key: str, field: FieldInfo) -> str:
    """One line of the table; what is mandatory inside a group is so only where that is given."""
    mandatory = " (mandatory)" if field.is_required() else ""
    cells = (f"`{key}`{mandatory}", unit(field) or "–", limits(field) or "–", field.description)
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def common(key: str) -> bool:
    """Whether a key is one of those that every group has."""
    return key.rpartition(".")[2] in COMMON


def walk(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Each field of a model and of its groups, what all groups have last, with its dotted key."""
    for name, field in sorted(model.model_fields.items(), key=lambda item: common(item[0])):
        key = prefix + (field.alias or name)
        group = group_of(field)
        yield key, field
        if group is not None:
            yield from walk(group, key + ".")


def group_of(field: FieldInfo) -> type[BaseModel] | None:
    """The record that a field holds, if it holds one."""
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def unit(field: FieldInfo) -> str:
    """The unit of a field's number, or nothing."""
    extra = field.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""


def limits(field: FieldInfo) -> str:
    """``0.5 to 20,000`` for a field with a range, else nothing."""
    low = next((item.ge for item in field.metadata if hasattr(item, "ge")), None)
    high = next((item.le for item in field.metadata if hasattr(item, "le")), None)
    return "" if low is None or high is None else f"{grouped(low)} to {grouped(high)}"


def grouped(number: float) -> str:
    """A limit as people write it: 2010, 20,000."""
    return f"{number:,}" if number >= 10_000 else str(number)


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """One line for one fault: the key, what is wrong, its unit and range, and a remedy.

    An unknown key goes first: it is often why a mandatory one is missing.
    """
    faults = error.errors(include_url=False)
    first = next((item for item in faults if item["type"] == "extra_forbidden"), faults[0])
    key = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    fields = dict(walk(model))
    return one_line(f"{key or 'profile'}: {remedy(key, first, fields)}")[:600] + more


def remedy(key: str, fault: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> str:
    """What is wrong with the value under ``key``, and what would mend it."""
    kind, value, field = fault["type"], fault.get("input"), fields.get(key)
    if kind in {"extra_forbidden", "invalid_key"}:
        return unknown_key(key, fields)
    if field is None:
        return plain(fault)
    if kind == "missing":
        return f"missing; {expected(field)}"
    if isinstance(value, str) and kind.split("_")[0] in {"float", "int"}:
        return f"{value!r:.40} is text, not a number: {as_number(value)}; {expected(field)}"
    if kind.split("_")[0] in WRONG_VALUE:
        return f"{shown(value)} isn't allowed here; {expected(field)}"
    return plain(fault)


def expected(field: FieldInfo) -> str:
    """What a field holds: range and unit as far as it has them, and its meaning."""
    sizes = " ".join(part for part in (limits(field), unit(field)) if part)
    group = group_of(field)
    keys = "" if group is None else f", with the keys {', '.join(key for key, _ in walk(group))}"
    meaning = f"{field.description}{keys}"
    return f"expected {sizes} ({meaning})" if sizes else f"expected: {meaning}"


def unknown_key(key: str, fields: Mapping[str, FieldInfo]) -> str:
    """The closest known keys of the same group, or all of them."""
    prefix, _, name = key.rpartition(".")
    start = f"{prefix}." if prefix else ""
    known = [other.removeprefix(start) for other in fields if other.rpartition(".")[0] == prefix]
    close = difflib.get_close_matches(name, known, n=2)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"unknown key; {hint}known here: {', '.join(known)}"


def as_number(value: str) -> str:
    """How to write a number that YAML took for text."""
    number = re.fullmatch(r"([-+]?\d+)(\.\d*)?[eE]([-+]?)(\d+)", value)
    if number is None:
        return "write the bare number, without quotes or unit"
    whole, fraction, sign, exponent = number.groups()
    return f"write {whole}{fraction or '.0'}e{sign or '+'}{exponent}"


def shown(value: Any) -> str:
    """A value in a few characters; a nested one by its kind alone."""
    kinds = {dict: "a mapping", list: "a list", tuple: "a list", type(None): "an empty value"}
    return kinds.get(type(value)) or f"{value!r:.40}"


def plain(fault: Mapping[str, Any]) -> str:
    """Pydantic's own words, with the value unless it is a whole record."""
    message = str(fault["msg"]).removeprefix("Value error, ")
    value = fault.get("input")
    return message if isinstance(value, (dict, list)) else f"{message} (got {shown(value)})"
