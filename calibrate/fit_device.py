"""From measured tables of one device to its calibration file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from calibrate.calibrated import CalibratedSet
from calibrate.score import Score
from calibrate.sets.attention import calibrate_attention
from calibrate.sets.gemm import calibrate_gemm
from calibrate.write import FittedSet
from perfmodel.errors import InputError
from perfmodel.kernels.calibration_file import form_facts
from perfmodel.kernels.forms.gemm_stack import FORMATS
from perfmodel.specs.hardware import Hardware

ROWS = 300
"""Rows per family, format and device that a fit uses at most."""
SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""Names of formats in sets, where the tables call them otherwise."""


@dataclass(frozen=True, slots=True)
class Named:
    """A set under the name that a file gives it."""

    name: str
    fitted: FittedSet


def short(dtype: str) -> str:
    """The name of a format in a set's name."""
    return SHORT.get(dtype, dtype)


def arithmetic_of(peak: float, hardware: Hardware) -> str:
    """The multiply-add whose dense peak a fit took."""
    for name in ("bf16", "fp16", "fp8", "fp4", "int8", "fp32"):
        if hardware.peak(name) == peak:
            return name
    raise ValueError(f"{hardware.name} has no peak of {peak:g} FLOP/s")


def _fitted(
    calibrated: CalibratedSet, scores: Mapping[str, Score], arithmetic: str, kernels: str
) -> FittedSet:
    return FittedSet(calibrated, form_facts(calibrated.form), arithmetic, kernels, scores)


def gemm_sets(table: pd.DataFrame, hardware: Hardware, rows: int) -> Iterator[Named]:
    """One set per number format, and per kernel where a format's kernels are told apart."""
    for dtype, part in table.groupby("dtype"):
        kernels = " ".join(sorted(part["kernel"].astype(str).unique()))
        for made in calibrate_gemm(part, hardware, rows):
            suffix = "" if made.kernel == "any" else f".{made.kernel}"
            yield Named(
                f"gemm.{short(str(dtype))}{suffix}",
                _fitted(
                    made.calibrated, made.scores, FORMATS[str(dtype)].arithmetic,
                    kernels if made.kernel == "any" else made.kernel,
                ),
            )  # fmt: skip


def attention_sets(family: Any) -> Callable[[pd.DataFrame, Hardware, int], Iterator[Named]]:
    """Sets of an attention family, one per format of the cache."""

    def sets(table: pd.DataFrame, hardware: Hardware, rows: int) -> Iterator[Named]:
        for dtype, part in table.groupby("kv_dtype"):
            kernels = " ".join(sorted(part["kernel"].astype(str).unique()))
            calibrated, scores = calibrate_attention(family, part, hardware, rows)
            arithmetic = arithmetic_of(calibrated.chip.peak, hardware)
            yield Named(
                f"{family}.{short(str(dtype))}", _fitted(calibrated, scores, arithmetic, kernels)
            )

    return sets


FAMILIES: dict[str, Callable[[pd.DataFrame, Hardware, int], Iterator[Named]]] = {
    "gemm": gemm_sets,
    "attention_decode": attention_sets("attention_decode"),
    "attention_prefill": attention_sets("attention_prefill"),
    "mla_decode": attention_sets("mla_decode"),
    "mla_prefill": attention_sets("mla_prefill"),
}
"""What fits a family's rows of one device."""


def fit_tables(
    tables: Mapping[str, pd.DataFrame],
    hardware: Hardware,
    rows: int = ROWS,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, FittedSet]:
    """Fit every family of ``tables`` (by name) on the rows of one device.

    Raises:
        InputError: no rows of the device.
    """
    sets: dict[str, FittedSet] = {}
    for family, table in tables.items():
        mine = table[table["gpu"] == hardware.name] if "gpu" in table else table
        if mine.empty or family not in FAMILIES:
            continue
        for named in FAMILIES[family](mine, hardware, rows):
            progress(named.name)
            sets[named.name] = named.fitted
    if not sets:
        raise InputError(f"{hardware.name}: the tables hold no rows of this device")
    return sets


def read_folder(folder: Path) -> dict[str, pd.DataFrame]:
    """The measured tables of a folder by family, from ``<family>.parquet`` files."""
    names = {"experts": "moe"}
    tables = {}
    for family in [*FAMILIES]:
        path = folder / f"{names.get(family, family)}.parquet"
        if path.exists():
            tables[family] = pd.read_parquet(path)
    return tables
