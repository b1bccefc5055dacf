"""How wide an interval gets where nothing was measured: never wider than knowing nothing.

Distance from the fitted box, another device, another format and calls that a host's floor hid each
widen an interval in its logarithm, and together without bound. But a kernel that wasn't measured at
all has an interval too: the assumed shares' time t', a factor of s (their family's spread) either
way. So widening ends where both ignorances are covered,

    high ≤ max(own high, s · max(t, t'))        low ≥ min(own low, min(t, t') / s)

with t the set's prediction and its own ends those of its residuals inside the box.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.kernels.calibration_file import LoadedSet
from perfmodel.kernels.forms.base import Shapes
from perfmodel.kernels.kernel_time import KernelTime
from perfmodel.operators.quantity import Quantity, as_quantity, maximum, minimum

Ends = tuple[Quantity, Quantity]
Parts = list[tuple[NDArray[np.bool_], LoadedSet]]
"""Sets, each with the shapes that it prices."""


def is_wide(time: Quantity, ends: Ends, spread: float) -> bool:
    """Whether an end of some setting's interval lies farther off than assumed shares would put it.

    Args:
        time: predicted seconds.
        ends: seconds at the low and high end.
        spread: the factor of the family's assumed shares.
    """
    low, high = (np.asarray(end) for end in ends)
    return bool(np.any(high > spread * time) or np.any(low * spread < time))


def own_ends(parts: Parts, flat: Shapes, time: Quantity) -> Ends:
    """The ends that the sets' residuals give ``time`` as if all shapes lay inside their boxes."""
    low, high = (np.empty(len(parts[0][0])) for _ in range(2))
    for mask, found in parts:
        shapes = {name: size[mask] for name, size in flat.items()}
        low[mask], high[mask] = found.kernels.own_offsets(shapes)
    ends = [as_quantity(time * np.exp(end.reshape(np.shape(time)))) for end in (low, high)]
    return ends[0], ends[1]


def bounded(time: Quantity, ends: Ends, own: Ends, assumed: KernelTime, spread: float) -> Ends:
    """``ends`` without what they have beyond the set's ``own`` ends and the assumed shares'."""
    highest = maximum(own[1], spread * maximum(time, assumed.time_s))
    lowest = minimum(own[0], minimum(time, assumed.time_s) / spread)
    return maximum(ends[0], lowest), minimum(ends[1], highest)
