"""The runner: takes a plan's cases one by one, times each, appends its row; resumes what is there.

A case that runs out of memory or fails becomes a row with its reason. Only an interruption ends a
run early, and what has been measured until then stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from calibrate.cases_file import CasesFile
from calibrate.device import Device
from calibrate.plan import Case, Plan, key_of
from calibrate.results import (
    Found,
    failed_result,
    now,
    ok_result,
    provenance,
    reason_of,
    result_columns,
)
from calibrate.roof import Roof
from calibrate.rows import Row, RowFile
from calibrate.runs.base import Bench, Value, Work
from calibrate.runs.registry import CEILINGS, family
from calibrate.state import State, merge
from calibrate.timing import Settings, measure
from perfmodel.errors import InputError

Progress = Callable[[Case, Row], None]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did."""

    measured: int
    failed: int
    """Of those, rows with a reason instead of a time."""
    resumed: int
    """Cases that were there already."""
    flagged: int
    """New rows above the roof: look before you use them."""
    disturbed: int
    """New rows whose threads waited for cores: their times are too long."""
    out: Path


def settings_of(cases: CasesFile, tolerance: float) -> Settings:
    """How a case file wants its cases timed, to a relative ``tolerance``."""
    return Settings(
        tolerance=tolerance,
        sample_s=cases.sample_s,
        warmup_s=cases.warmup_s,
        budget_s=cases.budget_s,
    )


class Runner:
    """Measures cases on one device into one folder."""

    def __init__(
        self,
        device: Device,
        out: Path,
        settings: Settings,
        *,
        warm: bool = False,
        roof: Roof | None = None,
    ) -> None:
        """Measure on ``device`` into ``out``.

        Args:
            device: where the kernels run.
            out: folder of the rows.
            settings: tolerance and budget.
            warm: keep one set of inputs, which may stay in the last-level cache.
            roof: a datasheet's, whose name the rows then carry; measured ceilings if not given.
        """
        self._device, self._out, self._settings = device, out, settings
        self._bench = Bench(device, warm=warm)
        self._roof = roof
        self._files: dict[str, RowFile] = {}
        self._provenance = provenance(device, "" if roof is None else roof.source)

    def run(self, plan: Plan, progress: Progress = lambda case, row: None) -> Summary:
        """Measure every case of ``plan`` that has no row yet; ``progress`` hears of each new row.

        Raises:
            InputError: the folder holds rows of another device or torch, or can't be written.
        """
        done = self._open(case.family for case in plan.cases)
        todo = [case for case in plan.cases if case.key not in done]
        failed = flagged = disturbed = 0
        for case in todo:
            row = self.row(case)
            self._files[case.family].append(row.record())
            progress(case, row)
            flagged += row.result.flag != ""
            disturbed += row.result.quality == "disturbed"
            if row.result.status == "failed":
                failed += 1
                self._check_alive(row)
        resumed = len(plan.cases) - len(todo)
        return Summary(len(todo), failed, resumed, flagged, disturbed, self._out)

    def _check_alive(self, row: Row) -> None:
        """A fault that takes the device along would fail every case after it.

        Raises:
            InputError: the device answers no more; a new process can go on where this one stopped.
        """
        try:
            self._device.synchronize()
        except RuntimeError:
            reason = row.result.reason
            raise InputError(
                f"{self._device.name} is lost after {row.family}: {reason:.120}; its row is "
                "written, run again to go on"
            ) from None

    def _open(self, families: Iterable[str]) -> set[str]:
        """Open the files; returns the keys of the rows that they hold."""
        done: set[str] = set()
        for name in dict.fromkeys((*CEILINGS, *families)):
            file = RowFile(self._out / f"{name}.csv", columns(name))
            self._files[name] = file
            for row in file.rows:
                self._check_same(row, file.path)
                done.add(key_of(name, row))
        if self._roof is None:
            self._roof = Roof.measured({name: self._files[name].rows for name in CEILINGS})
        return done

    def _check_same(self, row: Mapping[str, str], path: Path) -> None:
        cache = "warm" if self._bench.warm else "cold"
        mine = {
            "device": self._provenance.device,
            "threads": str(self._provenance.threads),
            "framework_version": self._provenance.framework_version,
            "cache": cache,
        }
        for column, value in mine.items():
            if row[column] != value:
                raise InputError(
                    f"{path}: holds rows with {column} {row[column]!r}, this run's is {value!r}; "
                    "choose another --out"
                )

    def row(self, case: Case) -> Row:
        """Measure one case; whatever goes wrong with it is the row's reason."""
        work = family(case.family).work(case.shape)
        states: list[State] = []
        try:
            found = self._time(case, states)
        except Exception as error:
            result = failed_result(work, reason_of(error), self._settings, warm=self._bench.warm)
        else:
            roof = self._roof or Roof()
            if case.family in CEILINGS:
                raise_roof(roof, case.family, work, found[1].fastest_s)
            result = ok_result(work, found, self._settings, roof, warm=self._bench.warm)
        state = merge([*states, self._device.state()])
        self._device.release()
        return Row(case.family, case.shape, result, state, self._provenance, now())

    def _time(self, case: Case, states: list[State]) -> Found:
        with self._bench.torch.inference_mode():
            prepared = family(case.family).prepare(case.shape, self._bench)
            with prepared.context():
                timer = self._device.timer(
                    prepared.call,
                    host=prepared.host,
                    graph=prepared.graph,
                    flush=prepared.flush,
                )
                once = prepared.copies if prepared.flush else None
                # An idle device has low clocks: it is read warm, and again after the samples.
                timing = measure(
                    timer, self._settings, once, lambda: states.append(warm_state(self._device))
                )
        return prepared, timing, timer.method


def warm_state(device: Device) -> State:
    """A reading ahead of the samples; neighbours' load until then doesn't concern them."""
    return replace(device.state(), others_busy=None)


def raise_roof(roof: Roof, name: str, work: Work, fastest_s: float) -> None:
    """Take a ceiling's best sample into the roof, as STREAM and LINPACK report their best."""
    if name == "bandwidth":
        roof.raise_to("", 0.0, work.bytes / fastest_s)
    else:
        roof.raise_to(work.arithmetic, work.flops / fastest_s, 0.0)


def columns(name: str) -> list[str]:
    """The columns of a family's file."""
    return result_columns(family(name).columns)


def shape_of(row: Mapping[str, str], name: str) -> dict[str, Value]:
    """A row's columns as a case's shape, sizes as whole numbers."""
    columns = ("kernel", "dtype", *family(name).columns)
    return {c: int(row[c]) if row[c].isdigit() else row[c] for c in columns}
