"""A roofline as plain data: what ``roofline --json`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from perfmodel.inference.ceilings import Ceiling
from perfmodel.inference.record import plain
from perfmodel.inference.roofline import DeviceRoofline, Mark, Measured, Roofline


def roofline_record(result: Roofline, measured: Sequence[Measured] = ()) -> dict[str, Any]:
    """Roofs, ridge points and operators of every device; timed calls of the one there is."""
    return {
        "model": result.model.name,
        "workload": result.workload.model_dump(),
        "path": result.path,
        "settings": list(result.settings),
        "devices": [device_record(device) for device in result.devices],
        "measured": [measured_record(call) for call in measured],
    }


def device_record(device: DeviceRoofline) -> dict[str, Any]:
    """One device."""
    return {
        "hardware": device.hardware.name,
        "calibration": device.calibration,
        "gpus": device.estimate.plan.parallel.gpus,
        "deployment": device.estimate.plan.deployment.model_dump(),
        "roofs": [ceiling_record(ceiling) for ceiling in device.ceilings],
        "ridge_points": [asdict(ridge) for ridge in device.ridges],
        "operators": [mark_record(mark) for mark in device.marks],
    }


def ceiling_record(ceiling: Ceiling) -> dict[str, Any]:
    """A roof: FLOP/s of a multiply-add, or bytes/s of a memory level."""
    unit = "flops_per_s" if ceiling.kind == "compute" else "bytes_per_s"
    best = ceiling.attained
    return {
        "kind": ceiling.kind,
        "name": ceiling.name,
        "used": ceiling.used,
        f"datasheet_{unit}": ceiling.datasheet,
        f"attainable_{unit}": None if best is None else best.rate,
        f"attainable_{unit}_low": None if best is None else best.low,
        f"attainable_{unit}_high": None if best is None else best.high,
        "attainable_source": None if best is None else best.source,
    }


def mark_record(mark: Mark) -> dict[str, Any]:
    """An operator: its totals in one step, and its place under the roofs."""
    return {
        "phase": mark.phase,
        "setting": mark.setting,
        "name": mark.name,
        "count": mark.count,
        "shape": {name: plain(size) for name, size in mark.shape.items()},
        "arithmetic": mark.arithmetic,
        "flops": mark.flops,
        "bytes": mark.bytes,
        "wire_bytes": mark.wire_bytes,
        "time_s": mark.time_s,
        "time_s_low": mark.low_s,
        "time_s_high": mark.high_s,
        "roof_s": mark.roof_s,
        "share": mark.share,
        "arithmetic_intensity": mark.intensity,
        "flops_per_s": mark.flops_per_s,
        "bytes_per_s": mark.bytes_per_s,
        "attained_share": mark.attained,
        "bound": mark.bound,
        "source": mark.source,
    }


def measured_record(call: Measured) -> dict[str, Any]:
    """A timed call."""
    own = {"arithmetic_intensity": call.intensity, "flops_per_s": call.flops_per_s}
    return asdict(call) | own
