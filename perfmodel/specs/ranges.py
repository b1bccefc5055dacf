"""Lists and ranges as people type them: ``1,2,4``, ``1:256:x2``, ``1k:128k:x2``, ``0:1:+0.25``.

``a:b:xF`` begins at a and multiplies by F while it is at most b, ``a:b:+S`` adds S, ``a:b`` adds 1.
``k`` is 1,024 and ``M`` 1,024², as lengths of contexts are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from perfmodel.specs.base import FieldError

MOST = 1_000_000
"""Values of one axis; more is a typing error."""
LARGEST = 10**18
"""Beyond what any axis takes."""
SUFFIXES = {"": 1, "k": 1024, "K": 1024, "m": 1024**2, "M": 1024**2}
_NUMBER = re.compile(
    r"([+-]?(?:[0-9]{1,3}(?:_[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?)([kKmM]?)"
)
SYNTAX = "numbers, lists such as 1,2,4, or ranges such as 1:256:x2 and 0:1024:+128 (1k is 1,024)"


def _number(text: str, axis: str) -> Fraction:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise FieldError(axis, f"{text.strip()[:40]!r} is no number; write {SYNTAX}")
    digits, suffix = match.groups()
    value = Fraction(digits.replace("_", "")) * SUFFIXES[suffix]
    if abs(value) > LARGEST:
        raise FieldError(axis, f"{text.strip()[:40]} is out of range")
    return value


def _steps(text: str, axis: str) -> Iterator[Fraction]:
    """The numbers of one item between commas."""
    parts = [part.strip() for part in text.split(":")]
    if len(parts) == 1:
        yield _number(text, axis)
        return
    if len(parts) > 3:
        raise FieldError(axis, f"{text[:40]!r} has too many colons; write {SYNTAX}")
    value, end = _number(parts[0], axis), _number(parts[1], axis)
    step = parts[2] if len(parts) == 3 else "+1"
    times = step[:1] in {"x", "X", "*"}
    if not times and not step.startswith("+"):
        raise FieldError(axis, f"the step {step[:20]!r} begins with x or +; write {SYNTAX}")
    by = _number(step[1:], axis)
    if end < value or by <= (1 if times else 0) or (times and value <= 0):
        raise FieldError(axis, f"{text[:40]!r} doesn't grow from its start to its end")
    if not times and (end - value) / by > MOST:
        raise FieldError(axis, f"{text[:40]!r} has more than {MOST:,} values")
    if not times and value.denominator == by.denominator == 1:
        yield from map(Fraction, range(int(value), int(end) + 1, int(by)))
        return
    while value <= end:
        yield value
        value = value * by if times else value + by


def numbers(text: str, axis: str, *, whole: bool) -> tuple[float, ...]:
    """The numbers that ``text`` lists, in its order, each once.

    Args:
        text: items between commas, each a number or a range.
        axis: what errors name.
        whole: steps of a range are rounded to whole numbers; a fraction by itself is refused.

    Raises:
        InputError: one line that names the axis, the item and what would do.

    >>> numbers("1:20:x2,3", "batch", whole=True)
    (1, 2, 4, 8, 16, 3)
    >>> numbers("0:1:+0.25", "kv_offload", whole=False)
    (0.0, 0.25, 0.5, 0.75, 1.0)
    """
    found: dict[float, None] = {}
    for item in text.split(","):
        single = ":" not in item
        for value in _steps(item, axis):
            if whole and single and value.denominator != 1:
                raise FieldError(axis, f"{item.strip()[:40]!r} is no whole number")
            found[round(value) if whole else float(value)] = None
            if len(found) > MOST:
                raise FieldError(axis, f"{text[:40]!r} has more than {MOST:,} values")
    return tuple(found)
