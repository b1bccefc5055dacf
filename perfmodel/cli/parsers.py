"""Values of flags as typed, read by their kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import typer

from perfmodel.cli.flags import Branching, Counts, Rates
from perfmodel.specs.plain_numbers import typed_float, typed_int
from perfmodel.units import MILLISECOND


def whole_number(text: str) -> int:
    """A whole number as typed; thousands may be separated by underscores.

    Raises:
        BadParameter: names the text.
    """
    said = str(text)
    if re.fullmatch(r"[+-]?\d{19,}", said.strip()):
        raise typer.BadParameter(f"{said[:20]}… is out of range")
    try:
        return typed_int(said)
    except ValueError:
        raise typer.BadParameter(f"{said[:40]!r} is no whole number") from None


def counts(text: Any) -> int | np.ndarray[Any, Any]:
    """A whole number, or several separated by commas as an array.

    Raises:
        BadParameter: names what is none.
    """
    parts = [whole_number(part.strip()) for part in str(text).split(",")]
    return parts[0] if len(parts) == 1 else np.asarray(parts)


def number(text: str) -> float:
    """A number as typed.

    Raises:
        BadParameter: names the text.
    """
    try:
        return typed_float(str(text))
    except ValueError:
        raise typer.BadParameter(f"{str(text)[:40]!r} is no number") from None


def duration(text: str) -> float:
    """Seconds of a time as typed: ``0.5``, ``0.5s`` or ``500ms``.

    Raises:
        BadParameter: names the text.

    >>> duration("500ms"), duration("2 s")
    (0.5, 2.0)
    """
    found = re.fullmatch(r"\s*(\d*\.?\d+(?:e[+-]?\d+)?)\s*(ms|s)?\s*", str(text), re.ASCII)
    value = float(found[1]) if found else 0.0
    if found is None or not 0 < value < 1e9:
        raise typer.BadParameter(f"{str(text)[:40]!r} is no time, such as 0.5 or 500ms")
    return value * MILLISECOND if found[2] == "ms" else value


def positive(text: str) -> int:
    """A whole number from 1 on.

    Raises:
        BadParameter: names the text.
    """
    value = whole_number(text)
    if value < 1:
        raise typer.BadParameter(f"{value} is less than 1")
    return value


def rates(text: str) -> float | tuple[float, ...]:
    """A number, or several separated by commas.

    Raises:
        BadParameter: names what is none.
    """
    parts = [number(part.strip()) for part in str(text).split(",")]
    return parts[0] if len(parts) == 1 else tuple(parts)


def branching(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas.

    Raises:
        BadParameter: names what is none.
    """
    return tuple(whole_number(part.strip()) for part in str(text).split(","))


PARSERS: dict[Any, tuple[Callable[[str], Any] | None, str]] = {
    int: (whole_number, "<int>"),
    int | None: (whole_number, "<int>"),
    float: (number, "<float>"),
    float | None: (number, "<float>"),
    bool: (None, ""),
    Counts: (counts, "<ints>"),
    Rates | None: (rates, "<floats>"),
    Branching | None: (branching, "<ints>"),
}
"""Parser and placeholder of a flag by its kind."""
