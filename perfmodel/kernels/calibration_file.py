"""The calibration of one device and stack as a YAML file: sets with parameters, errors, provenance.

`calibrate fit` alone writes such files; nothing in them is typed by hand.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import Field

from perfmodel.errors import InputError
from perfmodel.kernels.forms.attention_decode import AttentionDecode
from perfmodel.kernels.forms.attention_prefill import AttentionPrefill
from perfmodel.kernels.forms.base import Chip, Form, Shapes
from perfmodel.kernels.forms.collective import CollectiveForm
from perfmodel.kernels.forms.elementwise import ElementwiseForm
from perfmodel.kernels.forms.experts import ExpertsForm
from perfmodel.kernels.forms.gemm import GemmForm
from perfmodel.kernels.forms.launch import LaunchForm
from perfmodel.kernels.forms.mla import MlaDecode, MlaPrefill
from perfmodel.kernels.forms.smooth import SmoothGemm, SmoothGrouped
from perfmodel.kernels.forms.smooth_attention import SmoothAttention
from perfmodel.kernels.kernel_set import Interval, KernelSet, outside
from perfmodel.kernels.residual import Residual
from perfmodel.operators.quantity import Array
from perfmodel.specs.base import Spec
from perfmodel.units import MICROSECOND

FORMS: dict[str, type[Any]] = {
    "gemm-tiles": GemmForm,
    "attention-decode": AttentionDecode,
    "attention-prefill": AttentionPrefill,
    "mla-decode": MlaDecode,
    "mla-prefill": MlaPrefill,
    "experts-tiles": ExpertsForm,
    "gemm-smooth": SmoothGemm,
    "grouped-smooth": SmoothGrouped,
    "attention-smooth": SmoothAttention,
    "elementwise-passes": ElementwiseForm,
    "launch": LaunchForm,
    "collective-all_reduce": CollectiveForm,
    "collective-all_gather": CollectiveForm,
    "collective-reduce_scatter": CollectiveForm,
    "collective-all_to_all": CollectiveForm,
}
EDGE = 1e-3
"""Distance from a measured range, in logarithms, that still counts as inside."""
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class FittedValue(Spec):
    """A fitted parameter, with the standard error of its logarithm."""

    value: Positive
    relative_error: Annotated[float, Field(ge=0)]
    unit: str


class IntervalRecord(Spec):
    """A 90 % interval as log offsets."""

    low: Annotated[float, Field(le=0, allow_inf_nan=False)]
    high: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    rows: int


class ErrorRecord(Spec):
    """Errors on rows that the fit didn't see, in per cent of the measured time."""

    rows: int
    median: float
    mean: float
    p90: float
    bias: float
    coverage: float


class ResidualRecord(Spec):
    """The learned correction: support points and weights as little-endian float32 in base64."""

    variance: Positive
    lengths: tuple[Positive, ...] = Field(strict=False)
    rows: Annotated[int, Field(ge=1)]
    points: str
    weights: str


class SetRecord(Spec):
    """One calibrated set."""

    form: str
    facts: dict[str, Any]
    """What the form is told beside its parameters: element widths, the library's rules."""
    arithmetic: str
    """The multiply-add whose peak the parameters are shares of."""
    kernels: str
    """What the measured rows call the kernels."""
    rows: int
    """Rows that the fit used."""
    parameters: dict[str, FittedValue]
    at_bound: tuple[str, ...] = Field(strict=False)
    intervals: dict[str, IntervalRecord]
    box_low: tuple[Finite, ...] = Field(strict=False)
    box_high: tuple[Finite, ...] = Field(strict=False)
    errors: dict[str, ErrorRecord]
    residual: ResidualRecord | None = None


class CalibrationFile(Spec):
    """All sets of one device and stack."""

    schema_version: Literal[1] = Field(alias="schema")
    hardware: str
    stack: str
    release: str
    origin: Literal["fitted"]
    date: str
    source: str
    sets: dict[str, SetRecord]


@dataclass(frozen=True, slots=True)
class LoadedSet:
    """A set ready to predict, with the arithmetic that its chip's peak belongs to."""

    kernels: KernelSet
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A calibration ready to predict."""

    hardware: str
    stack: str
    release: str
    sets: Mapping[str, LoadedSet]

    def launch_s(self, execution: Literal["graph", "eager"]) -> float | None:
        """Seconds that a launch adds to a kernel; 0 where the kernels' times hold it."""
        found = self.sets.get("launch")
        if found is None:
            return None
        held = getattr(found.kernels.form, "held", False)
        return 0.0 if held else MICROSECOND * found.kernels.values[execution]


def kernels_of(name: str, sets: Mapping[str, LoadedSet]) -> list[str]:
    """The sets of a format: ``name`` itself first, then those of its other kernels."""
    others = [other for other in sets if other.startswith(f"{name}.")]
    return [name, *others] if name in sets else others


