"""The runner: takes a plan's cases one by one, times each, appends its row; resumes what is there.

A case that runs out of memory or fails becomes a row with its reason. Only an interruption ends a
run early, and what has been measured until then stays.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calibrate.cases_file import CasesFile
from calibrate.device import Device
from calibrate.plan import Case, Plan, key_of
from calibrate.roof import Roof
from calibrate.rows import SHAPE_FIRST, Provenance, Result, Row, RowFile, Status
from calibrate.runs.base import Bench, Prepared, Value, Work
from calibrate.runs.registry import CEILINGS, family
from calibrate.state import State, merge
from calibrate.timing import Settings, Timing, measure
from perfmodel import __version__
from perfmodel.errors import InputError, PerfmodelError

Progress = Callable[[Case, Row], None]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did."""

    measured: int
    failed: int
    """Of those, rows with a reason instead of a time."""
    resumed: int
    """Cases that were there already."""
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
        self._device, self._out, self._settings = device, out, settings
        self._bench = Bench(device, warm=warm)
        self._roof = roof
        self._files: dict[str, RowFile] = {}
        self._provenance = provenance(device)

    def run(self, plan: Plan, progress: Progress = lambda case, row: None) -> Summary:
        """Measure every case of ``plan`` that has no row yet; ``progress`` hears of each new row.

        Raises:
            InputError: the folder holds rows of another device or torch, or can't be written.
        """
        done = self._open(case.family for case in plan.cases)
        todo = [case for case in plan.cases if case.key not in done]
        failed = 0
        for case in todo:
            row = self.row(case)
            self._files[case.family].append(row.record())
            failed += row.result.status == "failed"
            progress(case, row)
        return Summary(len(todo), failed, len(plan.cases) - len(todo), self._out)

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
            "torch_version": self._provenance.torch_version,
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
        before = self._device.state()
        try:
            prepared, timing, method = self._time(case)
        except Exception as error:
            result = self._failed(work, reason_of(error))
        else:
            result = self._result(case, work, prepared, timing, method)
        state = merge([_without_load(before), self._device.state()])
        self._device.release()
        return Row(case.family, case.shape, result, state, self._provenance, now())

    def _time(self, case: Case) -> tuple[Prepared, Timing, str]:
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
                timing = measure(timer, self._settings, once)
        return prepared, timing, timer.method

    def _result(
        self, case: Case, work: Work, prepared: Prepared, timing: Timing, method: str
    ) -> Result:
        roof = self._roof or Roof()
        flops_per_s, bytes_per_s = work.flops / timing.seconds, work.bytes / timing.seconds
        if case.family in CEILINGS:
            raise_roof(roof, case.family, work, timing.fastest_s)
        share, limit = roof.share(work, timing.seconds)
        return Result(
            status="ok",
            reason="",
            latency_us=timing.seconds * 1e6,
            fastest_us=timing.fastest_s * 1e6,
            spread=timing.spread,
            error=timing.error,
            tolerance=self._settings.tolerance,
            reached=timing.reached,
            quality=timing.quality,
            samples=timing.samples,
            discarded=timing.discarded,
            repeats=timing.repeats,
            method=method,
            cache="warm" if self._bench.warm else "cold",
            copies=prepared.copies,
            flops=work.flops,
            bytes=work.bytes,
            tflops=flops_per_s / 1e12,
            gb_s=bytes_per_s / 1e9,
            roof_share=share,
            roof=limit,
            roof_source=roof.source,
            flag="above_roof" if share > 1.0 else "",
        )

    def _failed(self, work: Work, reason: str) -> Result:
        values: dict[str, Any] = {f.name: 0 for f in fields(Result)}
        status: Status = "failed"
        values |= dict.fromkeys(FLOATS, 0.0) | {
            "status": status,
            "reason": reason,
            "tolerance": self._settings.tolerance,
            "reached": False,
            "quality": "none",
            "method": "none",
            "cache": "warm" if self._bench.warm else "cold",
            "flops": work.flops,
            "bytes": work.bytes,
            "roof": "none",
            "roof_source": "none",
            "flag": "",
        }
        return Result(**values)


def raise_roof(roof: Roof, name: str, work: Work, fastest_s: float) -> None:
    """Take a ceiling's best sample into the roof, as STREAM and LINPACK report their best."""
    if name == "bandwidth":
        roof.raise_to("", 0.0, work.bytes / fastest_s)
    else:
        roof.raise_to(work.arithmetic, work.flops / fastest_s, 0.0)


FLOATS = ("latency_us", "fastest_us", "spread", "error", "tflops", "gb_s", "roof_share")


def _without_load(state: State) -> State:
    """A reading before a case: its neighbours' load was during the case before."""
    return State(
        state.clock_mhz, state.memory_clock_mhz, state.power_w, state.temperature_c,
        state.throttle, None, state.note,
    )  # fmt: skip


def columns(name: str) -> list[str]:
    """The columns of a family's file."""
    shape = [*SHAPE_FIRST, *family(name).columns]
    return [
        *shape,
        *(f.name for f in fields(Result)),
        *(f.name for f in fields(State)),
        *(f.name for f in fields(Provenance)),
        "date",
    ]


def provenance(device: Device) -> Provenance:
    """Where the rows of this process come from."""
    import torch  # noqa: PLC0415

    return Provenance(
        device=device.name,
        kind=device.kind,
        threads=device.units,
        software=device.software,
        torch_version=str(torch.__version__),
        perfmodel_version=__version__,
        host=f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
    )


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def reason_of(error: BaseException) -> str:
    """Why a case failed, in one line."""
    text = " ".join(str(error).split())
    if "out of memory" in text.lower() or type(error).__name__ == "OutOfMemoryError":
        return f"out of memory: {text[:160]}"
    if "can't allocate memory" in text:
        return f"out of memory: {text[-160:]}"
    if isinstance(error, PerfmodelError):
        return text
    return f"{type(error).__name__}: {text[:200]}"


def shape_of(row: Mapping[str, str], name: str) -> dict[str, Value]:
    """A row's columns as a case's shape, sizes as whole numbers."""
    columns = ("kernel", "dtype", *family(name).columns)
    return {c: int(row[c]) if row[c].isdigit() else row[c] for c in columns}
