"""What a case's outcome is written as: results, their columns, and where they come from."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from typing import TypeAlias

from calibrate.device import Device
from calibrate.roof import Roof
from calibrate.rows import SHAPE_FIRST, Provenance, Result, slug
from calibrate.runs.base import Prepared, Work
from calibrate.state import State
from calibrate.timing import Settings, Timing
from perfmodel import __version__
from perfmodel.errors import PerfmodelError
from perfmodel.units import GIGA, MICROSECOND, TERA

Found: TypeAlias = tuple[Prepared, Timing, str]
"""What was run, its timing, and the method of timing."""


def ok_result(work: Work, found: Found, settings: Settings, roof: Roof, *, warm: bool) -> Result:
    """A timed case as a result, with its share of the roof."""
    prepared, timing, method = found
    share, limit = roof.share(work, timing.seconds)
    return Result(
        status="ok",
        reason="",
        latency_us=timing.seconds / MICROSECOND,
        fastest_us=timing.fastest_s / MICROSECOND,
        spread=timing.spread,
        error=timing.error,
        tolerance=settings.tolerance,
        reached=timing.reached,
        quality=timing.quality,
        samples=timing.samples,
        discarded=timing.discarded,
        repeats=timing.repeats,
        method=method,
        cache="warm" if warm else "cold",
        copies=prepared.copies,
        flops=work.flops,
        bytes=work.bytes,
        tflops=work.flops / timing.seconds / TERA,
        gb_s=work.bytes / timing.seconds / GIGA,
        roof_share=share,
        roof=limit,
        roof_source="none" if limit == "none" else roof.source,
        flag="above_roof" if share > 1.0 else "",
    )


def failed_result(work: Work, reason: str, settings: Settings, *, warm: bool) -> Result:
    """A case without a time, with its reason."""
    return Result(
        status="failed",
        reason=reason,
        latency_us=0.0,
        fastest_us=0.0,
        spread=0.0,
        error=0.0,
        tolerance=settings.tolerance,
        reached=False,
        quality="none",
        samples=0,
        discarded=0,
        repeats=0,
        method="none",
        cache="warm" if warm else "cold",
        copies=0,
        flops=work.flops,
        bytes=work.bytes,
        tflops=0.0,
        gb_s=0.0,
        roof_share=0.0,
        roof="none",
        roof_source="none",
        flag="",
    )


def result_columns(shape: Iterable[str]) -> list[str]:
    """The columns of a file whose cases have the columns ``shape``."""
    records = (Result, State, Provenance)
    names = [field.name for record in records for field in fields(record)]
    return list(dict.fromkeys([*SHAPE_FIRST, *shape, *names, "date"]))


def provenance(device: Device, profile: str = "") -> Provenance:
    """Where the rows of this process come from; ``profile`` names the hardware if it is known."""
    import torch  # noqa: PLC0415

    return Provenance(
        gpu=profile or slug(device.name),
        framework="torch",
        framework_version=str(torch.__version__),
        device=device.name,
        kind=device.kind,
        threads=device.units,
        software=device.software,
        perfmodel_version=__version__,
        # Of the kernel's release only what isn't a distribution's or a machine's own suffix.
        host=f"{platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}",
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
