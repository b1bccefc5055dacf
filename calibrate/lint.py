"""Doubts about a measured table: named findings with their rows. Nothing is dropped.

Thresholds come from what public tables of five GPUs hold: a repeated measurement differs by about
1 % (median), a tenth of all GEMM rows above 20 µs are over 5 % slower than the next larger one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calibrate.schema import ORIGIN, SCHEMAS, TIME, Mask
from calibrate.table_work import Roof, format_column, roof_of
from calibrate.tables import FLOOR_US, Table, known_hardware
from perfmodel.operators.quantity import Array
from perfmodel.specs.hardware import Hardware

DIFFERS = 1.10
"""Slowest over fastest of one shape, beyond which repeats disagree."""
STANDS_OUT = 3.0
"""Factor over (or under) both neighbours."""
FAR = 10.0
"""Factor over the usual distance from the roof, of rows of one kernel and like size."""
FEW = 5
"""Rows below which a class of size has no usual distance of its own."""
TOLERANCE = 0.98
"""Share of the roof's time below which a row is too fast: clocks boost a little."""
IN_L2 = 2.0
"""L2 sizes of traffic up to which being too fast is put down to a warm L2."""
SLOWER = 1.05
ABOVE_US = 20.0
"""Shorter times hang on launches and clocks' ticks: they aren't compared with the next size."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A doubt about some rows."""

    check: str
    message: str
    rows: tuple[int, ...]
    """Their numbers in the file."""

    @property
    def count(self) -> int:
        """How many rows."""
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class _Lint:
    """A table with what several checks need."""

    table: Table
    roof: Roof
    l2_bytes: Array
    """(n,) of each row's device; NaN where it isn't known."""
    key: pd.Series[Any]
    """Rows that differ in nothing but their time have the same."""
    line: pd.Series[Any]
    """Rows of one sweep have the same: all is equal but the family's axis."""

    @property
    def times(self) -> Array:
        """Microseconds (n,)."""
        times: Array = self.table.rows[TIME].to_numpy()
        return times

    def finding(self, check: str, mask: Mask, message: str) -> Iterator[Finding]:
        """A finding of the rows in ``mask``, unless there are none."""
        if mask.any():
            rows = tuple(sorted({int(number) for number in self.table.numbers[mask]}))
            yield Finding(check, message, rows)


def lint(table: Table, hardware: Hardware | None = None) -> list[Finding]:
    """All findings; ``hardware`` is the device of rows that name no known one."""
    if table.rows.empty:
        return []
    prepared = _prepare(table, hardware)
    return [finding for check in CHECKS for finding in check(prepared)]


def _prepare(table: Table, hardware: Hardware | None) -> _Lint:
    rows, schema = table.rows, SCHEMAS[table.family]
    roof = Roof(np.full(len(rows), np.nan), np.zeros(len(rows)))
    l2 = np.full(len(rows), np.nan)
    for name, where in rows.groupby("gpu", sort=False).indices.items():
        device = known_hardware(str(name)) or hardware
        if device is None:
            continue
        part = roof_of(table.family, rows.iloc[where], device)
        roof.us[where], roof.memory_bytes[where] = part.us, part.memory_bytes
        l2[where] = device.l2_bytes if device.l2_bytes is not None else np.nan
    names = [*ORIGIN, *schema.required]
    names += ["dtype"] if "dtype" in rows and "dtype" not in names else []
    sweep = [name for name in names if name != schema.axis]
    return _Lint(
        table, roof, l2,
        key=rows.groupby(names, sort=False).ngroup(),
        line=rows.groupby(sweep, sort=False).ngroup(),
    )  # fmt: skip


def _duplicates(data: _Lint) -> Iterator[Finding]:
    times = pd.Series(data.times).groupby(data.key.to_numpy())
    repeated = (times.transform("size") > 1).to_numpy()
    spread = (times.transform("max") / times.transform("min")).to_numpy()
    apart = repeated & (spread > DIFFERS)
    keys = data.key[repeated].nunique()
    if repeated.any():
        yield from data.finding(
            "duplicate", repeated, f"{keys} shapes are measured more than once: take the median"
        )
    if apart.any():
        yield from data.finding(
            "differing-duplicate", apart,
            f"repeats differ by over {100 * (DIFFERS - 1):.0f} %, up to {spread[apart].max():.3g}×",
        )  # fmt: skip


