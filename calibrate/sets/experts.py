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
from calibrate.table_work import STEEPEST, routing_code, shapes_of
from perfmodel.errors import InputError
from perfmodel.kernels.forms.base import Chip, Shapes
from perfmodel.kernels.forms.experts import ExpertsForm
from perfmodel.operators.quantity import Array
from perfmodel.specs.hardware import Hardware
from perfmodel.units import MICROSECOND

ARITHMETIC = {
    "bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "int4_wo": "bf16", "w4a16_mxfp4": "bf16",
    "w4a8_mxfp4_mxfp8": "fp8", "nvfp4": "fp4",
}  # fmt: skip
"""The multiply-add of each format that a table may name."""


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
    if dtype not in ARITHMETIC:
        raise InputError(
            f"no expert format is called {dtype!r:.40}; known: {', '.join(ARITHMETIC)}"
        )
    arithmetic = ARITHMETIC[dtype]
    peak = hardware.peak(arithmetic)
    if peak is None:
        raise InputError(f"{hardware.name} has no {arithmetic} path, which {dtype} experts need")
    return Chip.of(hardware, peak)


def rows_of(table: pd.DataFrame) -> tuple[Shapes, Array]:
    """Shapes (n,) with the load they imply, and seconds (n,), of one device and format.

    Raises:
        ValueError: rows of several devices or formats.
        InputError: a distribution of tokens that no router is known to follow.
    """
    for name in ("gpu", "dtype"):
        if table[name].nunique() != 1:
            raise ValueError(f"rows of one {name} are needed, not of {table[name].nunique()}")
    unknown = table["distribution"][table["distribution"].map(routing_code).isna()]
    if len(unknown):
        raise InputError(
            f"moe: distribution: {str(unknown.iloc[0])!r:.40}: balanced, uniform or power_law_ "
            f"with an exponent above 0 and at most {STEEPEST:g} are known"
        )
    seconds = table["latency_us"].to_numpy(dtype=np.float64) * MICROSECOND
    return shapes_of("moe", table), seconds


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
