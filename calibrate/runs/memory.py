"""What memory gives: copy, read and triad on the device, copies between host and device."""

from __future__ import annotations

from typing import Any

from calibrate.runs.base import Bench, Family, Prepared, Shape, Work, always, size, width

STREAMS = {"copy": 2, "read": 1, "triad": 3}
"""Arrays that an operation passes over: b = a; the sum of a; c = a + 2b."""
DIRECTIONS = ("host_to_device", "device_to_host")


def bandwidth_legal(shape: Shape) -> bool:
    """An operation that is known, on whole elements."""
    return shape["op"] in STREAMS and size(shape, "array_bytes") % width(str(shape["dtype"])) == 0


def bandwidth_work(shape: Shape) -> Work:
    """The arrays' bytes (no write-allocate counted, as STREAM doesn't), one add per element."""
    moved = STREAMS[str(shape["op"])] * size(shape, "array_bytes")
    return Work(0, moved, str(shape["dtype"]), "memory")


def bandwidth_prepare(shape: Shape, bench: Bench) -> Prepared:
    """Arrays of ``array_bytes`` each."""
    dtype, op, torch = str(shape["dtype"]), str(shape["op"]), bench.torch
    count = size(shape, "array_bytes") // width(dtype)
    copies, flush = bench.copies(bandwidth_work(shape).bytes)
    a = bench.random(copies, (count,), dtype)
    if op == "read":
        return Prepared(lambda i: torch.sum(a[i % copies]), copies, flush)
    out = bench.empty(copies, (count,), dtype)
    if op == "copy":
        return Prepared(lambda i: out[i % copies].copy_(a[i % copies]), copies, flush)
    b = bench.random(copies, (count,), dtype)

    def triad(i: int) -> Any:
        return torch.add(a[i % copies], b[i % copies], alpha=2.0, out=out[i % copies])

    return Prepared(triad, copies, flush)


def copy_legal(shape: Shape) -> bool:
    """A direction that is known."""
    return shape["op"] in DIRECTIONS and shape["pinned"] in ("yes", "no")


def copy_work(shape: Shape) -> Work:
    """The message, over the host interface: the device's memory isn't its roof."""
    return Work(0, size(shape, "message_bytes"), str(shape["dtype"]), "none")


def copy_prepare(shape: Shape, bench: Bench) -> Prepared:
    """One buffer on each side; pinned memory is what engines copy from."""
    torch, count = bench.torch, size(shape, "message_bytes")
    copies, _ = bench.copies(count)
    there = bench.random(copies, (count,), "uint8")
    pinned = shape["pinned"] == "yes"
    here = [torch.randint(0, 256, (count,), dtype=torch.uint8) for _ in range(min(copies, 4))]
    here = [buffer.pin_memory() for buffer in here] if pinned else here
    sources, sinks = (here, there) if shape["op"] == "host_to_device" else (there, here)

    def copy(i: int) -> Any:
        return sinks[i % len(sinks)].copy_(sources[i % len(sources)], non_blocking=pinned)

    return Prepared(copy, copies, flush=False, graph=False, host=not pinned)


BANDWIDTH = Family(
    "bandwidth", ("op", "array_bytes"), {"torch": always},
    bandwidth_legal, bandwidth_work, bandwidth_prepare,
)  # fmt: skip
HOST_COPY = Family(
    "host_copy", ("op", "pinned", "message_bytes"), {"torch.copy_": always},
    copy_legal, copy_work, copy_prepare,
)  # fmt: skip
