"""What users send and what they expect: request classes, service levels, growth; from YAML too."""

from __future__ import annotations

import math
import os
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, field_validator
from pydantic_core import PydanticCustomError

from perfmodel.errors import InputError
from perfmodel.specs.base import Case, FieldError
from perfmodel.specs.yaml_file import read_yaml

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Limit = Annotated[float | None, Field(gt=0, allow_inf_nan=False)]


def _tokens(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError(
            "tokens", "a whole number is needed, or a distribution such as uniform:800:1200"
        )
    return value


Tokens = Annotated[str | int, BeforeValidator(_tokens)]

Built = TypeVar("Built", bound=Case)
SECONDS = "; write seconds as a number, such as 0.5"


class ServiceLevel(Case):
    """What one request must not exceed at the traffic's percentile; None: no limit.

    TTFT includes queueing; TPOT leaves the first token out.
    """

    ttft_s: Limit = None
    tpot_s: Limit = None
    e2e_s: Limit = None


class RequestClass(Case):
    """Requests alike: their share of the traffic, their lengths, what is promised to them."""

    name: str = "all"
    share: Positive = 1.0
    """Part of the requests, as a weight: shares are divided by their sum."""
    prompt: Tokens = 1024
    """Tokens: a number, or a distribution as of `perfmodel.serving.lengths.Lengths`."""
    output: Tokens = 256
    prefix_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens at the start of every prompt of the class that all of its requests share."""
    level: ServiceLevel = ServiceLevel()


class Traffic(Case):
    """What all users together send.

    ``rate`` requests per second on average; the busiest hour sees ``peak`` times as many, and the
    fleet is sized for it. After m months both are (1 + growth)^m times as high.
    """

    rate: Positive
    classes: Annotated[tuple[RequestClass, ...], Field(min_length=1)] = (RequestClass(),)
    percentile: Annotated[float, Field(gt=0, lt=100)] = 90.0
    """Of requests that must keep their service level, in per cent."""
    burstiness: Positive = 1.0
    """As of `perfmodel.serving.arrivals.OpenLoop`: 1 is Poisson."""
    peak: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    growth: Annotated[float, Field(gt=-1, le=10)] = 0.0
    """Per month: 0.1 is a tenth more each month."""
    months: Annotated[int, Field(ge=0, le=120)] = 0
    """Horizon: months after the first that are planned for."""

    @field_validator("classes", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    def rate_at(self, month: int) -> float:
        """Mean requests per second ``month`` months from now."""
        return self.rate * (1 + self.growth) ** month

    def peak_at(self, month: int) -> float:
        """Requests per second in the busiest hour of that month."""
        return self.rate_at(month) * self.peak

    def shares(self) -> tuple[float, ...]:
        """Share of each class, summing to 1."""
        total = math.fsum(c.share for c in self.classes)
        return tuple(c.share / total for c in self.classes)


def load_traffic(path: str | os.PathLike[str]) -> Traffic:
    """Traffic of a YAML file.

    Raises:
        InputError: one line that names the file, the field and what is wrong.
    """
    where = os.fspath(path)
    data = read_yaml(where)
    if "classes" in data:
        data = data | {"classes": _classes(data["classes"], f"{where}: classes")}
    return _made(Traffic, data, f"{where}: ")


def _classes(listed: object, where: str) -> tuple[RequestClass, ...]:
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{where}: a list of classes is needed, each begun with `- name:`")
    return tuple(_class(item, f"{where}.{place}") for place, item in enumerate(listed))


def _class(item: object, where: str) -> RequestClass:
    fields = _mapping(item, where, "name, share, prompt, output, prefix_tokens, level")
    if "level" in fields:
        inside = f"{where}.level"
        limits = _mapping(fields["level"], inside, "ttft_s, tpot_s, e2e_s, in seconds")
        fields = fields | {"level": _made(ServiceLevel, limits, f"{inside}.", SECONDS)}
    return _made(RequestClass, fields, f"{where}.")


def _mapping(value: object, where: str, keys: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: `key: value` lines are needed: {keys}")
    return value


def _made(record: type[Built], fields: dict[str, Any], where: str, remedy: str = "") -> Built:
    """A record; ``where`` and the field stand before what is wrong, ``remedy`` after it."""
    try:
        return record(**fields)
    except FieldError as error:
        said = f"{error.field}: {error.problem}" if error.field else error.problem
        known = error.field in record.model_fields
        raise InputError(f"{where}{said}{remedy if known else ''}") from None
