"""What is wrong with a record, as pydantic found it, in one line that a user can act on."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from perfmodel.specs.hardware_schema import as_number, group_of

UNKNOWN = "extra_forbidden"
NUMBERS = {"float_type": "number", "int_type": "whole number", "int_from_float": "whole number"}
"""How pydantic calls a value that isn't one of these."""
BEYOND = ("greater_than_equal", "less_than_equal")
"""How it calls a number that isn't within its range."""


def first_fault(error: ValidationError, model: type[BaseModel] | None = None) -> tuple[str, str]:
    """The first wrong field of a pydantic error and what is wrong with it.

    An unknown key goes first: it is often why another is missing. A validator of a whole record
    names its field as ``field`` in the error's context.

    Args:
        error: what pydantic found.
        model: the record, where its keys are what users write: an unknown one then gets those that
            are known, and text where a number belongs gets the number's range.
    """
    faults = error.errors(include_url=False)
    first = next((fault for fault in faults if fault["type"] == UNKNOWN), faults[0])
    context = first.get("ctx", {})
    field = ".".join(str(part) for part in first["loc"]) or str(context.get("field", ""))
    more = f"; and {len(faults) - 1} more fault(s)" if len(faults) > 1 else ""
    if model is not None and first["type"] == UNKNOWN:
        return field, f"{_unknown(first['loc'], model)}{more}"
    message = _plain(first["msg"])
    value = first.get("input")
    if model is not None and first["type"] in {*NUMBERS, *BEYOND}:
        ends = _range(_field_at(first["loc"], model))
        if first["type"] in NUMBERS or None not in ends:
            return field, f"{_number(value, NUMBERS.get(first['type'], 'number'), ends)}{more}"
    told = isinstance(value, Mapping | BaseModel) or _shown(value) in message
    shown = "" if told else f" (got {_shown(value)})"
    return field, f"{message}{shown}{more}"


def describe(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """One line for the first fault of a pydantic error, with a count of the others."""
    field, problem = first_fault(error, model)
    return f"{field}: {problem}" if field else problem


def _plain(message: str) -> str:
    """Pydantic's sentence in the house's words."""
    if message == "Field required":
        return "is missing; add it"
    return message.removeprefix("Value error, ").replace("Input should be", "must be")


def _shown(value: Any) -> str:
    """A value on one line, in a few words; Python refuses to print very long numbers."""
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of over 30 digits"
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        return "a very long number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _unknown(place: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """What an unknown key may have been meant as, and what there is beside it."""
    record = _record_at(place[:-1], model)
    known = [] if record is None else list(_fields(record))
    close = difflib.get_close_matches(str(place[-1]), known, n=2)
    if close:
        return f"unknown key; did you mean {' or '.join(close)}?"
    return f"unknown key; known here: {', '.join(known)}" if known else "unknown key; remove it"


def _number(value: Any, kind: str, ends: tuple[Any, Any]) -> str:
    """Which number would do, and how to write text as one."""
    low, high = ends
    wanted = "" if low is None or high is None else f" from {_end(low)} to {_end(high)}"
    said = f"must be a {kind}{wanted} (got {_shown(value)})"
    if not isinstance(value, str) or _outside(value, low, high):
        return said
    return f"{said}; {as_number(value)}"


def _outside(text: str, low: Any, high: Any) -> bool:
    """Whether text is a number beyond a range, so that writing it otherwise wouldn't do."""
    try:
        value = float(text)
    except ValueError:
        return False
    return not ((low is None or low <= value) and (high is None or value <= high))


def _range(field: FieldInfo | None) -> tuple[Any, Any]:
    """The ends of a field's range that belong to it; None where there is none."""
    known = [] if field is None else field.metadata
    low = next((item.ge for item in known if hasattr(item, "ge")), None)
    high = next((item.le for item in known if hasattr(item, "le")), None)
    return low, high


def _end(value: float) -> str:
    """An end of a range as people write it."""
    return f"{int(value):,}" if value == int(value) else f"{value:,}"


def _fields(record: type[BaseModel]) -> dict[str, FieldInfo]:
    """A record's fields by the keys that users write."""
    return {field.alias or name: field for name, field in record.model_fields.items()}


def _record_at(place: tuple[int | str, ...], model: type[BaseModel]) -> type[BaseModel] | None:
    """The record at a place of another; places within lists and mappings of records are passed."""
    here: type[BaseModel] | None = model
    for part in place:
        if here is None:
            return None
        field = _fields(here).get(str(part))
        here = here if field is None else group_of(field)
    return here


def _field_at(place: tuple[int | str, ...], model: type[BaseModel]) -> FieldInfo | None:
    record = _record_at(place[:-1], model)
    return None if record is None else _fields(record).get(str(place[-1]))
