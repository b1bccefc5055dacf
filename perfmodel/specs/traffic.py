"""What users send and what they expect: request classes, service levels, growth; from YAML too."""

from __future__ import annotations

import math
import os
from typing import Annotated

from pydantic import Field, field_validator

from perfmodel.specs.base import Case
from perfmodel.specs.yaml_file import read_yaml

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Limit = Annotated[float | None, Field(gt=0, allow_inf_nan=False)]


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
    prompt: str | int = 1024
    """Tokens: a number, or a distribution as of `perfmodel.serving.lengths.Lengths`."""
    output: str | int = 256
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
    return Traffic.parse(read_yaml(os.fspath(path)), os.fspath(path))
