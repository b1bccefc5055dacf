"""A panel of predicted against measured times, with the lines that they are judged by."""

from __future__ import annotations

from typing import Any

import numpy as np

MARKERS = ("o", "^", "s", "D", "v", "P", "X")
"""Kinds differ by marker too, so that a black-and-white print still shows them."""


def against(axes: Any, title: str, unit: str, measured: Any, predicted: Any) -> bool:
    """Set up a panel for pairs of positive times (n,); whether there are any."""
    axes.set(xscale="log", yscale="log", xlabel=f"measured ({unit})", ylabel=f"predicted ({unit})")
    axes.set_title(title, loc="left")
    if len(measured) == 0:
        axes.text(0.5, 0.5, "no row could be predicted", transform=axes.transAxes, ha="center")
        return False
    both = np.concatenate([measured, predicted])
    ends = np.array([both.min() / 1.3, both.max() * 1.3])
    axes.plot(ends, ends, color="black", linewidth=1, label="equal")
    axes.plot(ends, 2 * ends, color="black", linewidth=0.7, linestyle=":", label="a factor of 2")
    axes.plot(ends, ends / 2, color="black", linewidth=0.7, linestyle=":")
    axes.set(xlim=ends, ylim=ends)
    axes.grid(visible=True, color="0.9", linewidth=0.6)
    return True
