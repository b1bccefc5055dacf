"""Expert layers: from a table of measured calls of one device and format to calibrated sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from calibrate.calibrated import CalibratedSet, calibrate_set, held_out
from calibrate.design import represent
from calibrate.score import Score
from calibrate.sets.gemm import shares
from perfmodel.errors import InputError
from perfmodel.kernels.forms.base import Chip, Shapes
from perfmodel.kernels.forms.experts import ExpertsForm
from perfmodel.kernels.forms.routing import EVEN, with_load
from perfmodel.operators.quantity import Array
from perfmodel.specs.hardware import Hardware
from perfmodel.units import MICROSECOND

SIZES = ("tokens", "hidden", "inter", "topk", "experts", "moe_tp", "moe_ep")
POWER_LAW = "power_law_"
OLDER = ("0.14.0",)
"""Releases measured before non-gated experts were told apart and draws were capped per rank."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a table's format is stored and multiplied."""

    arithmetic: str
    weight_bytes: float
    """Per element, scales included."""


FORMATS = {
    "bfloat16": Format("bf16", 2.0),
    "fp8": Format("fp8", 1.0),
    "fp8_block": Format("fp8", 1.0 + 4 / 128**2),
    "int4_wo": Format("bf16", 0.5 + 2 / 128),
    "w4a16_mxfp4": Format("bf16", 0.5 + 1 / 32),
    "w4a8_mxfp4_mxfp8": Format("fp8", 0.5 + 1 / 32),
    "nvfp4": Format("fp4", 0.5 + 1 / 16),
}


@dataclass(frozen=True, slots=True)
class ExpertsSet:
    """The calibration of one kernel."""

    kernel: str
    """As the table names it."""
    calibrated: CalibratedSet
    scores: Mapping[str, Score]
    """On the rows not used: all, by regime, above 10 µs."""


def experts_chip(dtype: str, hardware: Hardware) -> Chip:
    """The datasheet's constants for experts in ``dtype``.

    Raises:
        InputError: an unknown format, or a device without a rate for it.
    """
    if dtype not in FORMATS:
        raise InputError(f"no expert format is called {dtype!r:.40}; known: {', '.join(FORMATS)}")
    arithmetic = FORMATS[dtype].arithmetic
    peak = hardware.peak(arithmetic)
    if peak is None:
        raise InputError(f"{hardware.name} has no {arithmetic} path, which {dtype} experts need")
    return Chip(
        peak=peak,
        bandwidth=hardware.memory_bandwidth,
        sm_count=hardware.sm_count or 1 if hardware.clock_hz else 1,
        clock_hz=hardware.clock_hz or 0.0,
        l2_bytes=hardware.l2_bytes or 0.0,
    )


def rows_of(table: pd.DataFrame) -> tuple[Shapes, Array]:
    """Shapes (n,) with the load they imply, and seconds (n,), of one device and format.

    Raises:
        ValueError: rows of several devices, formats or releases.
    """
    for name in ("gpu", "dtype", "framework_version"):
        if table[name].nunique() != 1:
            raise ValueError(f"rows of one {name} are needed, not of {table[name].nunique()}")
    older = str(table["framework_version"].iloc[0]) in OLDER
    width = FORMATS[str(table["dtype"].iloc[0])].weight_bytes
    shapes = {name: table[name].to_numpy(dtype=np.float64) for name in SIZES}
    shapes["gated"] = np.ones(len(table)) if older else 1.0 - _not_gated(shapes)
    shapes["routing"] = table["distribution"].map(_routing).to_numpy(dtype=np.float64)
    shapes["weight_bytes"] = np.full(len(table), width)
    seconds = table["latency_us"].to_numpy(dtype=np.float64) * MICROSECOND
    return with_load(shapes, older=older), seconds


def calibrate_experts(
    table: pd.DataFrame, hardware: Hardware, count: int = 300, seed: int = 0, folds: int = 0
) -> tuple[ExpertsSet, ...]:
    """Fit the form on at most ``count`` rows, a share for each kernel; score it on all others.

    Rows left out of the correction alone give intervals that hold 89 to 93 % of the others, so
    that ``folds`` (see `calibrate_set`) aren't needed.
    """
    table = table.sort_values(list(table.columns), ignore_index=True)
    chip = experts_chip(str(table["dtype"].iloc[0]), hardware)
    shapes, measured = rows_of(table)
    kernels = table["kernel"].to_numpy(dtype=str)
    out = []
    for kernel, share in shares(kernels, count).items():
        mine = kernels == kernel
        rows = {name: size[mine] for name, size in shapes.items()}
        fitted = calibrate_set(
            ExpertsForm(), chip, rows, measured[mine], share, seed, pick=represent, folds=folds
        )
        out.append(ExpertsSet(kernel, fitted, held_out(fitted, rows, measured[mine])))
    return tuple(out)


def _routing(distribution: str) -> float:
    """Code of `perfmodel.kernels.forms.routing` of a table's distribution."""
    if distribution.startswith(POWER_LAW):
        return float(distribution.removeprefix(POWER_LAW))
    return EVEN


def _not_gated(shapes: Mapping[str, Array]) -> Array:
    """1 for rows whose experts have no gate: the Nemotron 3 family, by its sizes."""
    return np.where((shapes["topk"] == 22) | (shapes["inter"] == 1856), 1.0, 0.0)
