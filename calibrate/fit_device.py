"""From measured tables of one device to its calibration file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from calibrate.calibrated import CalibratedSet
from calibrate.fit_run import fit_run
from calibrate.run_rows import is_run, read_run
from calibrate.score import Score
from calibrate.sets.attention import calibrate_attention
from calibrate.sets.collective import calibrate_collectives
from calibrate.sets.experts import ARITHMETIC as EXPERT_ARITHMETIC
from calibrate.sets.experts import calibrate_experts
from calibrate.sets.gemm import calibrate_gemm
from calibrate.tables import read_tables
from calibrate.write import FittedSet
from perfmodel.errors import InputError
from perfmodel.kernels.calibration_file import form_facts
from perfmodel.kernels.forms.gemm_stack import FORMATS
from perfmodel.specs.hardware import Hardware

COLLECTIVE_ROWS = 24
FEWEST = 30
"""Shapes below which a set has no correction and its interval no ground: it isn't written."""
FEWEST_EXCHANGES = 5
"""The same for exchanges, whose form is two numbers."""
SLOW_FP8 = "vllm_modeloptfp8moe_flashinfer_cutlass_flashinferexperts"
"""Kernel of ModelOpt's FP8 checkpoints: on Hopper it took 2.6 to 3.6 times as long as BF16 experts.
Nobody who quantises experts would keep it, so that there it has a set under its own name alone."""
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


def expert_sets(table: pd.DataFrame, hardware: Hardware, rows: int) -> Iterator[Named]:
    """One set per number format and kernel; the kernel with the most rows bears the plain name."""
    for dtype, part in table.groupby("dtype"):
        made = sorted(
            calibrate_experts(part, hardware, rows), key=lambda s: -len(s.calibrated.used)
        )
        for number, one in enumerate(made):
            slow = one.kernel == SLOW_FP8 and hardware.compute_capability == "9.0"
            suffix = f".{one.kernel}" if number or slow else ""
            arithmetic = EXPERT_ARITHMETIC[str(dtype)]
            yield Named(
                f"experts.{short(str(dtype))}{suffix}",
                _fitted(one.calibrated, one.scores, arithmetic, one.kernel),
            )


def collective_sets(table: pd.DataFrame, hardware: Hardware, rows: int) -> Iterator[Named]:
    """One set per operation, on at most 24 rows of each."""
    kernels = " ".join(sorted(table["kernel"].astype(str).unique()))
    for made in calibrate_collectives(table, hardware, min(rows, COLLECTIVE_ROWS)):
        yield Named(
            f"collective.{made.operation}",
            _fitted(made.calibrated, made.scores, "none", kernels),
        )


FAMILIES: dict[str, Callable[[pd.DataFrame, Hardware, int], Iterator[Named]]] = {
    "gemm": gemm_sets,
    "attention_decode": attention_sets("attention_decode"),
    "attention_prefill": attention_sets("attention_prefill"),
    "mla_decode": attention_sets("mla_decode"),
    "mla_prefill": attention_sets("mla_prefill"),
    "moe": expert_sets,
    "collective": collective_sets,
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
    return _fit_tables(tables, hardware, rows, progress)[0]


def _fit_tables(
    tables: Mapping[str, pd.DataFrame],
    hardware: Hardware,
    rows: int,
    progress: Callable[[str], None],
) -> tuple[dict[str, FittedSet], dict[str, str]]:
    """The sets, and what has too few rows for one, with the reason."""
    sets: dict[str, FittedSet] = {}
    without: dict[str, str] = {}
    for family, table in tables.items():
        mine = table[table["gpu"] == hardware.name] if "gpu" in table else table
        if mine.empty or family not in FAMILIES:
            continue
        least = FEWEST_EXCHANGES if family == "collective" else FEWEST
        for named in FAMILIES[family](mine, hardware, rows):
            progress(named.name)
            used = len(named.fitted.calibrated.used)
            if used < least:
                without[named.name] = f"{used} shapes are too few: {least} are needed"
            else:
                sets[named.name] = named.fitted
    if not sets:
        why = "; ".join(f"{name}: {reason}" for name, reason in without.items())
        raise InputError(f"{hardware.name}: {why or 'the tables hold no rows of this device'}")
    return sets, without


@dataclass(frozen=True, slots=True)
class Measured:
    """Tables of one device by family, and what they say of themselves."""

    tables: dict[str, pd.DataFrame]
    release: str
    """Of the software measured, as the rows state it; the one with the most rows first."""
    source: str


def read_measured(paths: Sequence[Path], hardware: Hardware) -> Measured:
    """Read measured tables (CSV or parquet, in any layout that `read_tables` knows).

    Raises:
        InputError: a file that isn't a measured table, or no rows of the device.
    """
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise InputError(f"{', '.join(map(str, paths))}: no .parquet or .csv tables there")
    tables: dict[str, list[pd.DataFrame]] = {}
    releases: Counter[str] = Counter()
    names = []
    for file in files:
        for table in read_tables(file, hardware):
            rows = table.rows
            mine = rows[rows["gpu"] == hardware.name] if "gpu" in rows else rows
            if mine.empty:
                continue
            tables.setdefault(table.family, []).append(mine)
            names.append(file.name)
            if {"framework", "framework_version"} <= set(mine):
                stated = mine["framework"].astype(str) + " " + mine["framework_version"].astype(str)
                releases.update(stated)
    if not tables:
        raise InputError(f"{hardware.name}: the tables hold no rows of this device")
    return Measured(
        tables={family: pd.concat(parts, ignore_index=True) for family, parts in tables.items()},
        release=", ".join(name for name, _ in releases.most_common()) or "unstated",
        source=f"rows of {', '.join(sorted(set(names)))} for {hardware.name}",
    )


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    kept = sorted(path.glob("*.parquet")) or sorted(path.glob("*.csv"))
    return [file for file in kept if file.stem != "serving"]


@dataclass(frozen=True, slots=True)
class Fits:
    """The sets of a file, and where they come from."""

    sets: dict[str, FittedSet]
    release: str
    source: str
    left_out: dict[str, str]
    """What wasn't fitted, with the reason."""


def fit_measured(
    paths: Sequence[Path],
    hardware: Hardware,
    rows: int = ROWS,
    progress: Callable[[str], None] = lambda _: None,
) -> Fits:
    """Fit measured tables of ``hardware``, or one folder of `calibrate run`.

    Raises:
        InputError: files that aren't measured tables, or no rows of the device.
    """
    if len(paths) == 1 and is_run(paths[0]):
        found = read_run(paths[0], hardware)
        sets, without = fit_run(found.sets, hardware, progress)
        return Fits(sets, found.release, found.source, found.left_out | without)
    measured = read_measured(paths, hardware)
    sets, without = _fit_tables(measured.tables, hardware, rows, progress)
    return Fits(sets, measured.release, measured.source, without)
