"""Grids that grow where a kernel's time goes in stairs, halved until straight lines meet it.

FlashAttention-2 on an A100 walks blocks of 128 keys in hard waves: up to a block's end a call takes
the same time, beyond it a tenth more. No even grid is fine enough for that, nor needs to be.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from perfmodel.serving.pricing import Array

NARROWEST = 1.0
"""Tokens of an interval that isn't halved any more; what steps up in one is drawn across it."""


def refined(
    price: Callable[[Array], Array], nodes: Array, beside: Array, share: float
) -> tuple[Array, Array]:
    """Nodes and values (lines, n) between which straight lines miss no middle by too much.

    A step up in an interval is missed by half of it in the middle, a bend by most of its height.

    Args:
        price: the values at nodes (lines, n).
        nodes: (lines, n), each line in order; all lines are halved in the same places.
        beside: (lines, 1), what comes on top of the values and isn't interpolated.
        share: of a value and what comes on top, by which a middle may be missed.
    """
    values = price(nodes)
    at, made = [nodes], [values]
    low, high, first, last = nodes[:, :-1], nodes[:, 1:], values[:, :-1], values[:, 1:]
    while low.shape[1]:
        middle = (low + high) / 2
        value = price(middle)
        missed = np.abs(value - (first + last) / 2)
        off = np.any(missed > share * (value + beside), axis=0)
        middle, value = middle[:, off], value[:, off]
        at.append(middle)
        made.append(value)
        low, high = _halves(low[:, off], middle, high[:, off])
        first, last = _halves(first[:, off], value, last[:, off])
        wide = np.max(high - low, axis=0, initial=0.0) > NARROWEST
        low, high, first, last = low[:, wide], high[:, wide], first[:, wide], last[:, wide]
    nodes, values = np.concatenate(at, axis=1), np.concatenate(made, axis=1)
    order = np.argsort(nodes, axis=1, kind="stable")
    return np.take_along_axis(nodes, order, axis=1), np.take_along_axis(values, order, axis=1)


def _halves(low: Array, middle: Array, high: Array) -> tuple[Array, Array]:
    return np.concatenate([low, middle], axis=1), np.concatenate([middle, high], axis=1)
