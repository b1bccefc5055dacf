"""Prices of operators that were asked for before: settings that differ in little share most."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import numpy as np

from perfmodel.inference.phase import Launches
from perfmodel.kernels.kernel_time import KernelTime
from perfmodel.operators.quantity import Quantity
from perfmodel.operators.record import Operator

LARGEST_KEPT = 32_768
"""Elements of an array up to which a price is kept: sweeps over millions would fill memory."""
NOT_PRICED = {"count"}
"""Fields of an operator that the time of one execution doesn't depend on."""


def _key(value: Any) -> Hashable:
    """What tells one field's value from another, arrays by their elements."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if is_dataclass(value):
        return tuple(_key(getattr(value, field.name)) for field in fields(value))
    return value  # type: ignore[no-any-return]  # numbers, names and None


def _elements(operator: Operator) -> int:
    sizes = (getattr(operator, field.name) for field in fields(operator))
    return max((size.size for size in sizes if isinstance(size, np.ndarray)), default=1)


def operator_key(operator: Operator) -> Hashable:
    """Equal for operators of equal time on any device."""
    names = (field.name for field in fields(operator))
    values = tuple(_key(getattr(operator, name)) for name in names if name not in NOT_PRICED)
    return type(operator), values


@dataclass(frozen=True, slots=True)
class Remembered:
    """A device that prices each operator once."""

    device: Launches
    table: dict[Hashable, KernelTime]

    def launched(self, eager_where: Quantity) -> Remembered:
        """The same device where some settings launch their kernels one by one."""
        return Remembered(self.device.launched(eager_where), {})

    def issue_s(self, execution: Literal["graph", "eager"]) -> float:
        """Seconds from launch to launch of kernels without work."""
        return self.device.issue_s(execution)

    def time(self, operator: Operator) -> KernelTime:
        """Seconds of one execution, as the device says them."""
        if _elements(operator) > LARGEST_KEPT:
            return self.device.time(operator)
        key = operator_key(operator)
        known = self.table.get(key)
        if known is None:
            known = self.table[key] = self.device.time(operator)
        return known


def _same(one: Launches, other: Launches) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # calibrations read twice from a file: arrays have no one truth
        return False


class PriceBook:
    """Prices by device, for estimates of one model that share most of their operators."""

    def __init__(self) -> None:
        self._devices: list[Remembered] = []

    def of(self, device: Launches) -> Remembered:
        """``device`` with the prices that an equal one gave."""
        for known in self._devices:
            if _same(known.device, device):
                return known
        made = Remembered(device, {})
        self._devices.append(made)
        return made
