"""The workbook's tables as CSV and Parquet: a file each in a folder, or the capacity table alone.

Where a sheet has words instead of a number (no price, no load that does), files have nothing.
Text that a spreadsheet might compute gets an apostrophe before it in CSV; Parquet holds it as it
is.
"""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from perfmodel.errors import InputError
from perfmodel.whole_file import Named, check_free, check_unread, write_whole
from reports.workbook.cells import Scalar, Table
from reports.workbook.styles import is_number_style

CSV, PARQUET = ".csv", ".parquet"
MAIN = "capacity"
"""The table that a single file holds."""
NAMES = (
    "classes", "prices", "capacity", "months", "loads", "latency", "operators", "phases",
    "roofline", "model", "memory", "hardware", "hardware_sources", "notes", "rejected",
)  # fmt: skip
COMPUTED = ("=", "+", "-", "@", "\t", "\r")
"""First characters of what a spreadsheet that opens a CSV takes for a formula."""
Writer: TypeAlias = Callable[[Table, Path], object]


def columns(table: Table) -> dict[str, list[Scalar]]:
    """What files hold: every quantity with its values, each column of one kind."""
    made: dict[str, list[Scalar]] = {}
    for column in table.place.columns:
        values = table.values(column.key)[: table.kept]
        words = [isinstance(value, str) for value in values]
        if is_number_style(column.style):
            values = [None if word else value for word, value in zip(words, values, strict=True)]
        elif any(words):
            values = [None if value is None else str(value) for value in values]
        made[column.key] = values
    return made


def safe(value: Scalar) -> Scalar:
    """A value for CSV: text that would be computed is marked as text."""
    if isinstance(value, str) and value.startswith(COMPUTED):
        return f"'{value}"
    return value


def csv_text(table: Table) -> str:
    """A table as CSV with a header."""
    stream = io.StringIO()
    made = columns(table)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(made)
    writer.writerows([safe(value) for value in row] for row in zip(*made.values(), strict=True))
    return stream.getvalue()


def _write_csv(table: Table, path: Path) -> None:
    path.write_text(csv_text(table), encoding="utf-8")


def _write_parquet(table: Table, path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415  (only where Parquet is asked for)
    import pyarrow.parquet as pq  # noqa: PLC0415

    arrays = {}
    for key, values in columns(table).items():
        whole = all(isinstance(value, int) for value in values if value is not None)
        text = any(isinstance(value, str) for value in values)
        kind = pa.string() if text else pa.int64() if whole else pa.float64()
        arrays[key] = pa.array(values, type=kind)
    pq.write_table(pa.table(arrays), path)


WRITERS: dict[str, Writer] = {CSV: _write_csv, PARQUET: _write_parquet}


def check_tables(path: Path, suffix: str, *, force: bool, reads: Iterable[Named] = ()) -> None:
    """Say before the work that tables couldn't be kept.

    Args:
        path: a file, or a folder for all tables.
        suffix: ``.csv`` or ``.parquet``.
        force: whether files may be overwritten.
        reads: what the work reads, which may not.

    Raises:
        InputError: no such folder, a file in the way, or files that are there already.
    """
    if path.suffix.lower() == suffix:
        check_free(path, (suffix,), force=force, reads=reads)
        return
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file; name a folder, or a file that ends with {suffix}")
    reads = tuple(reads)
    for name in NAMES:
        check_unread(path / (name + suffix), reads)
    there = [name for name in NAMES if (path / (name + suffix)).exists()]
    if there and not force:
        raise InputError(f"{path / (there[0] + suffix)}: is there already; --force overwrites it")


def write_tables(tables: Sequence[Table], path: Path, suffix: str) -> None:
    """Write all tables into a folder, or the capacity table into a file of that suffix.

    Raises:
        InputError: they can't be written.
    """
    write = WRITERS[suffix]
    if path.suffix.lower() == suffix:
        main = next(table for table in tables if table.name == MAIN)
        write_whole(path, lambda part: write(main, part))
    elif path.is_dir():
        for table in tables:
            write_whole(path / (table.name + suffix), lambda part, t=table: write(t, part))  # type: ignore[misc]
    else:
        _new_folder(path, suffix, tables, write)


def _new_folder(path: Path, suffix: str, tables: Sequence[Table], write: Writer) -> None:
    """A folder that appears with all its files."""
    made = ""
    try:
        made = tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent)
        for table in tables:
            write(table, Path(made) / (table.name + suffix))
        Path(made).chmod(0o755)
        Path(made).rename(path)
    except OSError as error:
        raise InputError(f"{path}: can't be written: {error.strerror or error}") from None
    finally:
        if made:
            shutil.rmtree(made, ignore_errors=True)
