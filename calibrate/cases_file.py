"""Case files: which shapes to measure, as ranges and explicit lists, apart from the code.

A file names a device class, the budget of a case, the rates that time estimates assume, and per
family the axes to spread shapes over (`calibrate.plan` draws them) or the cases themselves.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from perfmodel.errors import UnknownNameError
from perfmodel.specs.base import Spec
from perfmodel.specs.yaml_file import read_yaml

Positive = Annotated[float, Field(gt=0)]
Whole = Annotated[int, Field(ge=0)]


class Axis(Spec):
    """One column's values: a list, or a range that is filled evenly in the logarithm."""

    values: tuple[int | str, ...] = ()
    low: Annotated[int, Field(ge=1)] = 1
    high: Annotated[int, Field(ge=1)] = 1
    multiple: Annotated[int, Field(ge=1)] = 1
    """Drawn sizes are rounded to a multiple of this, and never below it."""

    @model_validator(mode="after")
    def one_kind(self) -> Self:
        """Refuse an axis that is empty or upside down."""
        if not self.values and self.high < self.low:
            raise ValueError(f"high {self.high} is below low {self.low}")
        return self


class FamilyCases(Spec):
    """The cases of one family: ``count`` drawn over ``axes``, and those of ``also``."""

    count: Whole = 0
    axes: dict[str, Axis] = Field(default_factory=dict)
    also: tuple[dict[str, int | str], ...] = ()
    """Cases written out; columns that they leave away come from ``fixed``."""
    fixed: dict[str, int | str] = Field(default_factory=dict)
    max_call_s: Positive | None = None
    """Shapes whose estimated call is longer aren't drawn (default: the file's)."""


class Assumed(Spec):
    """Rates that estimates of time use before anything is measured."""

    tflops: dict[str, Positive]
    gb_s: Positive
    call_us: Positive
    case_s: Positive
    """Python, allocation, first calls, a graph's capture: what a case takes beside its samples."""


class CasesFile(Spec):
    """A case file."""

    schema_: Literal[1] = Field(alias="schema")
    device: Literal["cpu", "cuda"]
    seed: Whole = 0
    budget_s: Positive = 0.5
    """Sampled seconds of one case at most."""
    sample_s: Positive = 2e-3
    warmup_s: Positive = 2e-2
    max_call_s: Positive = 0.1
    max_bytes: Positive
    """Operands of a drawn case at most."""
    assumed: Assumed
    families: dict[str, FamilyCases]


def load_cases(path: Path) -> CasesFile:
    """Read a case file.

    Raises:
        InputError: one line with the file and the wrong field.
    """
    return CasesFile.parse(_tuples(read_yaml(path)), str(path))


def shipped_cases(device: str, name: str) -> Path:
    """The file of a shipped set.

    Raises:
        UnknownNameError: no such set.
    """
    path = Path(str(files("calibrate"))) / "cases" / f"{device}-{name}.yaml"
    if not path.is_file():
        raise UnknownNameError(f"no shipped set {name!r:.40} for {device}; known: quick, standard")
    return path


def _tuples(data: Any) -> Any:
    """YAML has lists only; strict validation wants the tuples that a frozen record holds."""
    if isinstance(data, dict):
        return {key: _tuples(value) for key, value in data.items()}
    return tuple(map(_tuples, data)) if isinstance(data, list) else data
