"""Files that appear whole or not at all, and are looked at before the work that fills them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfmodel.errors import InputError

Writer = Callable[[Path], object]
PICTURES = (".svg", ".png", ".pdf")
"""Suffixes of pictures."""
Named = str | os.PathLike[str] | None
"""What a command reads: a file, or a name that may be one."""


def check_free(
    path: Path, suffixes: tuple[str, ...], *, force: bool, reads: Iterable[Named] = ()
) -> None:
    """Say before the work that its result couldn't be kept.

    Args:
        path: what is to be written.
        suffixes: what its name may end with.
        force: whether it may take the place of a file.
        reads: what the work reads, which not even ``force`` overwrites.

    Raises:
        InputError: another suffix, no such folder or none that may be written to, a folder, a file
            that is there already, or one that the work reads.
    """
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{path}: name it with {' or '.join(suffixes)}")
    check_unread(path, reads)
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if path.is_dir():
        raise InputError(f"{path}: is a folder: name a file")
    if os.path.lexists(path) and not force:
        raise InputError(f"{path}: is there already; --force overwrites a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(f"{path}: the folder {path.parent} can't be written to: choose another")


def check_unread(path: Path, reads: Iterable[Named]) -> None:
    """Refuse to write what the work reads, by whatever path or link it was named.

    Raises:
        InputError: names the file, and what it is to the work.
    """
    for given in reads:
        if given and same_file(path, Path(given)):
            known = "" if str(given) == str(path) else f" (as {given})"
            raise InputError(
                f"{path}: is read by this command{known}, so that writing it would destroy what "
                "was given: name another file"
            )


def check_apart(*paths: Path | None) -> None:
    """Refuse to write two results to one place.

    Raises:
        InputError: names it.
    """
    seen: list[Path] = []
    for path in paths:
        if path is None:
            continue
        if any(same_file(path, other) for other in seen):
            raise InputError(f"{path}: two results can't be one file: name two")
        seen.append(path)


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file or folder, or would once it is there."""
    try:
        return os.path.realpath(one) == os.path.realpath(other) or one.samefile(other)
    except (OSError, ValueError):  # one isn't there, or is no path at all
        return False


@contextmanager
def part_of(path: Path) -> Iterator[Path]:
    """A file beside ``path`` for the block to fill, which then takes its place in one step.

    It has the permissions of the file that it replaces, else those of any new file.

    Raises:
        InputError: the disk refuses.
    """
    part = path.parent / f".{path.stem[:40]}.{secrets.token_hex(4)}{path.suffix}"
    try:
        part.open("xb").close()
        yield part
        if path.exists():
            part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path}: can't be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, write: Writer) -> None:
    """Let ``write`` fill a file beside ``path``, which then takes its place in one step.

    Raises:
        InputError: the disk refuses.
    """
    with part_of(path) as part:
        write(part)


def write_text(path: Path, text: str) -> None:
    """Write a file of text, in UTF-8 and with newlines as they are.

    Raises:
        InputError: the disk refuses.
    """
    write_whole(path, lambda part: part.write_bytes(text.encode()))
