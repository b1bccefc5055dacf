"""Calls that `calibrate run` timed, as points under a roof."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from calibrate.rows import read_rows
from calibrate.run_rows import GOOD, SHORT
from calibrate.runs.base import ARITHMETIC
from perfmodel.errors import InputError
from perfmodel.inference.roofline import Measured
from perfmodel.specs.plain_numbers import plain_float
from perfmodel.units import MICROSECOND

NEEDED = ("status", "quality", "dtype", "latency_us", "flops", "bytes")


def read_calls(path: Path) -> tuple[Measured, ...]:
    """The undisturbed calls of a run's folder, or of one of its files, that count FLOPs.

    Raises:
        InputError: no such file, another table, or no call that can be shown.
    """
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise InputError(f"{path}: no rows of calibrate run: give its folder, or a .csv in it")
    calls = tuple(call for file in files for call in _calls(file))
    if not calls:
        raise InputError(f"{path}: no undisturbed call that counts FLOPs")
    return calls


def _calls(file: Path) -> Iterator[Measured]:
    for number, row in enumerate(read_rows(file), start=2):
        missing = [name for name in NEEDED if row.get(name) is None]
        if missing:
            raise InputError(f"{file}: no column {missing[0]}: not a table of calibrate run")
        if row["status"] != "ok" or row["quality"] not in GOOD:
            continue
        try:
            flops, traffic = plain_float(row["flops"]), plain_float(row["bytes"])
            seconds = plain_float(row["latency_us"]) * MICROSECOND
        except ValueError:
            raise InputError(f"{file}: line {number}: flops, bytes, latency_us: numbers") from None
        if flops > 0 and traffic > 0 and seconds > 0:
            dtype = ARITHMETIC.get(row["dtype"], row["dtype"])
            yield Measured(file.stem, SHORT.get(dtype, dtype), flops, traffic, seconds)
