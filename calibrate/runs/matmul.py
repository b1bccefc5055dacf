"""Dense GEMM and GEMV in every number format that torch multiplies, and the ceilings of it.

C[m,n] = A[m,k]·B[k,n] with the weight stored as [n,k], as checkpoints store it; m tokens.
"""

from __future__ import annotations

from typing import Any

from calibrate.runs.base import (
    ARITHMETIC,
    BITS,
    Bench,
    Family,
    Prepared,
    Shape,
    Work,
    always,
    size,
)

GROUP = 128
"""Elements of k that share a scale and a zero point in the weight-only int4 kernel."""
INNER_K_TILES = 8
KERNELS = {
    "fp8": "torch._scaled_mm",
    "int8": "torch._int_mm",
    "int4_wo": "torch._weight_int4pack_mm",
}
OUTPUT_BYTES = {"float32": 4, "int8": 4}
"""Bytes of a result's element: int8 products are int32, everything else leaves as 16 bits."""


def kernel_of(dtype: str) -> str:
    """The function of torch that multiplies a dtype."""
    return KERNELS.get(dtype, "torch.mm")


def legal(shape: Shape) -> bool:
    """What the kernels ask of m, n and k."""
    dtype, m, n, k = str(shape["dtype"]), size(shape, "m"), size(shape, "n"), size(shape, "k")
    if shape["kernel"] != kernel_of(dtype) or min(m, n, k) < 1:
        return False
    if dtype == "int4_wo":
        return k % GROUP == 0 and n % 64 == 0
    if dtype == "int8":  # cuBLAS refuses m ≤ 16
        return m > 16 and n % 8 == 0 and k % 8 == 0
    return dtype != "fp8" or (n % 16 == 0 and k % 16 == 0)


def work(shape: Shape) -> Work:
    """2mnk; A, B and C once, scales and zero points of quantised weights included."""
    dtype, m, n, k = str(shape["dtype"]), size(shape, "m"), size(shape, "n"), size(shape, "k")
    activation = 2 if dtype == "int4_wo" else BITS[dtype] // 8
    scales = {"fp8": 8, "int4_wo": n * (k // GROUP) * 4}.get(dtype, 0)
    weight = n * k * BITS[dtype] // 8 + scales
    out = m * n * OUTPUT_BYTES.get(dtype, 2)
    return Work(2 * m * n * k, m * k * activation + weight + out, ARITHMETIC.get(dtype, dtype))


def prepare(shape: Shape, bench: Bench) -> Prepared:
    """Random operands for as many copies as keep the cache cold."""
    dtype = str(shape["dtype"])
    copies, flush = bench.copies(work(shape).bytes)
    make = {"fp8": _fp8, "int8": _int8, "int4_wo": _int4}.get(dtype, _plain)
    return Prepared(make(shape, bench, copies), copies, flush)


def _plain(shape: Shape, bench: Bench, copies: int) -> Any:
    dtype, m, n, k = str(shape["dtype"]), size(shape, "m"), size(shape, "n"), size(shape, "k")
    a = bench.random(copies, (m, k), dtype)
    b = [weight.t() for weight in bench.random(copies, (n, k), dtype)]
    out = bench.empty(copies, (m, n), dtype)
    mm = bench.torch.mm
    return lambda i: mm(a[i % copies], b[i % copies], out=out[i % copies])


def _int8(shape: Shape, bench: Bench, copies: int) -> Any:
    m, n, k = size(shape, "m"), size(shape, "n"), size(shape, "k")
    a = bench.random(copies, (m, k), "int8")
    b = [weight.t() for weight in bench.random(copies, (n, k), "int8")]
    out = bench.empty(copies, (m, n), "int32")
    mm = bench.torch._int_mm
    return lambda i: mm(a[i % copies], b[i % copies], out=out[i % copies])


def _fp8(shape: Shape, bench: Bench, copies: int) -> Any:
    m, n, k = size(shape, "m"), size(shape, "n"), size(shape, "k")
    torch = bench.torch
    a = bench.random(copies, (m, k), "fp8")
    b = [weight.t() for weight in bench.random(copies, (n, k), "fp8")]
    out = bench.empty(copies, (m, n), "bfloat16")
    one = torch.ones((), device=bench.device.target)
    mm, bf16, fast = torch._scaled_mm, torch.bfloat16, bench.device.kind == "cuda"

    def call(i: int) -> Any:
        at = i % copies
        # Fast accumulation is what engines use, and what datasheets' peaks hold for.
        return mm(
            a[at], b[at], scale_a=one, scale_b=one, out_dtype=bf16, use_fast_accum=fast, out=out[at]
        )

    return call


def _int4(shape: Shape, bench: Bench, copies: int) -> Any:
    m, n, k = size(shape, "m"), size(shape, "n"), size(shape, "k")
    torch = bench.torch
    a = bench.random(copies, (m, k), "bfloat16")
    scales = bench.random(copies, (k // GROUP, n, 2), "bfloat16")
    weight = bench.random(1, (n, k // 2), "uint8")[0]
    if bench.device.kind == "cpu":
        nibbles = torch.stack((weight & 15, weight >> 4), dim=-1).view(n, k)
        packed = torch._convert_weight_to_int4pack_for_cpu(nibbles.to(torch.int32), 1)
    else:
        packed = torch._convert_weight_to_int4pack(weight, INNER_K_TILES)
    # Packing is slow: one weight is packed, and copied to as many places as keep the cache cold.
    b = [packed.clone() for _ in range(copies)]
    cpu = bench.device.kind == "cpu"
    mm = torch._weight_int4pack_mm_for_cpu if cpu else torch._weight_int4pack_mm
    return lambda i: mm(a[i % copies], b[i % copies], GROUP, scales[i % copies])


_NAMES = dict.fromkeys(("torch.mm", *KERNELS.values()), always)
GEMM = Family("gemm", ("m", "n", "k"), _NAMES, legal, work, prepare)
PEAK = Family("matmul_peak", ("m", "n", "k"), _NAMES, legal, work, prepare)
"""A few large GEMMs whose best rate is a dtype's measured peak."""
