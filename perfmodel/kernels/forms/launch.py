"""What launching a kernel costs: one number for a launch of its own, one for a graph's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.operators.quantity import Array
from perfmodel.units import MICROSECOND

EAGER = Parameter("eager", "us", 3, 0.1, 500, 1.0, "from launch to launch of a kernel without work")
GRAPH = Parameter("graph", "us", 1.5, 0.05, 500, 1.0, "the same inside a captured graph")


@dataclass(frozen=True, slots=True)
class LaunchForm:
    """Form of ``launch``; its shape is ``graph``: 1 inside a graph, else 0."""

    held: bool = False
    """Whether the other sets' times hold a launch already, as those by a CPU's clock do."""
    name: str = "launch"
    regimes: tuple[str, ...] = ("all",)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """One for each way of launching."""
        return (EAGER, GRAPH)

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of a launch."""
        del chip
        graph = np.asarray(shapes["graph"], dtype=np.float64)
        return np.asarray(np.where(graph > 0, values["graph"], values["eager"]) * MICROSECOND)

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Which way."""
        del chip
        return np.ravel(np.asarray(shapes["graph"], dtype=np.float64))[:, None]

    def regime(self, shapes: Shapes) -> Array:
        """One for all."""
        return np.zeros(np.shape(shapes["graph"]))
