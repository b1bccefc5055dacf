"""Predictions beside their rows as a file: the whole of it, or nothing."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from perfmodel.whole_file import check_free, write_whole


def write_predictions(output: pd.DataFrame, path: Path, *, force: bool = False) -> None:
    """Write ``output`` as Parquet or CSV, by the suffix.

    Raises:
        InputError: as of `check_free`, or the disk refuses.
    """
    check_free(path, (".parquet", ".csv"), force=force)
    if path.suffix.lower() == ".csv":
        write_whole(path, lambda part: output.to_csv(part, index=False))
    else:
        # A column of mixed objects has no Parquet type; as text nothing is lost.
        mixed = {name: str for name in output if output[name].dtype == object}
        write_whole(path, lambda part: output.astype(mixed).to_parquet(part, index=False))
