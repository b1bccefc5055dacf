"""Numbers as text: those of files, and those that people type.

Python reads more than anybody writes: ``1_0`` is ten to it, and so is ``１０``. In a file that is a
slip, of which nobody would hear.
"""

from __future__ import annotations

import re

_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(_[0-9]{3})+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def plain_float(text: str) -> float:
    """A number of a file: its digits are 0 to 9, and nothing stands between them.

    Raises:
        ValueError: it is none.

    >>> plain_float(" 1e3 ")
    1000.0
    """
    return float(_plain(text))


def plain_int(text: str) -> int:
    """A whole number of a file, likewise.

    Raises:
        ValueError: it is none.
    """
    return int(_plain(text))


def typed_float(text: str) -> float:
    """A number as typed: thousands may be separated by underscores.

    Raises:
        ValueError: it is none.

    >>> typed_float("1_000.5")
    1000.5
    """
    return float(_typed(text))


def typed_int(text: str) -> int:
    """A whole number as typed, likewise.

    Raises:
        ValueError: it is none.

    >>> typed_int("131_072")
    131072
    """
    return int(_typed(text))


def _plain(text: str) -> str:
    if "_" in text or not text.isascii():
        raise ValueError("no plain number")
    return text


def _typed(text: str) -> str:
    grouped = _GROUPED.fullmatch(text.strip())
    return _plain(text.replace("_", "") if grouped else text)
