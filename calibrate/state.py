"""What a device was doing while a kernel was timed: clocks, power, heat, throttling, neighbours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """One reading. A figure that the device doesn't give is None, and ``note`` says why."""

    clock_mhz: float | None
    memory_clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    throttle: str
    """Active reasons joined by ``+``, ``none``, or ``unknown``."""
    others_busy: float | None
    """Share of the device that other processes kept busy since the reading before."""
    note: str
    """Which figures are missing, and why; empty when none is."""


def merge(states: Iterable[State]) -> State:
    """The worst of several readings: lowest clock, most power and heat, every throttle reason.

    Raises:
        ValueError: no reading was given.
    """
    read = list(states)
    if not read:
        raise ValueError("no state was read")
    reasons = {reason for state in read for reason in state.throttle.split("+")}
    active = sorted(reasons - {"none"})
    return State(
        clock_mhz=_lowest(s.clock_mhz for s in read),
        memory_clock_mhz=_lowest(s.memory_clock_mhz for s in read),
        power_w=_highest(s.power_w for s in read),
        temperature_c=_highest(s.temperature_c for s in read),
        throttle="+".join(active) or "none",
        others_busy=_highest(s.others_busy for s in read),
        note="; ".join(dict.fromkeys(s.note for s in read if s.note)),
    )


def _lowest(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
