"""From a case file to the cases: a space-filling draw, snapped to legal shapes, within limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import qmc

from calibrate.cases_file import Assumed, Axis, CasesFile, FamilyCases
from calibrate.device import Device
from calibrate.runs.base import BITS, COLD_FACTOR, Shape, Value
from calibrate.runs.matmul import kernel_of
from calibrate.runs.registry import CEILINGS, FAMILIES, family
from perfmodel.errors import InputError
from perfmodel.operators.quantity import Array
from perfmodel.units import GIGA, TERA

DRAWS_PER_CASE = 60
"""Points tried for each case wanted, before a family's limits are called too narrow."""
FILL_SHARE = 0.2
"""Of the memory's rate, at which inputs are made; a guess for the estimate of time."""


@dataclass(frozen=True, slots=True)
class Case:
    """One shape of one family."""

    family: str
    shape: Shape
    seconds: float
    """Estimated time to measure it."""

    @property
    def key(self) -> str:
        """What tells it from other cases, for resuming."""
        return key_of(self.family, self.shape)


@dataclass(frozen=True, slots=True)
class Plan:
    """The cases in the order they are run, and what was left out."""

    cases: tuple[Case, ...]
    notes: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Estimated time of all."""
        return sum(case.seconds for case in self.cases)


def key_of(name: str, shape: Shape) -> str:
    """A family and its columns as text."""
    columns = ("kernel", "dtype", *family(name).columns)
    return "|".join([name, *(f"{column}={shape[column]}" for column in columns)])


def make_plan(cases: CasesFile, device: Device, families: Iterable[str] = ()) -> Plan:
    """The cases of ``families`` (all of the file if none), ceilings first.

    Raises:
        UnknownNameError: a family that doesn't exist.
        InputError: a case or an axis that names unknown columns, or limits that nothing meets.
    """
    wanted = [family(name).name for name in families] or list(cases.families)
    for name in (*wanted, *cases.families):
        family(name)
    # The other rows' shares are taken of the ceilings, so those always run.
    names = [n for n in FAMILIES if n in cases.families and (n in wanted or n in CEILINGS)]
    notes: list[str] = []
    made: dict[str, Case] = {}
    for name in names:
        for shape in _shapes(name, cases, device, notes):
            case = Case(name, shape, estimate(name, shape, cases, device.cache_bytes))
            made.setdefault(case.key, case)
    return Plan(tuple(made.values()), tuple(dict.fromkeys(notes)))


def _shapes(name: str, cases: CasesFile, device: Device, notes: list[str]) -> Iterator[Shape]:
    group = cases.families[name]
    room = min(cases.max_bytes, 0.3 * device.total_bytes)
    for given in group.also:
        shape = complete(name, {**group.fixed, **given})
        why = unavailable(name, shape, device)
        if why:
            notes.append(f"{name}: {why}")
        elif not family(name).legal(shape):
            raise InputError(f"{name}: no kernel of the shape {dict(shape)}; see its module")
        elif family(name).work(shape).bytes <= 0.3 * device.total_bytes:
            yield shape
        else:
            notes.append(f"{name}: {dict(shape)} is too large for the device")
    if group.count:
        yield from draw(name, group, cases, device, room, notes)


def draw(
    name: str, group: FamilyCases, cases: CasesFile, device: Device, room: float, notes: list[str]
) -> list[Shape]:
    """``count`` different legal shapes that fill the axes evenly (a scrambled Halton sequence).

    Raises:
        InputError: an axis that is no column, or limits that too few points meet.
    """
    axes: dict[str, Axis] = {}
    for column, axis in group.axes.items():
        kept = _available(name, column, axis, device, notes)
        if kept is None:
            return []
        axes[column] = kept
    longest = group.max_call_s or cases.max_call_s
    sequence = qmc.Halton(d=max(1, len(axes)), rng=np.random.default_rng(cases.seed))
    found: dict[str, Shape] = {}
    for point in sequence.random(group.count * DRAWS_PER_CASE):
        shape = complete(name, {**group.fixed, **snap(axes, point)})
        if len(found) == group.count:
            break
        if not family(name).legal(shape):
            continue
        work = family(name).work(shape)
        if work.bytes <= room and call_seconds(name, shape, cases.assumed) <= longest:
            found.setdefault(key_of(name, shape), shape)
    if not found:
        raise InputError(f"{name}: no legal shape within max_bytes and max_call_s; widen the axes")
    if len(found) < group.count:
        notes.append(f"{name}: {len(found)} different shapes of the {group.count} asked for")
    return list(found.values())


def _available(name: str, column: str, axis: Axis, device: Device, notes: list[str]) -> Axis | None:
    """The axis without the kernels and dtypes that the device lacks; None if that is all."""
    if column not in ("kernel", "dtype"):
        return axis
    kept = []
    for value in axis.values:
        why = unavailable(name, {column: value}, device)
        if why:
            notes.append(f"{name}: {why}")
        else:
            kept.append(value)
    return Axis(values=tuple(kept)) if kept else None


def unavailable(name: str, shape: Shape, device: Device) -> str:
    """Why a kernel or a dtype can't run on the device, or nothing.

    Raises:
        InputError: a kernel or dtype that doesn't exist.
    """
    kernel, dtype = shape.get("kernel"), shape.get("dtype")
    kernels = family(name).kernels
    if kernel is not None and kernel not in kernels:
        raise InputError(f"{name}: no kernel {kernel!r:.40}; known: {', '.join(kernels)}")
    if dtype is not None and dtype not in BITS:
        raise InputError(f"{name}: no dtype {dtype!r:.40}; known: {', '.join(BITS)}")
    if dtype is not None and not device.offers(str(dtype)):
        return f"{dtype} isn't native here"
    why = kernels[str(kernel)]() if kernel is not None else ""
    return f"{kernel} {why}" if why else ""


def complete(name: str, given: Shape) -> Shape:
    """All columns of a case: the kernel follows from the family or the dtype where it isn't given.

    Raises:
        InputError: a column is missing, or unknown.
    """
    made: dict[str, Value] = {**given}
    kernels = list(family(name).kernels)
    dtype = str(made.get("dtype", ""))
    made.setdefault("kernel", kernel_of(dtype) if "torch.mm" in kernels else kernels[0])
    if "kv_dtype" in family(name).columns:
        made.setdefault("kv_dtype", dtype)
    columns = ("kernel", "dtype", *family(name).columns)
    wrong = [c for c in columns if c not in made] + [c for c in made if c not in columns]
    if wrong:
        raise InputError(f"{name}: missing or unknown {wrong[0]!r}; columns: {', '.join(columns)}")
    return {column: made[column] for column in columns}


def snap(axes: dict[str, Axis], point: Array) -> dict[str, Value]:
    """The legal values nearest to a point of the unit cube."""
    drawn = zip(axes.items(), point, strict=False)  # a family without axes draws one number
    return {column: _value(axis, float(u)) for (column, axis), u in drawn}


def _value(axis: Axis, u: float) -> Value:
    if axis.values:
        return axis.values[min(int(u * len(axis.values)), len(axis.values) - 1)]
    size = float(axis.low * (axis.high / axis.low) ** u)
    return max(axis.multiple, round(size / axis.multiple) * axis.multiple)


def call_seconds(name: str, shape: Shape, assumed: Assumed) -> float:
    """A roof of one call by assumed rates: good to a factor of a few."""
    work = family(name).work(shape)
    rate = assumed.tflops.get(work.arithmetic, min(assumed.tflops.values())) * TERA
    return max(work.flops / rate, work.bytes / (assumed.gb_s * GIGA)) + assumed.call_us * 1e-6


def estimate(name: str, shape: Shape, cases: CasesFile, cache_bytes: int) -> float:
    """Seconds that measuring a case takes: making inputs, warm-up, samples."""
    call = call_seconds(name, shape, cases.assumed)
    sampled = min(cases.budget_s, 20 * max(call, cases.sample_s))
    filled = max(family(name).work(shape).bytes, COLD_FACTOR * cache_bytes)
    inputs = filled / (FILL_SHARE * cases.assumed.gb_s * GIGA)
    return cases.assumed.case_s + inputs + cases.warmup_s + 3 * call + max(sampled, 5 * call)


def total_minutes(seconds: float) -> str:
    """Seconds as ``M:SS``, rounded up.

    >>> total_minutes(61.2)
    '1:02'
    """
    whole = math.ceil(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
