"""Matrix multiplies: from a table of measured calls of one device and format to calibrated sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from calibrate.calibrated import CalibratedSet, calibrate_set, held_out
from calibrate.design import Indices, represent
from calibrate.score import Score
from perfmodel.kernels.forms.gemm_stack import block_kernel, gemm_chip, gemm_form
from perfmodel.operators.quantity import Array
from perfmodel.specs.hardware import Hardware
from perfmodel.units import MICROSECOND

SIZES = ("m", "n", "k")
FEWEST = 30
"""Rows that a kernel of its own gets at least."""


@dataclass(frozen=True, slots=True)
class GemmSet:
    """The calibration of one kernel, or of all where they aren't told apart."""

    kernel: str
    """``any``, or a name of `block_kernel`."""
    calibrated: CalibratedSet
    scores: Mapping[str, Score]
    """On the rows not used: all, by regime, above 10 µs."""


def rows_of(table: pd.DataFrame) -> tuple[dict[str, Array], Array]:
    """Shapes (n,) by name and seconds (n,) of one device and format; repeats at their median.

    Raises:
        ValueError: rows of several devices or formats.
    """
    for name in ("gpu", "dtype"):
        if table[name].nunique() != 1:
            raise ValueError(f"rows of one {name} are needed, not of {table[name].nunique()}")
    merged = table.groupby(list(SIZES), as_index=False)["latency_us"].median()
    shapes = {name: merged[name].to_numpy(dtype=np.float64) for name in SIZES}
    return shapes, merged["latency_us"].to_numpy(dtype=np.float64) * MICROSECOND


def by_size(features: Array, count: int, *, seed: int = 0) -> Indices:
    """A design by the logs of m, n and k, the form's first features.

    The further ones, which tell kernels apart, would crowd the rows where they change.
    """
    return represent(features[:, : len(SIZES)], count, seed=seed)


def calibrate_gemm(
    table: pd.DataFrame, hardware: Hardware, count: int = 300, seed: int = 0, folds: int = 0
) -> tuple[GemmSet, ...]:
    """Fit the form of ``table``'s format on at most ``count`` rows; score it on all others.

    Block-wise FP8 runs several kernels, each on shapes of its own: one set each, with its share
    of ``count``.

    Intervals rest on single rows left out of the correction, which came closest to nine tenths of
    the rows not used (88 to 94 %); ``folds`` leaves parts out of the whole fit and is wider.
    """
    dtype = str(table["dtype"].iloc[0])
    shapes, measured = rows_of(table)
    kernels = np.asarray(["any"] * len(measured))
    if dtype == "fp8_block":
        kernels = np.asarray(block_kernel(hardware, shapes))
    form, chip = gemm_form(dtype, hardware), gemm_chip(dtype, hardware)
    out = []
    for kernel, share in shares(kernels, count).items():
        mine = kernels == kernel
        rows = {name: size[mine] for name, size in shapes.items()}
        fitted = calibrate_set(
            form, chip, rows, measured[mine], share, seed, pick=by_size, folds=folds
        )
        out.append(GemmSet(kernel, fitted, held_out(fitted, rows, measured[mine])))
    return tuple(out)


def shares(kernels: np.ndarray, count: int) -> dict[str, int]:
    """How many of ``count`` rows each kernel gets: by its rows, at least `FEWEST` if it can be."""
    names, rows = np.unique(kernels, return_counts=True)
    floor = min(FEWEST, count // len(names))
    spare = count - floor * len(names)
    given = floor + np.floor(spare * rows / rows.sum()).astype(int)
    return {str(name): int(number) for name, number in zip(names, given, strict=True)}
