"""The place of whole numbers in a list of them, and which numbers an array holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.operators.quantity import Array

DENSE = 2**21
"""Numbers up to which places stand in one table."""


class Places:
    """Where numbers stand among ``values``, which are whole, in order, and each once."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self._table: NDArray[np.int32] | None = None
        if len(values) and values[-1] <= DENSE:
            self._table = np.zeros(int(values[-1]) + 1, dtype=np.int32)
            self._table[values.astype(np.int64)] = np.arange(len(values), dtype=np.int32)

    def __call__(self, numbers: Array) -> NDArray[np.int64]:
        """Places of ``numbers``, each of which is among the values."""
        if self._table is None:
            return np.searchsorted(self.values, numbers)
        return self._table.take(numbers.astype(np.int64)).astype(np.int64)


def distinct(numbers: Array) -> Array:
    """The different whole numbers of an array, in order.

    >>> distinct(np.asarray([3.0, 1.0, 3.0]))
    array([1., 3.])
    """
    if numbers.size == 0 or numbers.max() > 8 * DENSE:
        return np.unique(numbers)
    seen = np.zeros(int(numbers.max()) + 1, dtype=bool)
    seen[numbers.astype(np.int64)] = True
    return np.flatnonzero(seen).astype(np.float64)
