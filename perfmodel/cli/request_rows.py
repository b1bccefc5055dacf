"""A CSV of requests, written as they end: whole when the simulation is, or not there at all."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfmodel.serving.results import request_record
from perfmodel.serving.sequence import Sequence
from perfmodel.whole_file import part_of


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
    with part_of(path) as part, part.open("w", encoding="utf-8", newline="") as file:
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
