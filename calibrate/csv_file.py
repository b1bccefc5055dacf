"""CSV tables as text, with whatever would shift or hide a value refused."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from perfmodel.errors import InputError


def read_text(path: Path) -> pd.DataFrame:
    """The named columns of a CSV as text, blank lines left out.

    Raises:
        InputError: it can't be read, a column stands twice, or a row has another number of values
            than the header.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(_lines(path, file))
    except UnicodeDecodeError:
        raise InputError(f"{path}: can't be read: no UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror or error}") from None
    if not lines:
        raise InputError(f"{path}: is empty: write a header, and a row for each measurement")
    header, rows = [name.strip() for name in lines[0]], lines[1:]
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise InputError(f"{path}: the header has no comma: separate columns by commas")
    twice = {name for name in header if name and header.count(name) > 1}
    if twice:
        raise InputError(f"{path}: column {min(twice)!r:.60} stands twice in the header")
    for number, line in enumerate(rows, 1):
        if len(line) != len(header):
            raise InputError(
                f"{path}: row {number}: {len(line)} values under {len(header)} columns"
            )
    data = pd.DataFrame(rows, columns=header, dtype=object)
    return data.loc[:, [bool(name) for name in header]]


def _lines(path: Path, text: Iterator[str]) -> Iterator[list[str]]:
    """The lines that aren't blank."""
    reader = csv.reader(text, strict=True)
    try:
        for values in reader:
            if len(values) > 1 or "".join(values).strip():
                yield values
    except csv.Error as error:
        raise InputError(
            f"{path}: line {reader.line_num}: can't be read: {error}; check its quotes"
        ) from None
