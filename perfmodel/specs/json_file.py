"""Strict JSON files: one object comes out, or an error of one line that names the place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError

MAX_BYTES = 16 * 2**20
MAX_DIGITS = 100
"""The longest number that is read; Python refuses to print one of thousands of digits."""


def label(path: Path) -> str:
    """A path on one line."""
    return str(path) if str(path).isprintable() else repr(str(path))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        InputError: one line, if it can't be read or isn't one JSON object.
    """
    where = label(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise InputError(f"{where}: larger than {MAX_BYTES} bytes; this is no config.json")
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{where}: can't be read: {error.strerror}") from None
    return parse_json(text, where)


def parse_json(text: str, where: str) -> dict[str, Any]:
    """The object that ``text`` holds; ``where`` names it in errors.

    Raises:
        InputError: broken JSON, a duplicate key, NaN, or something that isn't an object.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) < len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise InputError(f"{where}: {twice!r:.60}: the key is there twice")
        return made

    def constant(name: str) -> Any:
        raise InputError(f"{where}: {name} is no JSON number")

    def whole(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            raise InputError(f"{where}: a number is too long ({len(digits):,} digits)")
        return int(digits)

    try:
        data = json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_int=whole)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where}: line {error.lineno}, column {error.colno}: broken JSON: {error.msg}"
        ) from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply to be read") from None
    if not isinstance(data, dict):
        raise InputError(f"{where}: must hold one JSON object, not {type(data).__name__}")
    return data
