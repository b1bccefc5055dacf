"""What all specifications share: frozen, strict about keys, and errors of one clear line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from perfmodel.errors import InputError
from perfmodel.specs.faults import describe, first_fault


class Spec(BaseModel):
    """A frozen record that refuses unknown keys and text where a number belongs."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True
    )

    @classmethod
    def parse(cls, data: Mapping[str, Any], where: str) -> Self:
        """Validate ``data`` (for example a loaded YAML file); ``where`` names it in errors.

        Raises:
            InputError: one line that names ``where``, the first wrong field, and its value.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise InputError(f"{where}: {describe(error, cls)}") from None


class FieldError(InputError):
    """A wrong field of a record: ``field`` is empty where the fault is of several together."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem


class Case(Spec):
    """A record that users build in Python too: a wrong field is the same one-line error there."""

    if not TYPE_CHECKING:  # checkers keep the fields' own names and types

        def __init__(self, **fields) -> None:  # noqa: ANN003
            unknown = fields.keys() - type(self).model_fields.keys()
            try:
                super().__init__(**fields)
            except ValidationError as error:
                field, problem = first_fault(error)
                if field in unknown:
                    known = ", ".join(type(self).model_fields)
                    problem = f"no field of a {type(self).__name__}; known: {known}"
                raise FieldError(field, problem) from None


def _is_number(value: Any) -> bool:
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool)


def _between(low: float, high: float) -> PydanticCustomError:
    return PydanticCustomError("range", f"out of range: from {low:,} to {high:,}")


def whole_number(low: int, high: int, *, floats: bool = False) -> BeforeValidator:
    """A whole number, Python's or numpy's, within a range; ``floats``: or one without fraction."""

    def check(value: Any) -> Any:
        if value is None:
            return None  # the field's own type says whether it may be absent
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value.item()
        real = isinstance(value, float | np.floating)
        if not _is_number(value) or (real and (not floats or math.isnan(value))):
            raise PydanticCustomError("count", "a whole number is needed")
        if not low <= value <= high:
            raise _between(low, high)
        if value != int(value):
            raise PydanticCustomError("count", "a whole number is needed")
        return int(value)

    return BeforeValidator(check)


def whole_numbers(low: int, high: int) -> BeforeValidator:
    """A whole number or an array of them within a range; arrays become float64."""
    one = whole_number(low, high, floats=True).func

    def check(value: Any) -> Any:
        if value is None:
            raise PydanticCustomError("count", "a whole number is needed")
        if isinstance(value, str | bool) or _is_number(value):
            return one(value)  # type: ignore[call-arg]
        try:
            array = np.asarray(value)
        except ValueError:  # rows of different lengths
            array = np.asarray(None)
        if array.dtype.kind not in "iuf" or array.size == 0 or np.isnan(array).any():
            raise PydanticCustomError("count", "a whole number is needed, or an array of them")
        if (array < low).any() or (array > high).any():
            raise _between(low, high)
        if (array != np.floor(array)).any():
            raise PydanticCustomError("count", "whole numbers are needed")
        return array.astype(np.float64) if array.ndim else int(array.item())

    return BeforeValidator(check)


def share() -> BeforeValidator:
    """A number above 0 and up to 1, Python's or numpy's."""

    def check(value: Any) -> Any:
        if value is None:
            return None
        if not _is_number(value):
            raise PydanticCustomError("share", "a number is needed, such as 0.9")
        if not 0 < value <= 1:
            raise PydanticCustomError("range", "out of range: above 0, up to 1")
        return float(value)

    return BeforeValidator(check)


def bounded(low: float, high: float) -> BeforeValidator:
    """A number within a range, its ends included, Python's or numpy's."""

    def check(value: Any) -> Any:
        if not _is_number(value):
            raise PydanticCustomError("number", "a number is needed")
        if not low <= value <= high:
            raise _between(low, high)
        return float(value)

    return BeforeValidator(check)
