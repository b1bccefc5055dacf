"""Arithmetic that serves one number and an array alike.

A quantity of a workload (batch, tokens, context) is a Python number or a float64 array. Python's
integers stay exact however large; arrays are float64 because an int64 overflows at 9.2e18, which
the FLOPs of a large sweep exceed.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Quantity: TypeAlias = int | float | Array


def is_array(*values: object) -> bool:
    """Whether any of ``values`` is a numpy array."""
    return any(isinstance(value, np.ndarray) for value in values)


def as_quantity(value: object) -> Quantity:
    """A Python number as it is; anything array-like with a dimension as float64."""
    if isinstance(value, int | float):
        return value
    array = np.asarray(value, dtype=np.float64)
    return array if array.ndim else array.item()


def minimum(a: Quantity, b: Quantity) -> Quantity:
    """The smaller of two quantities, element by element."""
    return np.minimum(a, b) if is_array(a, b) else min(a, b)


def maximum(a: Quantity, b: Quantity) -> Quantity:
    """The larger of two quantities, element by element."""
    return np.maximum(a, b) if is_array(a, b) else max(a, b)


def where(condition: object, yes: Quantity, no: Quantity) -> Quantity:
    """``yes`` where the condition holds, else ``no``; a number for numbers."""
    return as_quantity(np.where(np.asarray(condition), yes, no))


def clip(value: Quantity, low: Quantity, high: Quantity) -> Quantity:
    """``value`` moved into [low, high]."""
    return minimum(maximum(value, low), high)


def ceil_div(a: Quantity, b: int) -> Quantity:
    """``a / b`` rounded up; an integer for an integer."""
    if isinstance(a, np.ndarray):
        return np.ceil(a / b)
    return -(-a // b)


def round_up(a: Quantity, multiple: int) -> Quantity:
    """``a`` rounded up to a multiple."""
    return ceil_div(a, multiple) * multiple
