"""What widening quantised values costs where no measured kernel tells: a kernel's own unpacking.

Two cases, each with its source; a measured set (``gemm.int4_wo``, ``experts.int4_wo``,
``attention_decode.fp8``) has the cost in it and is left alone.

* Products of weights that are widened on the way, priced by the calibrated 16-bit product with
  fewer bytes. With few tokens the bytes decide. With many the arithmetic does, and a kernel that
  widens may have to use an older generation's instructions (`SLOWER`).
* Decode attention over a cache of fewer than 8 bits: values are unpacked at a limited rate
  (`UNPACKED_PER_CLOCK`). Caches of 8 bits are priced as fp8 ones, whose measured times contain it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from perfmodel.inference.plan import Plan
from perfmodel.kernels.kernel_time import KernelTime
from perfmodel.kernels.requests import WIDE, weight_only_set
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.quantity import Quantity, maximum, where
from perfmodel.operators.record import Attention, Gemm, Operator
from perfmodel.specs.cache_formats import CacheFormat, cache_format
from perfmodel.specs.hardware import Hardware

UNPACKED_PER_CLOCK = 16.0
"""Values of fewer than 8 bits that an SM widens per clock: engines' kernels fitted in
`perfmodel/specs/engines` unpack 11 to 20 four-bit weights. QServe (arXiv 2405.04532) finds the same
limit in 4-bit caches on A100, and kernels that avoid it: the interval begins without it."""
LIMIT_POWER = 3.0
"""As for an engine's limits: time³ = work³ + limit³."""


@dataclass(frozen=True, slots=True)
class Slower:
    """How many times longer the arithmetic takes than a 16-bit product's."""

    factor: float
    most: float
    """The upper end; the lower one is none."""
    source: str


AS_FAST = Slower(1.0, 1.0, "as fast as the 16-bit product (Marlin, arXiv 2408.11743)")
MACHETE = Slower(1.0, 1.0, "as fast as the 16-bit product (Machete, Neural Magic 2024)")
HOPPER = Slower(1.5, 1.9, "vLLM's Marlin experts against 16-bit ones on H100 and H200")
BLACKWELL = Slower(3.5, 4.5, "vLLM's Marlin experts against 16-bit ones on B200")
"""Measured with 256 and more rows per expert, in int4 and mxfp4, median of 14 and 8 calls: 1.4 and
1.5 times on H100, 1.6 and 1.7 on H200, 3.4 and 4.4 on B200; 0.7 and 0.8 on L40S, whose instructions
Marlin uses (`tests/calibrate/test_widening.py` repeats it)."""


def slower(hardware: Hardware, weight_format: str) -> Slower:
    """What widening ``weight_format`` does to the arithmetic of a product on a chip."""
    generation = (hardware.compute_capability or "").split(".", maxsplit=1)[0]
    if generation == "10":
        return BLACKWELL
    if generation == "9":
        return MACHETE if weight_format.startswith("int") else HOPPER
    return AS_FAST


def stands_in(device: DeviceModel, weight_format: str) -> bool:
    """Whether a calibrated 16-bit product prices that of weights in ``weight_format``."""
    if device.choice is None or weight_format in WIDE:
        return False
    return f"gemm.{weight_only_set(weight_format)}" not in device.choice.calibrated.sets


def dequantised(
    device: DeviceModel,
    operator: Operator,
    base: KernelTime,
    written_out: int | None,
    clocks: float,
) -> KernelTime:
    """``base``, the time of ``operator``, with the cost of widening that it doesn't contain.

    Args:
        device: what priced the operator.
        operator: any; products and decode attention are concerned.
        base: its time.
        written_out: rows from which an engine writes weights out in 16 bits before the product; the
            product is then a 16-bit one, and the engine's kernels price the writing.
        clocks: clocks per second of all SMs together; 0 without SMs.
    """
    if isinstance(operator, Gemm):
        return _product(device, operator, base, written_out)
    if isinstance(operator, Attention) and operator.phase == "decode":
        return _attention(operator, base, UNPACKED_PER_CLOCK * clocks)
    return base


def _product(
    device: DeviceModel, operator: Gemm, base: KernelTime, written_out: int | None
) -> KernelTime:
    widened = operator.arithmetic in {"bf16", "fp16"}
    if not widened or not stands_in(device, operator.weight_format):
        return base
    cost = slower(device.hardware, operator.weight_format)
    if cost.factor == 1.0:
        return base
    inside = 1.0 if written_out is None else where(operator.m < written_out, 1.0, 0.0)
    before = maximum(maximum(base.compute_s, base.memory_s), 1e-30)

    def growth(factor: float) -> Quantity:
        compute = base.compute_s * (1 + (factor - 1) * inside)
        return maximum(compute, base.memory_s) / before

    work = base.time_s - base.launch_s
    time = work * growth(cost.factor) + base.launch_s
    most = work * growth(cost.most) + base.launch_s
    return replace(
        base,
        time_s=time,
        high_s=base.high_s * most / maximum(base.time_s, 1e-30),
        compute_s=base.compute_s * (1 + (cost.factor - 1) * inside),
    )


def narrow_values(operator: Attention, stored: CacheFormat) -> Quantity:
    """Cached values of fewer than 8 bits that the operator reads; MLA's latent counts once."""
    keys = operator.kv_heads * operator.qk_dim if stored.keys.bits < 8 else 0
    once = operator.latent and operator.kv_heads == 1
    values = operator.kv_heads * operator.value_dim if stored.values.bits < 8 and not once else 0
    return (keys + values) * operator.keys * operator.sequences


def _attention(operator: Attention, base: KernelTime, rate: float) -> KernelTime:
    stored = cache_format(operator.cache_format)
    if stored.narrow_bits >= 8 or not rate:
        return base
    limit = narrow_values(operator, stored) / rate
    work = base.time_s - base.launch_s
    joined = (work**LIMIT_POWER + limit**LIMIT_POWER) ** (1 / LIMIT_POWER) + base.launch_s
    return replace(
        base,
        time_s=joined,
        high_s=joined * (base.high_s / maximum(base.time_s, 1e-30)),
        compute_s=maximum(base.compute_s, limit),
    )


def dequantise_notes(plan: Plan, device: DeviceModel, clocks: float) -> Iterator[str]:
    """What the costs of widening rest on, where no measured kernel contains them."""
    formats = plan.formats
    products = (formats.product("linear"), *formats.schemes.values())
    widened = dict.fromkeys(
        p.stored.name
        for p in products
        if p.stored.bits < 16 and p.arithmetic in {"bf16", "fp16"}
        and stands_in(device, p.stored.name)
    )  # fmt: skip
    costs: dict[Slower, list[str]] = {}
    for name in widened:
        costs.setdefault(slower(device.hardware, name), []).append(name)
    for cost, names in costs.items():
        what = "" if cost.factor == 1.0 else f"{cost.factor:g} times the arithmetic's time: "
        yield f"many tokens through {', '.join(names)} weights: assumed {what}{cost.source}"
    if any(f.name.startswith(("int8", "q8")) for f in (formats.cache.keys, formats.cache.values)):
        yield "attention over 8-bit whole numbers: assumed as fast as over fp8"
    if formats.cache.narrow_bits < 8 and clocks:
        yield (
            f"decode attention unpacks at most {UNPACKED_PER_CLOCK:g} cached values below 8 bits "
            "per clock and SM: assumed, as engines' kernels do 4-bit weights"
        )
