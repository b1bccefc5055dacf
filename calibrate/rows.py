"""Rows of measurements: one CSV file a family, complete lines, appended as they come."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from calibrate.runs.base import Shape
from calibrate.state import State
from perfmodel.errors import InputError

Status = Literal["ok", "failed"]
SHAPE_FIRST = ("gpu", "framework", "framework_version", "kernel", "dtype")
"""The columns that every table of measured kernels begins with."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Who measured, with what: the same for all rows of a run."""

    gpu: str
    """The profile's name where one was given, else made of the device's."""
    framework: str
    framework_version: str
    device: str
    kind: str
    threads: int
    """Threads of torch on a CPU, SMs on a GPU."""
    software: str
    perfmodel_version: str
    host: str


@dataclass(frozen=True, slots=True)
class Result:
    """What was found for a case. A failed one has zeros for times, and its ``reason``."""

    status: Status
    reason: str
    latency_us: float
    """Median time of one call."""
    fastest_us: float
    spread: float
    """Standard deviation of the samples by their interquartile range, over the median."""
    error: float
    """Relative half-width of the median's 95 % interval."""
    tolerance: float
    reached: bool
    quality: str
    """``clean``, ``corrected`` or ``disturbed`` (see `calibrate.timing`); ``none`` if failed."""
    samples: int
    discarded: int
    repeats: int
    method: str
    """``clock``, ``events``, ``graph``; empty for a failed row."""
    cache: str
    """``cold``: inputs rotated through memory; ``warm``: one set, over and over."""
    copies: int
    flops: int
    bytes: int
    tflops: float
    gb_s: float
    roof_share: float
    """Time at the roof over the time taken; 0 where no roof applies (launches, host copies)."""
    roof: str
    """``compute``, ``memory`` or ``none``."""
    roof_source: str
    """Where the roof's rates are from: ``measured``, or the profile's name."""
    flag: str
    """``above_roof`` when the share exceeds 100 %: look before you use the row."""


@dataclass(frozen=True, slots=True)
class Row:
    """A case, its result, the device's state meanwhile, and where it comes from."""

    family: str
    shape: Shape
    result: Result
    state: State
    provenance: Provenance
    date: str
    """UTC, to the second."""

    def record(self) -> dict[str, object]:
        """The row as columns, those of the measured tables first."""
        source = asdict(self.provenance)
        head = {name: source[name] for name in SHAPE_FIRST if name in source}
        return {
            **head,
            **self.shape,
            **{key: _number(value) for key, value in asdict(self.result).items()},
            **{key: "" if v is None else v for key, v in asdict(self.state).items()},
            **{key: value for key, value in source.items() if key not in head},
            "date": self.date,
        }


def _number(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def slug(name: str) -> str:
    """A device's name as profiles are named: lower case, digits, hyphens.

    >>> slug("NVIDIA H100 80GB HBM3"), slug("AMD EPYC™ 9005 (Zen 5)")
    ('nvidia-h100-80gb-hbm3', 'amd-epyc-9005-zen-5')
    """
    kept = "".join(c if c.isascii() and c.isalnum() else " " for c in name.lower())
    return "-".join(kept.split()) or "device"


class RowFile:
    """The CSV file of one family: what it holds already, and appending to it."""

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        """Open or create the file; a line that an interruption left half-written is cut off.

        Raises:
            InputError: the file has other columns, or can't be written.
        """
        self.path = path
        self._columns = list(columns)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _cut_torn_line(path)
            self.rows = read_rows(path)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; choose another --out") from None
        if self.rows and list(self.rows[0]) != self._columns:
            raise InputError(f"{path}: has other columns than this version writes; move it away")
        if not self.rows:
            path.write_text("", encoding="utf-8")
            self._write(self._columns)

    def append(self, record: Mapping[str, object]) -> None:
        """Write one complete line and hand it to the disk.

        Raises:
            ValueError: a column is missing or unknown: a bug.
        """
        if list(record) != self._columns:
            raise ValueError(f"{self.path.name}: incomplete row {sorted(record)}")
        self._write([record[column] for column in self._columns])

    def _write(self, values: Iterable[object]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(
            ["yes" if v is True else "no" if v is False else _one_line(v) for v in values]
        )
        # One write in append mode: a reader or a crash sees the whole line or none of it.
        with self.path.open("ab", buffering=0) as file:
            file.write(text.getvalue().encode())
            os.fsync(file.fileno())


def _one_line(value: object) -> object:
    return " ".join(value.split()) if isinstance(value, str) else value


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file as text by column; none where it is absent."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _cut_torn_line(path: Path) -> None:
    if not path.is_file():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
