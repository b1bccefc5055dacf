"""What all specifications share: frozen, strict about keys, and errors of one clear line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from perfmodel.errors import InputError


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
            raise InputError(f"{where}: {describe(error)}") from None


class Case(Spec):
    """A record that users build in Python too: a wrong field is the same one-line error there."""

    if not TYPE_CHECKING:  # checkers keep the fields' own names and types

        def __init__(self, **fields) -> None:  # noqa: ANN003
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise InputError(f"{type(self).__name__.lower()}: {describe(error)}") from None


def describe(error: ValidationError) -> str:
    """One line for the first fault of a pydantic error, with a count of the others."""
    faults = error.errors(include_url=False)
    first = faults[0]
    field = ".".join(str(part) for part in first["loc"]) or "(whole record)"
    message = first["msg"].removeprefix("Value error, ")
    value = first.get("input")
    shown = "" if isinstance(value, Mapping) else f" (got {value!r:.60})"
    more = f"; and {len(faults) - 1} more fault(s)" if len(faults) > 1 else ""
    return f"{field}: {message}{shown}{more}"
