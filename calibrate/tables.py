"""Measured tables: CSV or Parquet, of the shared schema or another tool's, checked row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.csv_file import read_text
from calibrate.readers import translate
from calibrate.schema import TIME, Family, Indices, checked, family_of
from calibrate.table_work import roof_of
from perfmodel.errors import InputError, UnknownNameError
from perfmodel.specs.hardware import Hardware, load_hardware

PARQUET = b"PAR1"
FLOOR_US = 5.0
"""What a small kernel takes: added to the roof, so that tiny shapes don't look slow."""
TOO_FAST, TOO_SLOW = 0.1, 600.0
"""Medians of time over roof plus floor beyond which the unit is wrong. In measured tables of
five GPUs they lie between 1.1 and 28 (single rows: up to 590, MLA through Triton)."""
IMPOSSIBLE = 100.0
"""Times faster than the roof that no cache explains: a row in another unit."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one family in the shared schema, and where each comes from."""

    family: Family
    rows: pd.DataFrame
    """The shared columns, `latency_us` among them, then whatever else the file has."""
    source: Path
    numbers: Indices
    """(n,) row of the file that each row was read from, from 1 (a CSV's header isn't counted)."""
    layout: str = "shared"
    """Whose columns the file has."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Rows of the file that hold no measurement, by reason."""


def read_table(path: Path | str, hardware: Hardware | None = None) -> Table:
    """Read a measured table of one family.

    Args:
        path: CSV or Parquet, in the shared schema or a layout that `calibrate.readers` knows.
        hardware: the device of rows that name none, for the check of units.

    Raises:
        InputError: one line with file, row and column of the first fault.
    """
    file = Path(path)
    tables = read_tables(file, hardware)
    if len(tables) > 1:
        families = ", ".join(table.family for table in tables)
        raise InputError(f"{file}: holds several families ({families}): read_tables reads them")
    return tables[0]


def read_tables(path: Path | str, hardware: Hardware | None = None) -> list[Table]:
    """As `read_table`, for files that hold several families (Vidur's attention profiles do).

    Raises:
        InputError: one line with file, row and column of the first fault.
    """
    file = Path(path)
    frame = _read(file)
    if frame.empty:
        raise InputError(f"{file}: no rows")
    numbers = np.arange(1, len(frame) + 1, dtype=np.intp)
    left_out: dict[str, int] = {}
    if "status" in frame and TIME in frame:
        # `calibrate run` keeps a row with its reason for a shape that failed.
        failed = (frame["status"].astype(str) != "ok").to_numpy()
        left_out = {"failed when measured": int(failed.sum())} if failed.any() else {}
        frame, numbers = frame[~failed].reset_index(drop=True), numbers[~failed]
        frame = frame.drop(columns="reason", errors="ignore")  # predictions have one of their own
    tables = []
    for part in translate(frame, numbers, file):
        family = part.family or family_of(part.frame.columns, str(file))
        rows = checked(part.frame, family, part.numbers, str(file))
        table = Table(family, rows, file, part.numbers, part.layout, left_out)
        _check_units(table, hardware)
        tables.append(table)
    return tables


def _read(path: Path) -> pd.DataFrame:
    """The file's columns as text (CSV) or as typed (Parquet).

    Raises:
        InputError: it can't be read.
    """
    try:
        with path.open("rb") as file:
            parquet = file.read(4) == PARQUET
        if not parquet:
            return read_text(path)
        return pd.read_parquet(path).reset_index(drop=True)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: can't be read: {' '.join(text.split())[:200]}") from None


def known_hardware(name: str) -> Hardware | None:
    """The shipped profile that a table's ``gpu`` names, or None."""
    try:
        return load_hardware(name) if name and "/" not in name else None
    except (UnknownNameError, InputError):
        return None


def _check_units(table: Table, hardware: Hardware | None) -> None:
    """Refuse times that are wrong by 1,000.

    Raises:
        InputError: the row that shows it.
    """
    for name, rows in table.rows.groupby("gpu", sort=False):
        device = known_hardware(str(name)) or hardware
        roof = np.zeros(len(rows))
        if device is not None:
            roof = np.nan_to_num(roof_of(table.family, rows, device, quick=True).us)
        times = rows[TIME].to_numpy()
        ratio = times / (roof + FLOOR_US)
        middle = int(np.argsort(ratio)[len(ratio) // 2])
        unit = None
        if ratio[middle] < TOO_FAST:
            unit = "ms" if ratio[middle] > TOO_FAST / 1e3 else "s"
        elif device is not None and ratio[middle] > TOO_SLOW:
            unit = "ns"
        elif (times < roof / IMPOSSIBLE).any():
            middle, unit = int(np.argmax(roof / times)), "ms"
        if unit is not None:
            number = table.numbers[rows.index[middle]]
            least = (
                f"{device.name} needs at least {roof[middle]:.3g}" if device else "kernels take 2"
            )
            raise InputError(
                f"{table.source}: row {number}, {TIME}: {times[middle]:.4g} looks like {unit}, "
                f"not µs: {least} µs"
            )
