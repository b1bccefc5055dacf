"""Columns: what changes on the page, as text with one entry for each setting of the grid.

A column's name is what the page's elements refer to: ``data-text`` takes the text itself,
``data-width`` a width, ``data-path`` the ``d`` of a path, ``data-place`` the place ``x y scale`` of
a mark (empty: not shown). Everything is formatted here, so that the page's script formats nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Columns = dict[str, list[str]]
NONE = "–"
"""What stands where there is no value."""


def interned(columns: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Each text once, and the columns as places in that list."""
    place: dict[str, int] = {}
    numbered = {
        name: [place.setdefault(text, len(place)) for text in column]
        for name, column in columns.items()
    }
    return {"strings": list(place), "columns": numbered}


def placed(x: float, y: float, scale: float = 1.0) -> str:
    """A place of a mark, in pixels.

    >>> placed(12.34, 5, 2.25)
    '12.3 5 2.2'
    """
    return " ".join(f"{value:.1f}".removesuffix(".0") for value in (x, y, scale))


def share_width(share: float) -> str:
    """A share as a width.

    >>> share_width(0.4567)
    '45.67%'
    """
    return f"{100 * share:.2f}%"
