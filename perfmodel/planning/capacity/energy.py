"""Electric power of GPUs, from TDP, idle share and utilisation."""

from __future__ import annotations

from perfmodel.planning.capacity.answer import Energy, Range
from perfmodel.planning.capacity.sizing import HOUR_S
from perfmodel.units import MEGA

IDLE = Range(0.15, 0.3)
BUSY = Range(0.6, 1.0)
SOURCE = "assumed"


def energy_of(tdp_w: float, gpus: int, busy: float, tokens_per_s: float) -> Energy:
    """Of ``gpus`` GPUs that run steps for the share ``busy`` of the time."""
    low, high = (
        gpus * tdp_w * (busy * b + (1 - busy) * i)
        for b, i in ((BUSY.low, IDLE.low), (BUSY.high, IDLE.high))
    )
    per_hour = tokens_per_s * HOUR_S / MEGA
    return Energy(Range(low, high), Range(low / 1e3 / per_hour, high / 1e3 / per_hour), SOURCE)
