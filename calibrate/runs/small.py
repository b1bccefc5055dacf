"""Elementwise kernels, and what launching any kernel costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrate.runs.base import Bench, Family, Prepared, Shape, Work, always, size, width

OPS = ("rms_norm", "silu_mul", "rotary")
HEAD_DIM = 128
"""Of rotary: ``width`` is heads × 128."""
MODES = ("eager", "graph")
Runnable = tuple[Callable[[Any], Any], list[Any]]
"""A function of one tensor, and the rotated tensors."""


def legal(shape: Shape) -> bool:
    """Whole heads for rotary."""
    tokens, wide = size(shape, "tokens"), size(shape, "width")
    return (
        shape["op"] in OPS
        and min(tokens, wide) > 0
        and (shape["op"] != "rotary" or wide % HEAD_DIM == 0)
    )


def work(shape: Shape) -> Work:
    """Bytes of the operator as one kernel, whatever passes torch makes of it; FLOPs not counted.

    RMSNorm: x in and out, the weight. SiLU-multiply: gate and value in, product out. Rotary: x in
    and out, a cosine and a sine per token and half a head.
    """
    dtype, tokens, wide = str(shape["dtype"]), size(shape, "tokens"), size(shape, "width")
    elements = {
        "rms_norm": 2 * tokens * wide + wide,
        "silu_mul": 3 * tokens * wide,
        "rotary": 2 * tokens * wide + tokens * HEAD_DIM,
    }[str(shape["op"])]
    return Work(0, elements * width(dtype), dtype, "memory")


def _norm(bench: Bench, copies: int, shape: Shape) -> Runnable:
    wide, dtype = size(shape, "width"), str(shape["dtype"])
    xs = bench.random(copies, (size(shape, "tokens"), wide), dtype)
    weight = bench.random(1, (wide,), dtype)[0]
    norm = bench.torch.nn.functional.rms_norm

    def run(x: Any) -> Any:
        return norm(x, (wide,), weight, 1e-5)

    return run, xs


def _silu(bench: Bench, copies: int, shape: Shape) -> Runnable:
    wide, dtype = size(shape, "width"), str(shape["dtype"])
    xs = bench.random(copies, (size(shape, "tokens"), 2 * wide), dtype)
    silu = bench.torch.nn.functional.silu

    def run(x: Any) -> Any:
        gate, value = x.chunk(2, dim=-1)
        return silu(gate) * value

    return run, xs


def _rotary(bench: Bench, copies: int, shape: Shape) -> Runnable:
    tokens, dtype, torch = size(shape, "tokens"), str(shape["dtype"]), bench.torch
    xs = bench.random(copies, (tokens, size(shape, "width") // HEAD_DIM, HEAD_DIM), dtype)
    cosine, sine = bench.random(2, (tokens, 1, HEAD_DIM // 2), dtype)

    def run(x: Any) -> Any:
        return rotate(torch, x, cosine, sine)

    return run, xs


def rotate(torch: Any, x: Any, cosine: Any, sine: Any) -> Any:
    """Rotary embedding of ``x`` [tokens, heads, dim] by halves, angles [tokens, 1, dim/2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def prepare(shape: Shape, bench: Bench) -> Prepared:
    """The operator in eager torch, or compiled into one kernel."""
    copies, flush = bench.copies(work(shape).bytes)
    make = {"rms_norm": _norm, "silu_mul": _silu, "rotary": _rotary}[str(shape["op"])]
    run, xs = make(bench, copies, shape)
    if shape["kernel"] == "torch.compile":
        run = bench.torch.compile(run, dynamic=False)
    return Prepared(lambda i: run(xs[i % copies]), copies, flush)


def _compiles() -> str:
    from importlib.util import find_spec  # noqa: PLC0415

    return "" if find_spec("triton") else "needs the package triton"


def launch_legal(shape: Shape) -> bool:
    """One kernel after another, or all replayed from a graph."""
    return shape["op"] in MODES


def launch_work(shape: Shape) -> Work:
    """One element: the time is all launch."""
    return Work(0, 2 * width(str(shape["dtype"])), str(shape["dtype"]), "none")


def launch_prepare(shape: Shape, bench: Bench) -> Prepared:
    """An addition in place on one element, as often as a sample is long.

    Raises:
        NotImplementedError: a graph on a device that has none.
    """
    graph = shape["op"] == "graph"
    if graph and bench.device.kind == "cpu":
        raise NotImplementedError("torch has no graphs on a CPU")
    element = bench.random(1, (1,), str(shape["dtype"]))[0]
    return Prepared(lambda _: element.add_(1), 1, flush=False, host=not graph, graph=graph)


ELEMENTWISE = Family(
    "elementwise", ("op", "tokens", "width"),
    {"torch.eager": always, "torch.compile": _compiles}, legal, work, prepare,
)  # fmt: skip
LAUNCH = Family(
    "launch", ("op",), {"torch.add_": always}, launch_legal, launch_work, launch_prepare
)
