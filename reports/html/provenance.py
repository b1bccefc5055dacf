"""Where a report's numbers come from: hardware, calibration, engine, and their sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfmodel.inference.estimate import Estimate, device_model
from perfmodel.inference.plan import Plan
from perfmodel.kernels.calibration import load_calibration
from perfmodel.kernels.calibration_file import CalibrationFile, read_calibration
from perfmodel.kernels.choice import Choice, available
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.hardware_facts import Fact, hardware_facts, label_of
from reports.html.grid import Case


@dataclass(frozen=True, slots=True)
class Source:
    """What was read for a group of figures."""

    of: str
    text: str


@dataclass(frozen=True, slots=True)
class KernelError:
    """How far off one fitted family is on calls that its fit didn't see, in per cent."""

    family: str
    fitted_rows: int
    tested_rows: int
    median: float
    p90: float
    inside: float
    """Measured times that lie in the stated 90 % interval."""


@dataclass(frozen=True, slots=True)
class CalibrationUse:
    """The fitted kernels that price the case."""

    hardware: str
    """The device that was measured."""
    stack: str
    release: str
    date: str
    source: str
    errors: tuple[KernelError, ...]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Everything that the numbers rest on."""

    facts: tuple[Fact, ...]
    """The hardware profile."""
    sources: tuple[Source, ...]
    """Of the hardware's figures, group by group."""
    engine: tuple[Source, ...]
    calibration: CalibrationUse | None
    """None where assumed shares price everything, or the bare roof does."""
    assumed: str | None
    """Where the assumed shares come from; None for the bare roof."""


def provenance(case: Case, answer: Estimate) -> Provenance:
    """What the numbers of an estimate rest on.

    Raises:
        InputError: the calibration's file can't be read any more.
    """
    chosen = device_model(answer.hardware, answer.plan, roofline_only=case.roofline_only).choice
    return Provenance(
        facts=tuple(hardware_facts(answer.hardware)),
        sources=tuple(_hardware_sources(answer.hardware)),
        engine=() if case.roofline_only else tuple(_engine_sources(answer.plan)),
        calibration=None if chosen is None else _use(chosen, answer.plan),
        assumed=None if case.roofline_only else load_calibration().source,
    )


def _hardware_sources(hardware: Hardware) -> Iterator[Source]:
    for group in type(hardware).model_fields:
        source = getattr(getattr(hardware, group), "source", None)
        if source:
            yield Source(label_of(group), source)


def _engine_sources(plan: Plan) -> Iterator[Source]:
    engine = plan.engine
    yield Source("defaults, memory", engine.source)
    if engine.memory_source is not None:
        yield Source("memory", engine.memory_source)
    yield Source("captured graphs", engine.graph.source)
    yield Source("host time", engine.host.source)
    yield Source("kernels", engine.kernels.source)


def _use(chosen: Choice, plan: Plan) -> CalibrationUse:
    own = chosen.calibrated
    asked = plan.engine.stack if plan.deployment.stack is None else plan.deployment.stack
    stated = asked is not None and asked.endswith((".yaml", ".yml"))
    path = Path(asked or "") if stated else available()[own.hardware][own.stack]
    file = read_calibration(path)
    return CalibrationUse(
        hardware=file.hardware,
        stack=file.stack,
        release=file.release,
        date=file.date,
        source=file.source,
        errors=tuple(_errors(file)),
    )


def _errors(file: CalibrationFile) -> Iterator[KernelError]:
    for name, found in file.sets.items():
        error = found.errors.get("all")
        if error is not None:
            yield KernelError(name, found.rows, error.rows, error.median, error.p90, error.coverage)
