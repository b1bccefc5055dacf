"""What a kernel-time model of a family is: named parameters and a pure function of shapes.

A form knows no file and no fit. `calibrate` fits its parameters; `perfmodel.kernels` evaluates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from perfmodel.operators.quantity import Array
from perfmodel.specs.hardware import Hardware

Shapes = Mapping[str, Array]
"""Sizes by name, as float64 arrays that broadcast against each other."""
Values = Mapping[str, float]
"""Parameter values by name."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One fitted number of a form: positive, bounded, with a log-normal prior around ``start``."""

    name: str
    unit: str
    """``share``, ``us``, ``-`` (a pure number), …"""
    start: float
    low: float
    high: float
    sigma: float
    """Width of the prior in log: 0.5 says that a factor of 1.6 either way is unsurprising."""
    meaning: str

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.start <= self.high:
            raise ValueError(f"{self.name}: start {self.start} outside [{self.low}, {self.high}]")


@dataclass(frozen=True, slots=True)
class Chip:
    """The datasheet's constants that forms use, in SI."""

    peak: float
    """Dense FLOP/s of the multiply-add that is run."""
    bandwidth: float
    """Device memory, bytes/s."""
    sm_count: int
    """Parallel units; 1 for devices that have none: per-unit terms then fall away."""
    clock_hz: float
    l2_bytes: float
    link: float = 0.0
    """Bytes/s per direction and GPU; 0 for a device alone."""

    @classmethod
    def of(cls, hardware: Hardware, peak: float, link: float = 0.0) -> Chip:
        """A device's constants, for a multiply-add of ``peak`` FLOP/s and a ``link`` of bytes/s."""
        return cls(
            peak=peak,
            bandwidth=hardware.memory_bandwidth,
            # Per-unit terms need the clock too: without it the device counts as one unit.
            sm_count=(hardware.sm_count or 1) if hardware.clock_hz else 1,
            clock_hz=hardware.clock_hz or 1e9,
            l2_bytes=hardware.l2_bytes or 1.0,
            link=link,
        )


class Form(Protocol):
    """A kernel-time model of one family."""

    @property
    def name(self) -> str:
        """What a calibration file calls the form."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The fitted numbers, in the order of a file."""

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one call; positive and finite for any positive shape."""

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """(n, d) coordinates, in log where natural, that a learned correction may depend on."""

    def regime(self, shapes: Shapes) -> Array:
        """A small whole number per shape: errors and intervals are stated per regime."""

    @property
    def regimes(self) -> tuple[str, ...]:
        """The names of the regimes' numbers."""
