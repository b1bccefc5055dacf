"""What a person can mend: a wrong file of truths, a wrong adapter."""

from __future__ import annotations


class ConformanceError(Exception):
    """One line that names what is wrong and where; the command exits with status 2."""


def one_line(text: object, limit: int = 200) -> str:
    """``text`` without line breaks and unprintable characters, at most ``limit`` long."""
    printable = "".join(c if c.isprintable() else " " for c in str(text))
    joined = " ".join(printable.split())
    return joined if len(joined) <= limit else f"{joined[: limit - 1]}…"
