"""Numbers as people read them. Quantities come in SI and leave with a unit."""

from __future__ import annotations

import math
from collections.abc import Iterable

from perfmodel.operators.quantity import Quantity
from perfmodel.units import GIB, KIB, MIB

_SI = {1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: ""}
_TIME = {1.0: "s", 1e-3: "ms", 1e-6: "µs"}


def digits(value: float, significant: int = 3) -> str:
    """A number with ``significant`` digits, thousands separated, never in powers of ten.

    >>> digits(1234.5), digits(0.01234), digits(0.99988), digits(0.0)
    ('1,234', '0.0123', '1.00', '0')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    rounded = float(f"{value:.{significant - 1}e}")
    places = max(0, significant - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:,.{places}f}"


def exact(value: float) -> str:
    """A figure as it was written, thousands separated.

    >>> exact(1979.0), exact(79.18), exact(8)
    ('1,979', '79.18', '8')
    """
    return f"{value:,.10g}"


def _factor(value: float, factors: Iterable[float]) -> float:
    """The first factor that ``value``, rounded to three digits, isn't below; else the last."""
    shown = float(f"{abs(value):.2e}") if math.isfinite(value) else value
    last = 1.0
    for last in factors:
        if shown >= last:
            return last
    return last


def si(value: float, unit: str) -> str:
    """A quantity with a decimal prefix.

    >>> si(2.375e14, "FLOP"), si(999.9e9, "B"), si(0, "")
    ('238 TFLOP', '1.00 TB', '0')
    """
    factor = _factor(value, _SI)
    return f"{digits(value / factor)} {_SI[factor]}{unit}".rstrip()


def seconds(amount: Quantity | None) -> str:
    """A time in s, ms or µs.

    >>> seconds(0.405), seconds(6.97e-3), seconds(1.6e-6)
    ('405 ms', '6.97 ms', '1.60 µs')
    """
    value = math.nan if amount is None else float(amount)
    if not math.isfinite(value):
        return "–"
    factor = _factor(value, _TIME)
    return f"{digits(value / factor)} {_TIME[factor]}"


def binary(amount: Quantity) -> str:
    """Bytes of memory with a binary prefix.

    >>> binary(16060522496), binary(2**20 - 1), binary(0)
    ('14.96 GiB', '1.00 MiB', '0 B')
    """
    value = float(amount)
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if round(abs(value) / factor, 2) >= 1:
            return f"{value / factor:,.2f} {unit}"
    return f"{value:,.0f} B"


def binary_exact(amount: Quantity) -> str:
    """Bytes with a binary prefix, and in full where that says more.

    >>> binary_exact(2**21), binary_exact(0)
    ('2.00 MiB (2,097,152 B)', '0 B')
    """
    short = binary(amount)
    return short if short.endswith(" B") else f"{short} ({whole(float(amount))} B)"


def whole(value: float) -> str:
    """A count with thousands separated."""
    if math.isinf(value):
        return "no limit"
    return f"{value:,.0f}"


def counted(number: int, what: str) -> str:
    """A count of things.

    >>> counted(1, "user"), counted(1200, "user")
    ('1 user', '1,200 users')
    """
    return f"{whole(number)} {what}" + "s" * (number != 1)


def percent(share: float) -> str:
    """A share in per cent: one digit below ten, so that small shares stay visible."""
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"
