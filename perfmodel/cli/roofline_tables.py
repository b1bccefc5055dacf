"""The tables of `perfmodel roofline`: roofs, ridge points, and the operators under them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfmodel.cli.output import bold, print_table, table
from perfmodel.cli.text import digits, percent, si, whole
from perfmodel.inference.ceilings import Ceiling
from perfmodel.inference.roofline import DeviceRoofline, Mark, Roofline
from perfmodel.operators.record import Phase

if TYPE_CHECKING:
    from rich.table import Table

NAMED = 0.005
"""Share of its phase's time below which an operator is summed with the others."""
PHASES: tuple[tuple[Phase, str], ...] = (("prefill", "Prefill"), ("decode", "Decode step"))


def print_roofline(out: Any, result: Roofline) -> None:
    """Every device's roofs, and its operators in every setting."""
    for device in result.devices:
        gpus = device.estimate.plan.parallel.gpus
        out.print(bold(result.model.name), f"on {gpus} ×", bold(device.hardware.name))
        print_table(out, roof_table(device))
        print_table(out, ridge_table(device))
        for setting, value in enumerate(result.settings):
            where = "" if result.path is None else f", {result.path.replace('_', ' ')} {value:,}"
            for phase, name in PHASES:
                print_table(out, operator_table(device.of(phase, setting), name + where))
        out.print()
    out.print("Attained: the share of the datasheet's roof at the operator's intensity.")
    out.print("Attainable: the most that kernels of any size reach, as calibrated.")


def roof_table(device: DeviceRoofline) -> Table:
    """What limits, as the datasheet says and as kernels reach it."""
    made = table(
        None,
        [("Roof", "left"), ("Datasheet", "right"), ("Attainable", "right"), ("As", "left")],
    )
    for ceiling in device.ceilings:
        unit = "FLOP/s" if ceiling.kind == "compute" else "B/s"
        made.add_row(ceiling.name, *_rates(ceiling, unit))
    return made


def _rates(ceiling: Ceiling, unit: str) -> tuple[str, str, str]:
    stated = "–" if ceiling.datasheet is None else si(ceiling.datasheet, unit)
    if ceiling.attained is None:
        return stated, "–", "" if ceiling.used else "not used here"
    return stated, si(ceiling.attained.rate, unit), ceiling.attained.source


def ridge_table(device: DeviceRoofline) -> Table:
    """Where the roofs of arithmetic and memory meet."""
    heads = [("Ridge point", "left"), ("Datasheet", "right"), ("Attainable", "right")]
    made = table(None, heads)
    found: dict[tuple[str, str], dict[str, float]] = {}
    for ridge in device.ridges:
        own = found.setdefault((ridge.arithmetic, ridge.level), {})
        own[ridge.of] = ridge.flops_per_byte
    for (arithmetic, level), points in found.items():
        cells = (
            f"{digits(points[of])} FLOP/B" if of in points else "–"
            for of in ("datasheet", "attainable")
        )  # fmt: skip
        made.add_row(f"{arithmetic} from {level}", *cells)
    return made


def operator_table(marks: tuple[Mark, ...], title: str) -> Table:
    """The operators of a phase in the order in which they run; short ones summed."""
    heads = [
        ("Operator", "left"), ("FLOP/B", "right"), ("FLOP/s", "right"), ("B/s", "right"),
        ("Attained", "right"), ("Of the time", "right"), ("Bound", "left"),
    ]  # fmt: skip
    made = table(title, heads)
    named = [mark for mark in marks if mark.share >= NAMED]
    for mark in named:
        made.add_row(
            mark.name,
            digits(mark.intensity) if mark.flops else "–",
            si(mark.flops_per_s, "") if mark.flops else "–",
            si(mark.bytes_per_s, "") if mark.bytes else "–",
            percent(mark.attained) if mark.roof_s else "–",
            percent(mark.share),
            mark.bound,
        )
    rest = [mark for mark in marks if mark.share < NAMED]
    if rest:
        share = percent(sum(mark.share for mark in rest))
        made.add_row(f"{whole(len(rest))} others", "", "", "", "", share, "")
    return made
