"""Calibration files: the few parameters that turn exact work into time on a device."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from perfmodel.operators.record import (
    Attention,
    Collective,
    Elementwise,
    Gemm,
    GroupedGemm,
    Operator,
    Recurrence,
)
from perfmodel.specs.base import Spec
from perfmodel.specs.hardware import hardware_dir
from perfmodel.specs.yaml_file import read_yaml

Share = Annotated[float, Field(gt=0, le=1)]
Spread = Annotated[float, Field(ge=1, le=20)]
Microseconds = Annotated[float, Field(ge=0, le=1e6)]


class FamilyEfficiency(Spec):
    """One family's shares of what the datasheet promises, and how far off they may be."""

    compute: Share
    memory: Share
    spread: Spread


class CollectiveEfficiency(Spec):
    """Rate and latency of exchanges inside a node (link) and between nodes (network)."""

    link: Share
    link_latency_us: Microseconds
    network: Share
    network_latency_us: Microseconds
    spread: Spread


class Launch(Spec):
    """Time per kernel beside its own work."""

    graph_us: Microseconds
    eager_us: Microseconds


class Families(Spec):
    """Efficiencies by family of operators."""

    gemm: FamilyEfficiency
    attention: FamilyEfficiency
    grouped_gemm: FamilyEfficiency
    recurrence: FamilyEfficiency
    elementwise: FamilyEfficiency

    def of(self, operator: Operator) -> FamilyEfficiency:
        """The efficiency of ``operator``'s family."""
        for kind, efficiency in (
            (Gemm, self.gemm),
            (Attention, self.attention),
            (GroupedGemm, self.grouped_gemm),
            (Recurrence, self.recurrence),
            (Elementwise, self.elementwise),
        ):
            if isinstance(operator, kind):
                return efficiency
        raise TypeError(f"no family for {type(operator).__name__}")


class Calibration(Spec):
    """What a calibration file holds: parameters, where they come from, how wrong they may be."""

    # `schema` would shadow a pydantic method; the file says `schema`.
    schema_version: Literal[1] = Field(alias="schema")
    hardware: str
    stack: str
    origin: Literal["assumed", "fitted", "transferred"]
    source: str
    families: Families
    collective: CollectiveEfficiency
    launch: Launch

    def spread_of(self, operator: Operator) -> float:
        """How far off the assumed time of ``operator`` may be, as a factor either way."""
        if isinstance(operator, Collective):
            return self.collective.spread
        return self.families.of(operator).spread


@lru_cache(maxsize=32)
def load_calibration(path: Path | None = None) -> Calibration:
    """Read a calibration file; without a path the generic one, whose values are assumed.

    Raises:
        InputError: naming the file and the wrong field.
    """
    file = path or Path(str(hardware_dir())) / "calibrations" / "generic.yaml"
    return Calibration.parse(read_yaml(file), str(file))
