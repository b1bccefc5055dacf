"""The roof that achieved rates are compared with: a datasheet's, or the ceilings just measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from calibrate.runs.base import Work
from perfmodel.specs.hardware import Hardware
from perfmodel.units import MICROSECOND

NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "fp8": "fp8", "int8": "int8"}
"""What profiles call the dtypes of measured tables."""


@dataclass
class Roof:
    """Peak FLOP/s by dtype and bytes/s of memory; grows while ceilings are measured."""

    peaks: dict[str, float] = field(default_factory=dict)
    bandwidth: float = 0.0
    source: str = "measured"

    @classmethod
    def of(cls, hardware: Hardware) -> Roof:
        """The roof of a datasheet. FP32 is the matrix path's where there is one."""
        peaks = {dtype: hardware.peak(name) for dtype, name in NAMES.items()}
        known = {dtype: peak for dtype, peak in peaks.items() if peak is not None}
        return cls(known, hardware.memory_bandwidth, hardware.name)

    @classmethod
    def measured(cls, rows: Mapping[str, Iterable[Mapping[str, str]]]) -> Roof:
        """The roof of ceilings' rows as read from their files, by family."""
        roof = cls()
        for row in rows.get("matmul_peak", ()):
            if row["status"] == "ok":
                roof.raise_to(row["dtype"], float(row["flops"]) / best_seconds(row), 0.0)
        for row in rows.get("bandwidth", ()):
            if row["status"] == "ok":
                roof.raise_to("", 0.0, float(row["bytes"]) / best_seconds(row))
        return roof

    def raise_to(self, dtype: str, flops_per_s: float, bytes_per_s: float) -> None:
        """Take a ceiling's rate into a measured roof; a datasheet's stays as it is."""
        if self.source != "measured":
            return
        if flops_per_s:
            self.peaks[dtype] = max(self.peaks.get(dtype, 0.0), flops_per_s)
        self.bandwidth = max(self.bandwidth, bytes_per_s)

    def share(self, work: Work, seconds: float) -> tuple[float, str]:
        """Time at the roof over ``seconds``, and what the roof is there.

        0 and ``none`` where the roof doesn't limit the work or isn't known for its dtype.
        """
        if work.limit == "none":
            return 0.0, "none"
        moving = work.bytes / self.bandwidth if self.bandwidth else 0.0
        peak = self.peaks.get(work.arithmetic)
        computing = work.flops / peak if peak and work.limit != "memory" else 0.0
        if not max(moving, computing):
            return 0.0, "none"
        best = max(moving, computing)
        return best / seconds, "compute" if computing >= moving else "memory"


def best_seconds(row: Mapping[str, str]) -> float:
    """The fastest sample of a row: a ceiling is the best that was seen, as STREAM's is."""
    return float(row["fastest_us"]) * MICROSECOND
