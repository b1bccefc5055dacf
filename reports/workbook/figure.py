"""A row of the Capacity sheet: its formula for one choice, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfmodel.specs.hardware import Hardware
from reports.workbook import inputs
from reports.workbook.between import between_text
from reports.workbook.cells import NONE, Column, Place
from reports.workbook.hardware import HardwareFacts
from reports.workbook.inputs import InputPlaces
from reports.workbook.loads import Loads
from reports.workbook.sized import Sized

RATE = "requests_per_s_replica"
"""The row of a replica's rate, on which all others of a fleet rest."""
Text = Callable[["Maker"], str]
Value = Callable[[Sized], Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the sheet: its column of files, its formula (None: a fact) and its value."""

    column: Column
    value: Value
    text: Text | None = None


@dataclass(frozen=True, slots=True)
class Maker:
    """What formulas of one choice refer to."""

    places: InputPlaces
    loads: Loads
    profiles: HardwareFacts
    place: Place
    number: int
    """Of the choice, from 0."""
    hardware: Hardware

    def __call__(self, key: str) -> str:
        """The choice's own figure."""
        return self.place.at(self.number, key)

    def load(self, key: str) -> str:
        """A quantity over the choice's loads."""
        return self.loads.span(self.number, key)

    def at_level(self, key: str, otherwise: str = NONE) -> str:
        """A quantity at the largest usable load."""
        used = self("usable_loads")
        return f'IF({used}=0,"{otherwise}",INDEX({self.load(key)},{used}))'

    def where(self, key: str, text: str, otherwise: str = NONE) -> str:
        """``text`` where another figure is a number."""
        return f'IF(ISNUMBER({self(key)}),{text},"{otherwise}")'

    def between(self, x: str, y: str, *, from_zero: bool = False) -> str:
        """A figure of a replica at another load, between those that were simulated."""
        line = between_text(self(x), self.load("requests_per_s"), self.load(y), from_zero=from_zero)
        return self.where(x, line)

    def price(self, end: str) -> str:
        """An end of the price, 0 USD being one, or words where there is none."""
        middle = self.places.price(self.hardware.name, "usd_per_gpu_hour")
        key = f"usd_per_gpu_hour_{end}" if end else "usd_per_gpu_hour"
        source = self.places.price(self.hardware.name, key)
        return f'IF(ISNUMBER({middle}),{source},"{inputs.NO_PRICE}")'

    def fact(self, key: str) -> str:
        """A fact of the choice's profile, or words where it has none."""
        if not self.profiles.has(self.hardware, key):
            return f'"{NONE}"'
        return self.profiles.at(self.hardware, key)


def of_level(name: str) -> Value:
    """A figure of the largest usable load."""
    return lambda s: NONE if s.level is None else getattr(s.level, name)


def of_fleet(name: str) -> Value:
    """A figure of the fleet."""
    return lambda s: NONE if s.fleet is None else getattr(s.fleet, name)
