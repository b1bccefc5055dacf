"""The roofs of a roofline picture and their ridge points, in FLOP per byte and FLOP/s."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfmodel.inference.ceilings import DEVICE_MEMORY, L2, Ceiling
from perfmodel.inference.roofline import DeviceRoofline
from perfmodel.operators.record import Phase
from perfmodel.text import digits, si
from reports.figure import COLOURS

DASHES: tuple[tuple[float, ...], ...] = (
    (), (6, 2), (2, 1.5), (7, 2, 1.5, 2), (10, 3), (7, 2, 1.5, 2, 1.5, 2), (4, 1),
)  # fmt: skip
"""A device's line, apart from the others' in black and white too."""
OTHER = "0.55"
"""Grey of the roofs of formats that nothing uses."""
COLUMNS: dict[Phase, float] = {"prefill": 0.32, "decode": 0.68}
"""Where in the strip a phase stands."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The range of both axes."""

    left: float
    main: float
    """Where the strip ends."""
    right: float
    foot: float
    top: float

    def column(self, phase: Phase) -> float:
        """The intensity at which the strip shows a phase."""
        return float(self.left * (self.main / self.left) ** COLUMNS[phase])


@dataclass(frozen=True, slots=True)
class Line:
    """One roof."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float
    dashes: tuple[float, ...]
    text: str
    """Empty where another line's text names it."""
    along: tuple[int, int]
    """The points between which the text may stand."""
    name: str
    of: str
    """How the names of the lines begin that the text is of."""


@dataclass(frozen=True, slots=True)
class Corner:
    """A ridge point."""

    x: float
    y: float
    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Manner:
    """How much a picture says."""

    single: bool
    """One device: its name needn't stand at each line."""
    short: bool
    """Little room."""


def colour_of(device: int) -> str:
    """A device's colour."""
    return COLOURS[device % len(COLOURS)]


def lines_of(device: DeviceRoofline, number: int, frame: Frame, manner: Manner) -> Iterator[Line]:
    """A device's roofs by format and memory level."""
    colour = COLOURS[-1] if manner.single else colour_of(number)
    dashes = DASHES[number % len(DASHES)]
    prefix = "" if manner.single else f"{device.hardware.name} "
    memory = next(c for c in device.ceilings if c.name == DEVICE_MEMORY)
    assert memory.datasheet is not None  # noqa: S101  (every profile has one)
    used = [c for c in device.ceilings if c.kind == "compute" and c.used]
    for compute in used:
        for rate, slope, width in _rates(compute, memory):
            first = width > 1
            yield Line(
                points=_roof(rate, slope, frame.left, frame.right),
                colour=colour,
                width=width,
                dashes=dashes,
                text=prefix + _rate_text(compute, "FLOP/s", manner.short) if first else "",
                along=(2, 1),
                name=f"roof/{number}/{compute.name}/{'datasheet' if first else 'attainable'}",
                of=f"roof/{number}/{compute.name}/",
            )
    highest = max(c.datasheet or 0.0 for c in used) if used else 0.0
    slope = memory.datasheet
    yield Line(
        ((frame.left, slope * frame.left), (highest / slope, highest)), colour, 0.0, dashes,
        prefix + _rate_text(memory, "B/s", manner.short), (0, 1), f"roof/{number}/memory",
        f"roof/{number}/",
    )  # fmt: skip
    cached = next((c for c in device.ceilings if c.name == L2), None)
    if cached is not None and cached.attained is not None and used:
        rate = cached.attained.rate
        yield Line(
            ((frame.left, rate * frame.left), (highest / rate, highest)), colour, 0.9, (1, 1.5),
            f"{prefix}L2 {si(rate, 'B/s')} {cached.attained.source}", (0, 1), f"level/{number}/L2",
            f"level/{number}/L2",
        )  # fmt: skip
    if manner.single:
        yield from _others(device, slope, highest, frame)


def _others(device: DeviceRoofline, slope: float, highest: float, frame: Frame) -> Iterator[Line]:
    """The roofs of formats that nothing uses here; those of one height are one line."""
    peaks: dict[float, list[str]] = {}
    for ceiling in device.ceilings:
        if ceiling.kind == "compute" and not ceiling.used and ceiling.datasheet:
            peaks.setdefault(ceiling.datasheet, []).append(ceiling.name)
    for peak, names in peaks.items():
        if peak > highest:
            points = ((highest / slope, highest), (peak / slope, peak), (frame.right, peak))
            text = f"{', '.join(names)} {si(peak, 'FLOP/s')}"
            yield Line(
                points, OTHER, 1.0, (), text, (2, 1), f"other/{names[0]}", f"other/{names[0]}"
            )


def _rates(compute: Ceiling, memory: Ceiling) -> Iterator[tuple[float, float, float]]:
    """FLOP/s, bytes/s and line width of the datasheet's roof and of the attainable one."""
    if compute.datasheet is not None and memory.datasheet is not None:
        yield compute.datasheet, memory.datasheet, 2.0
    if compute.attained is not None and memory.attained is not None:
        yield compute.attained.rate, memory.attained.rate, 0.9


def _roof(rate: float, slope: float, left: float, right: float) -> tuple[tuple[float, float], ...]:
    ridge = rate / slope
    return (left, slope * left), (ridge, rate), (right, rate)


def _rate_text(ceiling: Ceiling, unit: str, short: bool) -> str:
    """``bf16 989 TFLOP/s (834 attainable)``."""
    stated = si(ceiling.datasheet or 0.0, unit)
    best = ceiling.attained
    if best is None or short:
        return f"{ceiling.name} {stated}"
    reached = si(best.rate, unit)
    number, _, prefix = reached.partition(" ")
    return f"{ceiling.name} {stated} ({number if stated.endswith(prefix) else reached} attainable)"


def corners_of(device: DeviceRoofline, number: int, manner: Manner) -> Iterator[Corner]:
    """A device's ridge points."""
    colour = COLOURS[-1] if manner.single else colour_of(number)
    by_place: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for ridge in device.ridges:
        own = by_place.setdefault((ridge.arithmetic, ridge.level), {})
        own[ridge.of] = ridge.flops_per_byte, ridge.flops_per_s
    several = len({arithmetic for arithmetic, _ in by_place}) > 1
    for (arithmetic, level), found in by_place.items():
        what = f"{arithmetic} ridge" if several else "ridge"
        if "datasheet" in found:
            x, y = found["datasheet"]
            extra = f" ({digits(found['attainable'][0])} attainable)" if len(found) > 1 else ""
            extra = extra if manner.single and not manner.short else ""
            yield Corner(x, y, f"{what} {digits(x)} FLOP/B{extra}", colour)
        if "attainable" in found:
            x, y = found["attainable"]
            text = "" if "datasheet" in found else f"{what} {digits(x)} from {level}"
            yield Corner(x, y, text, colour)
