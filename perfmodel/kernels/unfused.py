"""Attention that writes its scores, where the same work was measured in a fused kernel."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.kernels.kernel_time import KernelTime
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.quantity import maximum
from perfmodel.operators.record import Attention

SCORES = "scores assumed"
"""What the source says beside the fused kernel's."""


def unfused_time(device: DeviceModel, op: Attention, own: KernelTime) -> KernelTime:
    """``own``, the price of unfused attention by assumed shares, but never the better kernel.

    It does what the fused kernel does and writes and reads the scores besides, so it takes at least
    the fused kernel's measured time and that traffic at the assumed share of the bandwidth. Without
    a measured kernel both are priced by the same shares, and ``own`` stands.
    """
    inside = replace(op, fused=True)
    fused = device.own_kernel(inside)
    if device.choice is None or device.calibration is None or fused.source != device.choice.origin:
        return own
    share = device.calibration.families.attention
    fastest = (op.bytes - inside.bytes) / device.hardware.memory_bandwidth
    scores = fastest / share.memory
    return replace(
        own,
        time_s=maximum(own.time_s, fused.time_s + scores),
        low_s=maximum(own.low_s, fused.low_s + maximum(fastest, scores / share.spread)),
        high_s=maximum(own.high_s, fused.high_s + share.spread * scores),
        source=f"{fused.source}, {SCORES}",
    )