def _too_fast(data: _Lint) -> Iterator[Finding]:
    fast = np.nan_to_num(data.times / data.roof.us, nan=np.inf) < TOLERANCE
    moved = data.roof.memory_bytes
    warm = fast & (moved > 0) & ~(moved > IN_L2 * data.l2_bytes)
    for check, mask, why in (
        ("l2-warm", warm, "faster than device memory, with traffic that L2 holds: timed warm"),
        ("above-bandwidth", fast & (moved > 0) & ~warm, "faster than the device's memory or link"),
        ("above-peak", fast & (moved == 0), "faster than the datasheet's peak or link"),
    ):
        if mask.any():
            best = (data.roof.us[mask] / data.times[mask]).max()
            yield from data.finding(check, mask, f"{why}; up to {best:.3g}× the roof")


def _neighbours(data: _Lint) -> tuple[Array, Array]:
    """Time of the next smaller and next larger size in the sweep, NaN at its ends."""
    axis = data.table.rows[SCHEMAS[data.table.family].axis].to_numpy()
    line = data.line.to_numpy()
    every = pd.DataFrame({"line": line, "axis": axis, "time": data.times})
    middle = every.groupby(["line", "axis"])["time"].median().reset_index()
    sweep = middle.groupby("line")["time"]
    middle["before"], middle["after"] = sweep.shift(1), sweep.shift(-1)
    found = every[["line", "axis"]].merge(middle, on=["line", "axis"], how="left")
    return found["before"].to_numpy(), found["after"].to_numpy()


def _outliers(data: _Lint) -> Iterator[Finding]:
    before, after = _neighbours(data)
    times = data.times
    # A first or last row has one neighbour (NaN compares as false), and may differ for a reason.
    slow = times > STANDS_OUT * np.maximum(before, after)
    fast = times < np.minimum(before, after) / STANDS_OUT
    yield from data.finding(
        "outlier", slow | fast,
        f"over {STANDS_OUT:.0f}× slower or faster than both neighbours in the sweep",
    )  # fmt: skip
    distance = pd.Series(times / (data.roof.us + FLOOR_US))
    far = np.nan_to_num((distance / _usual(data, distance)).to_numpy()) > FAR
    yield from data.finding(
        "far-from-roof", far,
        f"over {FAR:.0f}× as far from the roof as rows of this kernel and size usually are",
    )  # fmt: skip


def _usual(data: _Lint, distance: pd.Series[float]) -> pd.Series[float]:
    """Median distance of rows of the same GPU, kernel and format, within a factor of 4 in size."""
    rows = data.table.rows
    names = ("gpu", "kernel", format_column(data.table.family))
    groups = [rows[name].to_numpy() for name in names]
    size = np.floor(np.log2(data.roof.us + FLOOR_US) / 2)
    near = distance.groupby([*groups, size])
    enough = near.transform("size") >= FEW
    return near.transform("median").where(enough, distance.groupby(groups).transform("median"))


def _not_monotone(data: _Lint) -> Iterator[Finding]:
    _, after = _neighbours(data)
    slower = (data.times > ABOVE_US) & (data.times > SLOWER * after)
    yield from data.finding(
        "non-monotone", slower,
        f"over {100 * (SLOWER - 1):.0f} % slower than the next larger size: kernels switch with "
        "shape, no error by itself",
    )  # fmt: skip


def _mixed(data: _Lint) -> Iterator[Finding]:
    rows = data.table.rows
    group = ["gpu", format_column(data.table.family)]
    for check, name in (("mixed-kernels", "kernel"), ("mixed-versions", "framework_version")):
        counts = rows.groupby([*group, name], sort=False).size()
        main = counts.groupby(level=[0, 1]).idxmax()
        usual = {tuple(index[:2]): index[2] for index in main}
        pairs = zip(*(rows[column] for column in (*group, name)), strict=True)
        other = np.asarray([usual[gpu, dtype] != kind for gpu, dtype, kind in pairs])
        named = ", ".join(f"{kind} ({count})" for kind, count in
                          rows[other].groupby(name, sort=False).size().items())  # fmt: skip
        yield from data.finding(
            check, other, f"several for one GPU and format; beside the commonest: {named[:300]}"
        )


CHECKS: tuple[Callable[[_Lint], Iterator[Finding]], ...] = (
    _duplicates, _too_fast, _outliers, _not_monotone, _mixed,
)  # fmt: skip