KIND_FIRST = 1e6
"""Weight of what a layer is over its load: farther than any load."""


def measured_nearest(
    shapes: Shapes, sets: Mapping[str, tuple[LoadedSet, Chip]]
) -> NDArray[np.str_]:
    """The set (n,) whose measured range each shape lies in or nearest to; the first of equals.

    A library takes one kernel where experts are whole and another where they are cut, say: the
    ranges of the rows that it ran on tell which. What a layer is goes before how many tokens it
    gets, and loads beyond every range count as at its edge: more tokens never bring in a kernel
    that was measured on another kind of layer.
    """
    features = [found.kernels.form.features(chip, shapes) for found, chip in sets.values()]
    boxes = [found.kernels for found, _ in sets.values()]
    least = np.min([box.box_low for box in boxes], axis=0)
    most = np.max([box.box_high for box in boxes], axis=0)
    away = []
    for own, box in zip(features, boxes, strict=True):
        near, layer = np.clip(own, least, most), list(getattr(box.form, "layer_features", ()))
        kind = outside(own[:, layer], box.box_low[layer], box.box_high[layer])
        # Sizes are rounded in a file: what lies on the edge is inside.
        kind = np.where(kind < EDGE, 0.0, kind)
        away.append(KIND_FIRST * kind + outside(near, box.box_low, box.box_high))
    far = np.stack(away)
    far = np.where(far < EDGE, 0.0, far)
    nearest: NDArray[np.str_] = np.asarray(list(sets))[np.argmin(far, axis=0)]
    return nearest


def encode(values: Array) -> str:
    """Float32 values as text."""
    return base64.b64encode(np.asarray(values, dtype="<f4").tobytes()).decode("ascii")


def decode(text: str, shape: tuple[int, ...]) -> Array:
    """The values behind `encode`, as float64 of ``shape``.

    Raises:
        ValueError: not base64, or another number of values.
    """
    raw = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    return raw.astype(np.float64).reshape(shape)


def form_facts(form: Form) -> dict[str, Any]:
    """The facts of a form that aren't defaults of its record."""
    named: list[str] = (
        [f.name for f in fields(form) if f.name not in ("name", "regimes")]
        if is_dataclass(form)
        else []
    )
    return {name: getattr(form, name) for name in named}


def build_form(record: SetRecord, where: str) -> Form:
    """The form that a record names, with its facts.

    Raises:
        InputError: a form or fact that this version doesn't know.
    """
    if record.form not in FORMS:
        known = ", ".join(FORMS)
        raise InputError(f"{where}: form: unknown form {record.form!r}; known: {known}")
    try:
        made: Form = FORMS[record.form](**record.facts)
    except TypeError as error:
        raise InputError(f"{where}: facts: {error}") from None
    missing = {p.name for p in made.parameters} ^ record.parameters.keys()
    if missing:
        raise InputError(f"{where}: parameters: {', '.join(sorted(missing))} missing or unknown")
    return made


def load_set(record: SetRecord, where: str) -> LoadedSet:
    """A set ready to predict.

    Raises:
        InputError: naming ``where`` and the field.
    """
    form = build_form(record, where)
    missing = set(form.regimes) - record.intervals.keys()
    if missing:
        raise InputError(f"{where}: intervals: {', '.join(sorted(missing))} missing")
    sides = {len(record.box_low), len(record.box_high)}
    if record.residual is not None:
        sides.add(len(record.residual.lengths))
    if len(sides) > 1:
        raise InputError(
            f"{where}: box_low, box_high and residual.lengths must be as long as each other"
        )
    residual = None
    if record.residual is not None:
        r = record.residual
        try:
            points = decode(r.points, (r.rows, len(r.lengths)))
            weights = decode(r.weights, (r.rows,))
        except ValueError as error:
            raise InputError(f"{where}: residual: {error}") from None
        residual = Residual(points, weights, np.asarray(r.lengths), r.variance)
    kernels = KernelSet(
        form=form,
        values={name: p.value for name, p in record.parameters.items()},
        residual=residual,
        intervals={n: Interval(i.low, i.high, i.rows) for n, i in record.intervals.items()},
        box_low=np.asarray(record.box_low),
        box_high=np.asarray(record.box_high),
    )
    return LoadedSet(kernels, record.arithmetic)


def read_calibration(path: Path) -> CalibrationFile:
    """Read and validate a calibration file.

    Raises:
        InputError: naming the file and the wrong field.
    """
    # Written by a program and as large as a hundred profiles: libyaml's parser where there is one.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: can't be read: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: a calibration file is a mapping")
    return CalibrationFile.parse(data, str(path))


def load_calibrated(path: Path) -> Calibrated:
    """A calibration ready to predict.

    Raises:
        InputError: naming the file and the wrong field.
    """
    file = read_calibration(path)
    sets = {n: load_set(record, f"{path}: sets.{n}") for n, record in file.sets.items()}
    return Calibrated(file.hardware, file.stack, file.release, sets)
