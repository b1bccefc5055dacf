"""A report before it is rendered: the case, its answer, and what the page's pictures are of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import perfmodel
from perfmodel.inference.estimate import Estimate
from perfmodel.inference.roofline import DeviceRoofline
from perfmodel.planning.capacity.answer import Plan
from reports.html.grid import Case, Grid, make_grid
from reports.html.provenance import Provenance, provenance


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a page says."""

    case: Case
    answer: Estimate
    grid: Grid
    provenance: Provenance
    command: str
    """The command line that makes the report again; empty where Python made it."""
    version: str
    """Of perfmodel."""
    remedy: str = ""
    """What would do where the case doesn't fit."""
    plan: Plan | None = None
    """A capacity plan that the page shows too."""

    @property
    def roofline(self) -> DeviceRoofline:
        """The roofs, and the operators of the prompt that was asked for."""
        prompt = self.grid.at(self.grid.asked)[1]
        return next(part.roofline for part in self.grid.parts if part.prompt == prompt)


def make_report(
    case: Case,
    *,
    command: str = "",
    remedy: Callable[[Estimate], str | None] | None = None,
    plan: Plan | None = None,
) -> Report:
    """Compute what a page shows of one deployment.

    Args:
        case: what is asked.
        command: the command line that makes the report again.
        remedy: says of an answer that doesn't fit what would do.
        plan: a capacity plan to show beside it.

    Raises:
        InputError: as `perfmodel.estimate`.
    """
    answer = case.estimate()
    return Report(
        case=case,
        answer=answer,
        grid=make_grid(case, answer),
        provenance=provenance(case, answer),
        command=command,
        version=perfmodel.__version__,
        remedy="" if remedy is None else remedy(answer) or "",
        plan=plan,
    )
