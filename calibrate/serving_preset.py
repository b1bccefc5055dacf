"""The three numbers of an engine preset that are fitted on measured loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from perfmodel.operators.quantity import Array
from perfmodel.specs.engine import Engine
from perfmodel.specs.engine_timing import GemmScale, Kernels

NAMES = ("reads", "compute", "sequence_us")
LEAST, MOST = np.array([0.5, 0.5, 0.0]), np.array([2.0, 2.0, 500.0])
"""Bounds of the numbers."""
LEAST_SCALE, MOST_SCALE = 0.2, 20.0
"""What a preset's factors may be."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What is fitted."""

    reads: float
    """Factor on products that reading weights limits, and on exchanges: decode."""
    compute: float
    """Factor on products that arithmetic limits: prompts."""
    sequence_us: float
    """The host's time for each sequence in a step."""

    @property
    def array(self) -> Array:
        """(3,)."""
        return np.array([self.reads, self.compute, self.sequence_us])


def numbers_of(array: Array) -> Numbers:
    """Within the bounds."""
    return Numbers(*(float(value) for value in np.clip(array, LEAST, MOST)))


def own_numbers(engine: Engine) -> Numbers:
    """A preset's own."""
    return Numbers(1.0, 1.0, engine.host.sequence_us)


def changed(engine: Engine, numbers: Numbers) -> Engine:
    """The preset with its kernel factors times the numbers', and the new host time."""
    host = engine.host.model_copy(update={"sequence_us": written(numbers.sequence_us)})
    return engine.model_copy(update={"kernels": _kernels(engine.kernels, numbers), "host": host})


def _kernels(own: Kernels, numbers: Numbers) -> Kernels:
    f = numbers.reads
    new: dict[str, Any] = {"collective": _scale(own.collective * f)}
    for name in ("gemm", "gemm_8bit", "gemm_4bit"):
        scale: GemmScale | None = getattr(own, name)
        if scale is not None:
            new[name] = scale.model_copy(update={
                "compute": _scale(scale.compute * numbers.compute),
                "memory": _scale(scale.memory * f),
            })  # fmt: skip
    reduce = own.all_reduce
    if reduce is not None:
        new["all_reduce"] = reduce.model_copy(update={
            "start_us": written(reduce.start_us * f), "rank_us": written(reduce.rank_us * f),
            "link_share": min(1.0, written(reduce.link_share / f)),
        })  # fmt: skip
    return own.model_copy(update=new)


def _scale(value: float) -> float:
    return written(min(max(value, LEAST_SCALE), MOST_SCALE))


def written(value: float) -> float:
    """A fitted number to four digits, more than a fit on a few loads knows.

    >>> written(0.83999999999), written(1234.56)
    (0.84, 1235.0)
    """
    return float(f"{value:.4g}")


def text_of(engine: Engine) -> str:
    """The preset as a file."""
    data = engine.model_dump(mode="json", by_alias=True, exclude_none=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=None)
