"""CSV tables as text, with whatever would shift or hide a value refused."""

from __future__ import annotations

import csv
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
            lines = csv.reader(file, strict=True)
            header = [name.strip() for name in next(lines, [])]
            rows = [line for line in lines if len(line) > 1 or "".join(line).strip()]
    except UnicodeDecodeError:
        raise InputError(f"{path}: can't be read: no UTF-8 text; save it as UTF-8") from None
    except (OSError, csv.Error) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: can't be read: {' '.join(text.split())[:200]}") from None
    if not header:
        raise InputError(f"{path}: is empty")
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
