"""Numbers as people read them. Quantities come in SI and leave with a unit."""

from __future__ import annotations

import math

from perfmodel.operators.quantity import Quantity
from perfmodel.units import GIB, KIB, MIB

_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def digits(value: float, significant: int = 3) -> str:
    """A number with ``significant`` digits, thousands separated, never in powers of ten.

    >>> digits(1234.5), digits(0.01234), digits(0.0)
    ('1,234', '0.0123', '0')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    places = max(0, significant - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def si(value: float, unit: str) -> str:
    """A quantity with a decimal prefix.

    >>> si(2.375e14, "FLOP")
    '238 TFLOP'
    """
    for factor, prefix in _SI:
        if abs(value) >= factor:
            return f"{digits(value / factor)} {prefix}{unit}"
    return f"{digits(value)} {unit}"


def seconds(amount: Quantity | None) -> str:
    """A time in s, ms or µs.

    >>> seconds(0.405), seconds(6.97e-3), seconds(1.6e-6)
    ('405 ms', '6.97 ms', '1.60 µs')
    """
    value = math.nan if amount is None else float(amount)
    if not math.isfinite(value):
        return "–"
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(value) >= factor:
            return f"{digits(value / factor)} {unit}"
    return f"{digits(value / 1e-6)} µs"


def binary(amount: Quantity) -> str:
    """Bytes of memory with a binary prefix.

    >>> binary(16060522496)
    '14.96 GiB'
    """
    value = float(amount)
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value) >= factor:
            return f"{value / factor:,.2f} {unit}"
    return f"{value:,.0f} B"


def whole(value: float) -> str:
    """A count with thousands separated."""
    if math.isinf(value):
        return "no limit"
    return f"{value:,.0f}"


def percent(share: float) -> str:
    """A share in per cent: one digit below ten, so that small shares stay visible."""
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"
