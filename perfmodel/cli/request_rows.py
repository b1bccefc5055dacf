"""A CSV of requests, written as they end: whole when the simulation is, or not there at all."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfmodel.errors import InputError
from perfmodel.serving.results import request_record
from perfmodel.serving.sequence import Sequence


@contextmanager
def request_rows(path: Path | None) -> Iterator[Callable[[list[Sequence]], None] | None]:
    """What a simulation calls with the requests that have ended; None without a ``path``.

    Rows gather in a file beside ``path``, which takes its place when the block ends well.

    Raises:
        InputError: it can't be written.
    """
    if path is None:
        yield None
        return
    part: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="", dir=path.parent, prefix=f".{path.stem}.",
            suffix=path.suffix, delete=False,
        ) as file:  # fmt: skip
            part = Path(file.name)
            writer = csv.writer(file, lineterminator="\n")
            header: list[str] = []

            def write(sequences: list[Sequence]) -> None:
                for sequence in sequences:
                    row = request_record(sequence)
                    if not header:
                        header.extend(row)
                        writer.writerow(header)
                    writer.writerow(row.values())

            yield write
        part.chmod(0o644)
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path}: can't be written: {error.strerror or error}") from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
