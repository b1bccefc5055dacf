"""Standard output as commands see it: what can't be written or encoded is no traceback."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

PLAIN = {
    "≈": "~", "–": "-", "×": "x", "·": "|", "µ": "u", "…": "...", "−": "-", "→": "->",
    "²": "2", "³": "3", "≤": "<=", "≥": ">=", "’": "'", "“": '"', "”": '"', "─": "-",
    "│": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+",
}  # fmt: skip
"""What stands for a character that the terminal's encoding lacks."""
PADDING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)\n")


class WriteError(Exception):
    """The answer can't be written; ``closed``: because its reader has left."""

    def __init__(self, reason: str, *, closed: bool = False) -> None:
        super().__init__(reason)
        self.closed = closed


def encodable(text: str, encoding: str | None) -> str:
    """``text`` with what ``encoding`` lacks replaced by ASCII."""
    if encoding is None:
        return text
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        known = "".join(_replaced(character, encoding) for character in text)
        return known.encode(encoding, "replace").decode(encoding)
    return text


def _replaced(character: str, encoding: str) -> str:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return PLAIN.get(character, character)
    return character


class Answer:
    """A stream that turns failures to write into `WriteError` and leaves no padding at ends."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        """Whatever else is asked of it, such as ``buffer``."""
        return getattr(self.stream, name)

    @property
    def encoding(self) -> str:
        """The encoding of the stream below."""
        return self.stream.encoding

    def isatty(self) -> bool:
        """Whether a person reads along."""
        return self.stream.isatty()

    def fileno(self) -> int:
        """The descriptor of the stream below."""
        return self.stream.fileno()

    def write(self, text: str) -> int:
        """Write, without the blanks that tables leave before a line's end.

        Raises:
            WriteError: it can't be written.
        """
        try:
            self.stream.write(encodable(PADDING.sub(r"\1\n", text), self.encoding))
        except OSError as error:
            raise _failure(error) from None
        return len(text)

    def flush(self) -> None:
        """Write what is held back.

        Raises:
            WriteError: it can't be written.
        """
        try:
            self.stream.flush()
        except OSError as error:
            raise _failure(error) from None


def _failure(error: OSError) -> WriteError:
    closed = isinstance(error, BrokenPipeError)
    return WriteError(error.strerror or str(error), closed=closed)


@contextmanager
def answers() -> Iterator[None]:
    """Standard output as an `Answer`; written to its end when the block ends.

    Raises:
        WriteError: it can't be written.
    """
    before = sys.stdout
    if before is None:
        raise WriteError("standard output is closed")
    answer = Answer(before)
    sys.stdout = answer
    try:
        yield
    finally:
        sys.stdout = before
        answer.flush()


def discard_output() -> None:
    """Let what a failed stream still holds go nowhere, so that the exit doesn't stumble on it."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(message: str) -> None:
    """One line on standard error, where there is one."""
    line = f"perfmodel: {' '.join(str(message).split())}"
    if sys.stderr is not None:
        with suppress(OSError):
            print(encodable(line, sys.stderr.encoding), file=sys.stderr, flush=True)
