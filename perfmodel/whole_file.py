"""Files that appear whole or not at all, and are looked at before the work that fills them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

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
