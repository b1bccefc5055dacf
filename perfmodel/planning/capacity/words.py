"""Times and limits in a plan's sentences."""

from __future__ import annotations

from math import ceil, floor, log10

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}


def named(limit: str) -> str:
    """A limit as people write it."""
    return NAMES[limit]


def duration(seconds: float) -> str:
    """A time to three digits.

    >>> duration(0.0412), duration(0.5), duration(12.34)
    ('41.2 ms', '500 ms', '12.3 s')
    """
    if seconds < 0.9995:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s"


def rounded_up(seconds: float) -> float:
    """The next time with two digits.

    >>> rounded_up(0.0412), rounded_up(0.5), rounded_up(12.34)
    (0.042, 0.5, 13.0)
    """
    unit = 10.0 ** (floor(log10(seconds)) - 1)
    return float(f"{ceil(seconds / unit - 1e-9) * unit:.12g}")
