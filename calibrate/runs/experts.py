"""Grouped GEMM (one projection of a mixture of experts) and the expert layer made of two.

Rows are sorted by expert already: gathering tokens and combining results aren't part of it.
"""

from __future__ import annotations

from typing import Any

from calibrate.runs.base import Bench, Family, Prepared, Shape, Work, always, size, width

DISTRIBUTIONS = {"balanced": 0.0, "power_law_1.01": 1.01, "power_law_1.2": 1.2}
"""Exponent with which an expert's share of the rows falls with its rank."""
KERNEL = "torch._grouped_mm"


def rows_of(rows: int, experts: int, distribution: str) -> list[int]:
    """Rows of each expert: shares by rank, rounded so that they sum to ``rows``.

    >>> rows_of(10, 4, "balanced"), rows_of(2, 4, "balanced"), sum(rows_of(77, 8, "power_law_1.2"))
    ([3, 3, 2, 2], [1, 1, 0, 0], 77)
    """
    exponent = DISTRIBUTIONS[distribution]
    shares = [(rank + 1) ** -exponent for rank in range(experts)]
    total = sum(shares)
    exact = [rows * share / total for share in shares]
    counts = [int(value) for value in exact]
    by_rest = sorted(range(experts), key=lambda e: (counts[e] - exact[e], e))
    for expert in by_rest[: rows - sum(counts)]:
        counts[expert] += 1
    return counts


def grouped_legal(shape: Shape) -> bool:
    """16-byte rows, a known distribution."""
    step = 16 // width(str(shape["dtype"]))
    return (
        shape["distribution"] in DISTRIBUTIONS
        and size(shape, "n") % step == 0
        and size(shape, "k") % step == 0
        and min(size(shape, "rows"), size(shape, "experts")) > 0
    )


def grouped_work(shape: Shape) -> Work:
    """2·n·k a row; the matrices of the experts that got rows, rows in and out."""
    rows, n, k = size(shape, "rows"), size(shape, "n"), size(shape, "k")
    dtype = str(shape["dtype"])
    counts = rows_of(rows, size(shape, "experts"), str(shape["distribution"]))
    active = sum(1 for count in counts if count)
    moved = (active * n * k + rows * (n + k)) * width(dtype)
    return Work(2 * rows * n * k, moved, dtype)


def grouped_prepare(shape: Shape, bench: Bench) -> Prepared:
    """Rows, one matrix per expert, and where each expert's rows end."""
    experts, rows = size(shape, "experts"), size(shape, "rows")
    n, k, dtype = size(shape, "n"), size(shape, "k"), str(shape["dtype"])
    copies, flush = bench.copies(width(dtype) * (experts * n * k + rows * (n + k)))
    a = bench.random(copies, (rows, k), dtype)
    b = _weights(bench, copies, (experts, n, k), dtype)
    ends = _ends(bench, rows, experts, str(shape["distribution"]))
    mm = bench.torch._grouped_mm
    return Prepared(lambda i: mm(a[i % copies], b[i % copies], offs=ends), copies, flush)


def layer_legal(shape: Shape) -> bool:
    """Each projection is legal, one rank, no more experts a token than there are."""
    return (
        grouped_legal(_projection(shape, "hidden", "inter"))
        and 0 < size(shape, "topk") <= size(shape, "experts")
        and (size(shape, "moe_tp"), size(shape, "moe_ep")) == (1, 1)
    )


def _projection(shape: Shape, n: str, k: str) -> Shape:
    rows = size(shape, "tokens") * size(shape, "topk")
    return {**shape, "rows": rows, "n": shape[n], "k": shape[k]}


def layer_work(shape: Shape) -> Work:
    """Gate and up in one grouped GEMM, SiLU-multiply, down; what passes between them counts."""
    up = grouped_work({**_projection(shape, "inter", "hidden"), "n": 2 * size(shape, "inter")})
    down = grouped_work(_projection(shape, "hidden", "inter"))
    rows, dtype = size(shape, "tokens") * size(shape, "topk"), str(shape["dtype"])
    activation = 3 * rows * size(shape, "inter") * width(dtype)
    return Work(up.flops + down.flops, up.bytes + down.bytes + activation, dtype)


def layer_prepare(shape: Shape, bench: Bench) -> Prepared:
    """One rank's experts with balanced or skewed rows."""
    experts, hidden, inter = size(shape, "experts"), size(shape, "hidden"), size(shape, "inter")
    rows, dtype = size(shape, "tokens") * size(shape, "topk"), str(shape["dtype"])
    copies, flush = bench.copies(width(dtype) * (3 * experts * hidden * inter + rows * hidden))
    x = bench.random(copies, (rows, hidden), dtype)
    up = _weights(bench, copies, (experts, 2 * inter, hidden), dtype)
    down = _weights(bench, copies, (experts, hidden, inter), dtype)
    ends = _ends(bench, rows, experts, str(shape["distribution"]))
    mm, silu = bench.torch._grouped_mm, bench.torch.nn.functional.silu

    def call(i: int) -> Any:
        at = i % copies
        gate, value = mm(x[at], up[at], offs=ends).chunk(2, dim=-1)
        return mm(silu(gate) * value, down[at], offs=ends)

    return Prepared(call, copies, flush)


def _weights(bench: Bench, copies: int, dims: tuple[int, int, int], dtype: str) -> list[Any]:
    return [w.transpose(-2, -1) for w in bench.random(copies, dims, dtype)]


def _ends(bench: Bench, rows: int, experts: int, distribution: str) -> Any:
    torch = bench.torch
    counts = torch.tensor(rows_of(rows, experts, distribution), device=bench.device.target)
    return counts.cumsum(0).to(torch.int32)


GROUPED = Family(
    "grouped_gemm", ("rows", "experts", "n", "k", "distribution"), {KERNEL: always},
    grouped_legal, grouped_work, grouped_prepare,
)  # fmt: skip
LAYER = Family(
    "moe",
    ("tokens", "hidden", "inter", "topk", "experts", "moe_tp", "moe_ep", "distribution"),
    {KERNEL: always}, layer_legal, layer_work, layer_prepare,
)  # fmt: skip
