"""Figures between the loads that were simulated, as formulas and as numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports.workbook.cells import NONE, Scalar


def between_text(x: str, xs: str, ys: str, *, from_zero: bool = False) -> str:
    """The formula of a straight line between neighbouring loads.

    Below the first load it is that load's figure, or a line from 0 at no load (``from_zero``);
    beyond the last one it is the last one's. ``x`` is a cell, ``xs`` and ``ys`` ranges below each
    other. Words where a load has no figure.
    """
    place = f"MATCH({x},{xs},1)"

    def at(span: str, row: str) -> str:
        return f"INDEX({span},{row})"

    x0, x1, y0, y1 = at(xs, place), at(xs, f"{place}+1"), at(ys, place), at(ys, f"{place}+1")
    below = at(ys, "1")
    if from_zero:
        below = f"{x}/{at(xs, '1')}*{below}"
    line = f"{y0}+({x}-{x0})*({y1}-{y0})/({x1}-{x0})"
    return (
        f'IF(COUNT({ys})<ROWS({ys}),"{NONE}",IF({x}<={at(xs, "1")},{below},'
        f"IF({x}>={at(xs, f'ROWS({xs})')},{at(ys, f'ROWS({ys})')},{line})))"
    )


def between(
    x: float, xs: Sequence[float], ys: Sequence[Scalar], *, from_zero: bool = False
) -> Scalar:
    """What `between_text` gives."""
    numbers = [y for y in ys if isinstance(y, int | float)]
    if len(numbers) < len(ys):
        return NONE
    first = ([0.0], [0.0]) if from_zero else ([], [])
    return float(np.interp(x, [*first[0], *xs], [*first[1], *numbers]))
