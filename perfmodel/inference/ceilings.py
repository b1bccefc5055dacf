"""The roofs of a device: what its datasheet promises, and the most that its kernels reach of it.

An attainable rate is the best that priced kernels reach over a ladder of sizes, and in the case
itself: products for arithmetic; for device memory one-row products, which read each weight once,
attention of one new token over a long cache, and a copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfmodel.inference.phase import Device
from perfmodel.inference.plan import Plan
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.format_bytes import Product, matrix_bytes
from perfmodel.operators.quantity import Array
from perfmodel.operators.record import Attention, Elementwise, Gemm, Operator
from perfmodel.specs.formats import FORMATS, Arithmetic
from perfmodel.specs.hardware import Hardware

Kind = Literal["compute", "memory"]
DEVICE_MEMORY = "device memory"
L2 = "L2"
MEASURED = "measured"
SIZES = tuple(2**power for power in range(10, 16))
"""Rows, columns and depths of the ladder's products."""
NATIVE: dict[Arithmetic, str] = {
    "fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "int8": "int8", "fp4": "nvfp4",
}  # fmt: skip
"""The plainest number format that each multiply-add takes."""
SEQUENCES, CONTEXT, HEADS, KV_HEADS, WIDTH = 128, 8192, 32, 8, 128
"""The decode attention of the ladder: 4.3 GB of a 16-bit cache, far beyond any L2."""


@dataclass(frozen=True, slots=True)
class Attained:
    """The most that kernels reach of a ceiling, with its 90 % interval; FLOP/s or bytes/s."""

    rate: float
    low: float
    high: float
    source: str
    """``fitted``, ``transferred`` or ``assumed``; ``measured`` where the profile says so."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A limit of a device: of one multiply-add in FLOP/s, or of one memory level in bytes/s."""

    kind: Kind
    name: str
    """An arithmetic such as ``bf16``, or ``device memory`` or ``L2``."""
    datasheet: float | None
    """Dense peak; None where no datasheet states it."""
    attained: Attained | None
    """None where only the datasheet is asked for, or nothing uses the ceiling."""
    used: bool
    """Whether operators of the case compute in this arithmetic, or read this memory."""


@dataclass(frozen=True, slots=True)
class Ridge:
    """Where a multiply-add's roof meets a memory level's."""

    arithmetic: str
    level: str
    of: Literal["datasheet", "attainable"]
    flops_per_byte: float
    flops_per_s: float


def ridges(ceilings: Iterable[Ceiling]) -> tuple[Ridge, ...]:
    """The ridge points of every multiply-add in use with every memory level."""
    found = []
    computes = [c for c in ceilings if c.kind == "compute" and c.used]
    levels = [c for c in ceilings if c.kind == "memory"]
    for compute in computes:
        for level in levels:
            if compute.datasheet is not None and level.datasheet is not None:
                found.append(_ridge(compute, level, compute.datasheet, level.datasheet))
            if compute.attained is not None and level.attained is not None:
                rates = compute.attained.rate, level.attained.rate
                found.append(_ridge(compute, level, *rates, of="attainable"))
    return tuple(found)


def _ridge(
    compute: Ceiling,
    level: Ceiling,
    flops_per_s: float,
    bytes_per_s: float,
    of: Literal["datasheet", "attainable"] = "datasheet",
) -> Ridge:
    return Ridge(compute.name, level.name, of, flops_per_s / bytes_per_s, flops_per_s)


