"""How long a FlashAttention that was asked for by name takes on a device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perfmodel.kernels.choice import TRANSFER_WIDENS_OTHERS
from perfmodel.kernels.flash import FORM_NAMES, Flash, published, reread_bytes
from perfmodel.kernels.kernel_time import KernelTime
from perfmodel.kernels.requests import request_of
from perfmodel.operators.quantity import Quantity, maximum, where
from perfmodel.operators.record import Attention

if TYPE_CHECKING:
    from perfmodel.kernels.timing import DeviceModel


def flash_time(device: DeviceModel, op: Attention, kernel: Flash) -> KernelTime:
    """As measured, else scaled or priced by the published share of peak.

    * The device's calibrated set was fitted on this kernel: its time.
    * It was fitted on the other one: prefill limited by arithmetic takes the ratio of the published
      shares longer; decode, which reads the cache once whichever kernel does, takes the set's time.
    * No set of either: the published share of the peak, else the assumed one, beside the traffic,
      which holds what tiles read again and L2 doesn't serve.

    MLA, its indexer and unfused attention have kernels of their own and stay as they are.
    """
    own = device.own_kernel(op)
    if op.latent or op.value_dim == 0 or not op.fused or device.calibration is None:
        return own
    again = reread_bytes(op, kernel, device.hardware)
    ours = published(kernel, device.hardware)
    by_set = measured_flash(device, op)
    if by_set == kernel or (by_set is not None and op.phase == "decode"):
        return replace(own, reread_bytes=again)
    theirs = None if by_set is None else published(by_set, device.hardware)
    if ours is not None and theirs is not None:
        ratio = where(own.compute_s >= own.memory_s, theirs.share / ours.share, 1.0)
        return replace(_scaled(own, ratio), reread_bytes=again)
    share = device.calibration.families.attention
    compute = device.compute_s(op) / (ours.share if ours else share.compute)
    memory = (op.bytes + again) / (share.memory * device.hardware.memory_bandwidth)
    made = device.combine(compute, memory, 0.0, own.roof_s, share.spread)
    source = "published share" if ours else device.calibration.origin
    return replace(made, reread_bytes=again, source=source)


def measured_flash(device: DeviceModel, op: Attention) -> Flash | None:
    """Which FlashAttention the calibrated set for ``op`` was fitted on, if any."""
    if device.choice is None:
        return None
    sets = device.choice.calibrated.sets
    request = request_of(op, sets)
    found = None if request is None else sets.get(request.set_name)
    name = "" if found is None else getattr(found.kernels.form, "kernel", "")
    return FORM_NAMES.get(name)


def _scaled(kernel: KernelTime, ratio: Quantity) -> KernelTime:
    """A measured kernel's work times the ratio of published shares, with a wider interval."""
    time = ratio * (kernel.time_s - kernel.launch_s) + kernel.launch_s
    low = (kernel.low_s / maximum(kernel.time_s, 1e-30)) ** TRANSFER_WIDENS_OTHERS
    high = (kernel.high_s / maximum(kernel.time_s, 1e-30)) ** TRANSFER_WIDENS_OTHERS
    return replace(
        kernel,
        time_s=time,
        low_s=maximum(time * low, kernel.roof_s),
        high_s=time * high,
        compute_s=ratio * kernel.compute_s,
        source=f"{kernel.source}, scaled by published shares",
    )
