"""Sweeps: every combination of settings, in parts, with the best of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.planning.sweep.cases import Cases, Refusals, Refused, added, model_named
from perfmodel.planning.sweep.columns import (
    Kind,
    columns_of,
    known_column,
    numeric_column,
    wanted_end,
)
from perfmodel.planning.sweep.select import best, front
from perfmodel.planning.sweep.table import Segment, Table
from perfmodel.planning.sweep.where import Condition
from perfmodel.specs.sweep import SweepSpec, load_sweep, parse_sweep

Progress = Callable[[int, int], None]
"""Told how many settings of how many are done."""
PART = 500_000
"""Settings of a part, unless said otherwise: a process that writes them takes about 0.5 GB."""


@dataclass(frozen=True, slots=True)
class Swept:
    """Some or all settings of a sweep: those that aren't refused and for which `where` holds."""

    table: Table
    settings: int
    """All combinations, refused ones and others."""
    fits: int
    """Settings that fit into memory."""
    refused: tuple[Refused, ...]
    best: Table
    """The best settings that fit, by ``best_by``; no rows where it isn't said."""
    pareto: Table
    """Settings that fit and that no other beats in all of ``pareto``; likewise."""
    rows: int
    """Rows of the whole table, which ``table`` may have been emptied of."""

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The rows as arrays by column: what `pandas.DataFrame` takes."""
        return self.table.arrays(self.table.columns)


class Sweep:
    """A sweep whose parts can be worked out in any order, anywhere.

    Raises:
        InputError: one line: what can't be read, or a column that there isn't.
    """

    def __init__(self, spec: SweepSpec) -> None:
        self.spec = spec
        self.columns: dict[str, Kind] = columns_of(spec)
        self._where = None if spec.where is None else Condition(spec.where, self.columns)
        if spec.best_by is not None:
            numeric_column(wanted_end(spec.best_by)[0], self.columns, "best_by")
        for name in spec.pareto:
            numeric_column(wanted_end(name)[0], self.columns, "pareto")
        for name in spec.per:
            known_column(name, dict(self.columns), "per")
        self._cases = Cases(spec)
        self.settings = self._cases.grid.settings

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the table should know, one sentence each."""
        found = []
        longest = self._cases.grid.longest
        for name in self.spec.values("model"):
            most = model_named(name).max_positions
            if most is not None and longest > most:
                found.append(f"{longest:,} tokens exceed the {most:,} that {name} was made for")
        if not self.spec.values("prefill_chunk"):
            found.append(
                "prefill is priced as one pass, without queueing; prefill_chunk prices the steps "
                "of an engine that takes fewer tokens at a time"
            )
        return tuple(found)

    def part(self, start: int, stop: int) -> Swept:
        """Settings from number ``start`` to before ``stop``."""
        refusals: Refusals = {}
        kept: list[Segment] = []
        fits = 0
        for number, loads in self._cases.grid.within(start, stop):
            segment = self._cases.segment(number, loads, refusals)
            if segment is None:
                continue
            fits += int(np.count_nonzero(segment.arrays["fits"]))
            if self._where is not None:
                segment = segment.taken(self._where.holds(segment))
            kept.append(segment)
        table = Table.of(kept, self.columns) if kept else Table.empty(self.columns)
        best_rows, pareto = self.selected(table.taken(table.columns["fits"]))
        refused = tuple(refusals.values())
        return Swept(table, stop - start, fits, refused, best_rows, pareto, table.rows)

    def selected(self, table: Table) -> tuple[Table, Table]:
        """The best rows, and the Pareto front, of settings that fit."""
        spec, none = self.spec, table.taken(slice(0, 0))
        by = spec.best_by
        chosen = none if by is None else best(table, by, spec.top, spec.per)
        return chosen, front(table, spec.pareto) if spec.pareto else none

    def without_rows(self, size: int = PART, progress: Progress | None = None) -> Swept:
        """All parts as one, of whose rows only the selected ones are kept."""
        kept: list[Swept] = []
        done = 0
        for part in self.parts(size):
            kept.append(replace(part, table=Table.empty(self.columns)))
            done += part.settings
            if progress is not None:
                progress(done, self.settings)
        return joined(self, kept)

    def parts(self, size: int = PART) -> Iterator[Swept]:
        """All parts in order."""
        for start in range(0, self.settings, size):
            yield self.part(start, min(start + size, self.settings))


def joined(sweep: Sweep, parts: list[Swept]) -> Swept:
    """Several parts as one."""
    refusals: Refusals = {}
    for part in parts:
        for each in part.refused:
            added(refusals, each.reason, each.settings)
    chosen = Table.joined([part.best for part in parts], sweep.columns)
    fronts = Table.joined([part.pareto for part in parts], sweep.columns)
    return Swept(
        table=Table.joined([part.table for part in parts], sweep.columns),
        settings=sum(part.settings for part in parts),
        fits=sum(part.fits for part in parts),
        refused=tuple(refusals.values()),
        best=sweep.selected(chosen)[0],
        pareto=sweep.selected(fronts)[1],
        rows=sum(part.rows for part in parts),
    )


def _spec(
    spec: SweepSpec | Mapping[str, Any] | str | os.PathLike[str] | None, axes: Mapping[str, Any]
) -> SweepSpec:
    if isinstance(spec, SweepSpec):
        return parse_sweep(spec.record() | dict(axes)) if axes else spec
    if spec is None or isinstance(spec, Mapping):
        return parse_sweep(dict(spec or {}) | dict(axes))
    return load_sweep(spec, axes)


def sweep(
    spec: SweepSpec | Mapping[str, Any] | str | os.PathLike[str] | None = None, **axes: Any
) -> Swept:
    """Time and memory of every combination of settings, as arrays by column.

    >>> import perfmodel
    >>> result = perfmodel.sweep(model="llama-3.1-8b", hardware="h100-sxm", batch="1:256:x2")
    >>> result.columns["batch"].tolist()
    [1, 2, 4, 8, 16, 32, 64, 128, 256]

    Args:
        spec: a YAML file, or a mapping from axis to values; None where ``axes`` say all.
        axes: values by axis, instead of those of ``spec``: a number, a name, text with lists and
            ranges such as ``1:256:x2``, or a list; and ``where``, ``best_by``, ``top``, ``per``,
            ``pareto``.

    Raises:
        InputError: one line that names the axis or column and what is wrong.
    """
    made = Sweep(_spec(spec, axes))
    return joined(made, list(made.parts()))


def sweep_parts(
    spec: SweepSpec | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    part_settings: int = PART,
    **axes: Any,
) -> Iterator[Swept]:
    """The same in parts, one after the other: memory holds one of them.

    Raises:
        InputError: as of `sweep`.
    """
    if part_settings < 1:
        raise InputError(f"part_settings: at least 1 is needed (got {part_settings})")
    yield from Sweep(_spec(spec, axes)).parts(part_settings)
