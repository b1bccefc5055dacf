"""Predictions beside their rows as a file: the whole of it, or nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from perfmodel.errors import InputError

Writer = Callable[[Path], object]


def check_free(path: Path, suffixes: tuple[str, ...], *, force: bool) -> None:
    """Say before the work that its result couldn't be kept.

    Raises:
        InputError: another suffix, no such folder, a folder, or a file that is there already.
    """
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{path}: name it with {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if path.is_dir() or (path.exists() and not force):
        raise InputError(f"{path}: is there already; --force overwrites a file")


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


def write_whole(path: Path, write: Writer) -> None:
    """Let ``write`` fill a file beside ``path``, which then takes its place in one step.

    Raises:
        InputError: the disk refuses.
    """
    handle, name = -1, ""
    try:
        handle, name = tempfile.mkstemp(
            suffix=path.suffix, prefix=f".{path.stem}.", dir=path.parent
        )
        os.close(handle)
        write(Path(name))
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise InputError(f"{path}: can't be written: {error.strerror or error}") from None
    finally:
        if name:
            Path(name).unlink(missing_ok=True)
