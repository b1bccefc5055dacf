"""Requests from a CSV file, one row after the other: memory doesn't grow with the file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path

from perfmodel.errors import InputError
from perfmodel.serving.sequence import Prefix, Sequence
from perfmodel.specs.plain_numbers import plain_float, plain_int
from perfmodel.specs.workload import LARGEST

NEEDED = ("arrival_s", "prompt_tokens", "output_tokens")
PREFIX = ("prefix_id", "prefix_tokens")

LATEST = 1e10
"""Seconds up to which requests come: a number tells times apart by 2 µs there."""

Misfit = Callable[[int, int], str | None]
"""Why a request of so many prompt and output tokens can never be served, or None."""


class _Row:
    """One row's values by column, and the errors that name where they stand."""

    def __init__(self, path: Path, line: int, values: dict[str, str]) -> None:
        self.path, self.line, self.values = path, line, values

    def wrong(self, column: str, remedy: str) -> InputError:
        """The error that names file, line, column, value and what would mend it."""
        value = self.values.get(column, "").strip()
        return InputError(f"{self.path}: line {self.line}: {column} is {value[:40]!r}: {remedy}")

    def arrival(self, before: float) -> float:
        """When the request comes, not before the one above."""
        try:
            value = plain_float(self.values["arrival_s"])
        except ValueError:
            value = float("nan")
        if not isfinite(value):
            raise self.wrong("arrival_s", "write seconds as a number")
        if value < 0:
            raise self.wrong("arrival_s", "times start at 0: add an offset to all rows")
        if value > LATEST:
            raise self.wrong("arrival_s", "write seconds from the first request on, not its date")
        if value < before:
            raise self.wrong(
                "arrival_s", f"earlier than the row before ({before:g}): sort the rows by arrival_s"
            )
        return value

    def tokens(self, column: str, least: int = 1) -> int:
        """A count of tokens."""
        text = self.values[column].strip()
        try:
            value = plain_int(text)
        except ValueError:
            raise self.wrong(column, "write a whole number of tokens") from None
        if not least <= value <= LARGEST:
            raise self.wrong(column, f"must lie in {least} … {LARGEST:,}: mend it or drop the row")
        return value

    def prefix(self, prompt: int) -> Prefix:
        """What the prompt shares with others."""
        name = self.values["prefix_id"].strip()
        if not name:
            if self.values["prefix_tokens"].strip() not in {"", "0"}:
                raise self.wrong("prefix_tokens", "needs a prefix_id: give one, or 0 tokens")
            return ()
        tokens = self.tokens("prefix_tokens", least=0)
        if tokens > prompt:
            raise self.wrong(
                "prefix_tokens", f"longer than the prompt ({prompt}): a prefix is part of it"
            )
        return ((name, tokens),) if tokens else ()


def read_trace(path: Path | str, misfit: Misfit | None = None) -> Iterator[Sequence]:
    """The requests of a trace, in order, checked one by one.

    Columns: ``arrival_s`` (seconds, sorted), ``prompt_tokens``, ``output_tokens``, and together or
    not at all ``prefix_id`` and ``prefix_tokens`` (prompts of one id begin with the same tokens).
    Others are ignored.

    Args:
        path: the CSV file.
        misfit: why a request can never be served, or None.

    Raises:
        InputError: the file can't be read, or a row is wrong: its line, column, value and remedy.
    """
    file = Path(path)
    if file.is_fifo() or file.is_char_device():
        raise InputError(f"{file}: a trace is read twice: save it as a file and give that")
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            yield from _rows(file, text, misfit)
    except UnicodeDecodeError:
        raise InputError(f"{file}: can't be read: no UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{file}: can't be read: {error.strerror or error}") from None


def _lines(file: Path, text: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """The lines that aren't blank, with their numbers."""
    reader = csv.reader(text, strict=True)
    try:
        for values in reader:
            if len(values) > 1 or "".join(values).strip():
                yield reader.line_num, values
    except csv.Error as error:
        raise InputError(f"{file}: line {reader.line_num}: no CSV: {error}") from None


def _rows(file: Path, text: Iterator[str], misfit: Misfit | None) -> Iterator[Sequence]:
    lines = _lines(file, text)
    header = [name.strip() for name in next(lines, (1, []))[1]]
    prefixed = _check_header(file, header)
    number, arrival = 0, 0.0
    for line, values in lines:
        if len(values) != len(header):
            raise InputError(
                f"{file}: line {line}: {len(values)} values under {len(header)} columns: "
                "give each column one"
            )
        row = _Row(file, line, dict(zip(header, values, strict=True)))
        arrival = row.arrival(arrival)
        prompt, output = row.tokens("prompt_tokens"), row.tokens("output_tokens")
        prefix = row.prefix(prompt) if prefixed else ()
        if misfit and (reason := misfit(prompt, output)):
            raise row.wrong("prompt_tokens", f"can never be served: {reason}")
        yield Sequence(number, arrival, prompt, output, prefix)
        number += 1
    if not number:
        raise InputError(f"{file}: no requests: a row for each is needed below the header")


def _check_header(file: Path, header: list[str]) -> bool:
    """Whether the trace has prefixes."""
    if not header:
        raise InputError(f"{file}: is empty: write a header with {', '.join(NEEDED)}")
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise InputError(f"{file}: line 1: has no comma: separate columns by commas")
    for name in header:
        if name and header.count(name) > 1:
            raise InputError(f"{file}: line 1: column {name[:40]!r} stands twice: remove one")
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise InputError(f"{file}: line 1: no column {missing[0]}: needed are {', '.join(NEEDED)}")
    has = [name for name in PREFIX if name in header]
    if len(has) == 1:
        other = PREFIX[1 - PREFIX.index(has[0])]
        raise InputError(f"{file}: line 1: {has[0]} without {other}: give both or neither")
    return bool(has)