def ceilings_of(
    device: DeviceModel, runs: Device, plan: Plan, reached: Sequence[tuple[Kind, str, Attained]]
) -> tuple[Ceiling, ...]:
    """A device's ceilings: its matrix formats, device memory, and L2 where its rate is known.

    The calibrations' own L2 parameters are no bandwidths: attention's is what one kernel got of
    it, a product's that of tiles that share what they load. The profile's is a read benchmark's.

    Args:
        device: the datasheet's peaks, and the calibration.
        runs: what prices kernels: the device, or the device under an engine's kernels.
        plan: formats of the deployment.
        reached: what the case's own operators reach, of each arithmetic in use and of
            `DEVICE_MEMORY`.
    """
    priced = device.calibration is not None
    used = list(dict.fromkeys(name for kind, name, _ in reached if kind == "compute"))
    out = []
    for arithmetic in _drawn(device.hardware, used):
        best = None
        if priced and arithmetic in used:
            products = _products(_product(plan, arithmetic), np.asarray(SIZES, dtype=np.float64))
            best = _best(runs, products, "compute", _own(reached, arithmetic))
        peak = device.peak(arithmetic)
        out.append(Ceiling("compute", arithmetic, peak, best, arithmetic in used))
    reads: list[Operator] = [_decode_attention(plan), _copy()]
    for name in used:
        reads += _products(_product(plan, name), np.ones(1))
    own = _own(reached, DEVICE_MEMORY)
    best = _best(runs, reads, "memory", own) if priced else None
    bandwidth = device.hardware.memory_bandwidth
    out.append(Ceiling("memory", DEVICE_MEMORY, bandwidth, best, used=True))
    cached = device.hardware.l2_bandwidth
    if cached is not None:
        out.append(Ceiling("memory", L2, None, Attained(cached, cached, cached, MEASURED), False))
    return tuple(out)


def _drawn(hardware: Hardware, used: Sequence[str]) -> list[Arithmetic]:
    """Arithmetics in use, then the narrower ones that the chip has; ascending peaks."""
    names: list[Arithmetic] = [a for a in NATIVE if a in used]
    names += [a for a in ("fp8", "int8", "fp4") if a not in used and hardware.peak(a) is not None]
    return sorted(names, key=lambda name: hardware.peak(name) or 0.0)


def _product(plan: Plan, arithmetic: str) -> Product:
    """The deployment's own format where it computes so, else the plainest of the arithmetic."""
    main = plan.formats.main
    if main.arithmetic == arithmetic:
        return main
    name: Arithmetic = next(a for a in NATIVE if a == arithmetic)
    native = FORMATS[NATIVE[name]]
    return Product(native, native, name)


def _own(reached: Iterable[tuple[Kind, str, Attained]], wanted: str) -> list[Attained]:
    return [rate for _, name, rate in reached if name == wanted]


def _products(product: Product, rows: Array) -> list[Gemm]:
    """Products of every width and depth, each with all the ``rows``."""
    return [
        Gemm(
            name="ladder",
            m=rows,
            n=width,
            k=depth,
            arithmetic=product.arithmetic,
            weight_format=product.stored.name,
            weight_bytes=matrix_bytes(product.stored, depth, width),
            input_bytes_per_element=product.input_bytes,
        )
        for width, depth in itertools.product(SIZES, SIZES)
    ]


def _copy() -> Elementwise:
    """Reads and writes 1 GiB each."""
    return Elementwise(name="copy", tokens=2**17, read_bytes=2.0**13, write_bytes=2.0**13)


def _decode_attention(plan: Plan) -> Attention:
    return Attention(
        name="ladder",
        phase="decode",
        arithmetic=plan.formats.base_arithmetic,
        sequences=SEQUENCES,
        queries=1,
        keys=CONTEXT,
        pairs=CONTEXT,
        context=CONTEXT,
        heads=HEADS,
        kv_heads=KV_HEADS,
        qk_dim=WIDTH,
        value_dim=WIDTH,
        key_bytes=2 * 2 * KV_HEADS * WIDTH,
    )


def _best(
    runs: Device, ladder: Iterable[Operator], kind: Kind, reached: Sequence[Attained]
) -> Attained:
    """The fastest of the ladder and of what the case reaches, in FLOP/s or bytes/s."""
    rungs = list(reached)
    for operator in ladder:
        kernel = runs.time(operator)
        rate = np.ravel((operator.flops if kind == "compute" else operator.bytes) / kernel.time_s)
        at = int(np.argmax(rate))
        time, low, high = (
            np.broadcast_to(t, rate.shape)[at] for t in (kernel.time_s, kernel.low_s, kernel.high_s)
        )
        best = float(rate[at])
        rungs.append(
            Attained(best, best * float(time / high), best * float(time / low), kernel.source)
        )
    return max(rungs, key=lambda rung: rung.rate)
