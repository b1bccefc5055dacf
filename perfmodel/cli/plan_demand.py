"""The flags of `perfmodel plan` as traffic and rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import typer

from perfmodel.errors import InputError
from perfmodel.planning.capacity.requests import parts_of
from perfmodel.specs.base import Case, FieldError
from perfmodel.specs.plain_numbers import typed_float
from perfmodel.specs.traffic import RequestClass, ServiceLevel, Traffic, load_traffic

Record = TypeVar("Record", bound=Case)
FLAGS = {
    "prompt": "--prompt", "output": "--output", "prefix_tokens": "--prefix-tokens",
    "ttft_s": "--ttft", "tpot_s": "--tpot", "e2e_s": "--e2e", "rate": "--rate",
    "percentile": "--percentile", "burstiness": "--burstiness", "peak": "--peak",
    "growth": "--growth", "months": "--months",
}  # fmt: skip
"""Fields of the traffic by flag."""
LEVELS: tuple[str, ...] = ("ttft_s", "tpot_s", "e2e_s")
OF_CLASSES: tuple[str, ...] = ("prompt", "output", "prefix_tokens", *LEVELS)
"""Those that describe one class: not beside a file of classes."""


def growth(text: str) -> float:
    """A share per month as typed: ``0.1`` or ``10%``.

    Raises:
        BadParameter: names the text.

    >>> growth("10%"), growth("-0.05")
    (0.1, -0.05)
    """
    found = re.fullmatch(r"\s*([+-]?\d*\.?\d+)\s*(%)?\s*", str(text), re.ASCII)
    if found is None:
        raise typer.BadParameter(f"{str(text)[:40]!r} is no share per month, such as 0.1 or 10%")
    value = float(found[1])
    return value / 100 if found[2] else value


def price(text: str) -> tuple[str, float]:
    """A hardware's name and its rent, as typed: ``h100-sxm=2.5``.

    Raises:
        BadParameter: names the text.
    """
    name, equals, value = str(text).partition("=")
    try:
        usd = typed_float(value)
    except ValueError:
        usd = 0.0
    if not (equals and name.strip() and 0 < usd < 1e6):
        raise typer.BadParameter(
            f"{str(text)[:40]!r} is no price in USD per GPU and hour, such as h100-sxm=2.5"
        )
    return name.strip(), usd


def listed(text: str) -> tuple[str, ...]:
    """Names separated by commas.

    Raises:
        BadParameter: there is none.
    """
    names = tuple(part.strip() for part in str(text).split(",") if part.strip())
    if not names:
        raise typer.BadParameter("names are needed, such as auto,fp8")
    return names


def prices(pairs: list[tuple[str, float]] | None) -> dict[str, float]:
    """Rents by hardware.

    Raises:
        InputError: one hardware has two.
    """
    names = [name for name, _ in pairs or ()]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--price: {name} has two prices: leave one out")
    return dict(pairs or ())


@dataclass(frozen=True, slots=True)
class Stated:
    """What the flags of a traffic say; None: nothing."""

    traffic: Path | None
    values: dict[str, Any]
    """By the names of `FLAGS`."""

    def made(self) -> Traffic:
        """The traffic of the file, or of the flags; the rate and the like may change the file's.

        Raises:
            InputError: flags that miss each other, or a value that is wrong.
        """
        given = {name: value for name, value in self.values.items() if value is not None}
        if self.traffic is None:
            return self._of_flags(given)
        for name in OF_CLASSES:
            if name in given:
                raise InputError(
                    f"{FLAGS[name]}: the classes of --traffic say it; leave it out, or the file"
                )
        _built(Traffic, {"rate": 1.0} | given)  # a wrong flag is named as such, not as the file's
        read = load_traffic(self.traffic, given)
        parts_of(read, str(self.traffic))
        return read

    def _of_flags(self, given: dict[str, Any]) -> Traffic:
        if "rate" not in given:
            raise InputError("--rate or --traffic: say how many requests come, such as --rate 20")
        kind = {name: given.pop(name) for name in OF_CLASSES if name in given}
        level = {name: kind.pop(name) for name in LEVELS if name in kind}
        only = _built(RequestClass, {**kind, "level": _built(ServiceLevel, level)})
        made = _built(Traffic, given | {"classes": (only,)})
        _check_lengths(made)
        return made


def _check_lengths(traffic: Traffic) -> None:
    """Name the flag of a length that can't be read, not the class's field."""
    try:
        parts_of(traffic, "")
    except InputError as error:
        said = str(error).removeprefix(": classes.0.")
        name = said.partition(":")[0]
        raise InputError(FLAGS.get(name, name) + said.removeprefix(name)) from None


def _built(record: type[Record], values: dict[str, Any]) -> Record:
    try:
        return record(**values)
    except FieldError as error:
        flag = FLAGS.get(error.field, error.field)
        raise InputError(f"{flag}: {error.problem}" if flag else error.problem) from None
