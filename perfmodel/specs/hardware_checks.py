"""Plausibility of a hardware profile: one small check per mistake that datasheets invite.

Every check yields a `Finding` per doubt. The tables hold what generations have in common, from
the vendors' architecture papers; what they don't list isn't checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perfmodel.specs.hardware import Hardware
from perfmodel.specs.hardware_groups import Group
from perfmodel.units import GIB, GIGA, MEGA, TERA

FLOP_PER_CLOCK = {
    "7.0": 1024, "7.5": 1024, "8.0": 2048, "8.6": 1024, "8.9": 1024, "9.0": 4096, "10.0": 8192,
    "10.3": 8192, "12.0": 1024, "12.1": 1024,
    "gfx908": 1024, "gfx90a": 1024, "gfx942": 2048, "gfx950": 4096,
}  # fmt: skip
"""Dense FP16 FLOP per clock and SM or CU. GeForce halves it with FP32 accumulation."""
LACKING = {
    "7.0": "tf32 bf16 fp8 fp6 fp4 int4", "7.5": "tf32 bf16 fp8 fp6 fp4",
    "8.0": "fp8 fp6 fp4", "8.6": "fp8 fp6 fp4", "8.9": "fp6 fp4", "9.0": "fp6 fp4 int4",
    "10.0": "int4", "10.3": "int4", "12.0": "int4", "12.1": "int4",
    "gfx908": "tf32 fp8 fp6 fp4", "gfx90a": "tf32 fp8 fp6 fp4", "gfx942": "fp6 fp4 int4",
    "gfx950": "tf32 int4",
}  # fmt: skip
"""The formats for which a generation has no matrix path."""
NVLINK_GB_S = {1: 80, 2: 150, 3: 300, 4: 450, 5: 900, 6: 1800}
"""Per direction and GPU, all links of a generation together."""
PCIE_GB_S_PER_LANE = {1: 0.25, 2: 0.5, 3: 1, 4: 2, 5: 4, 6: 8, 7: 16, 8: 32}
BANDWIDTH_GB_S = {
    "HBM4": (5000, 30_000), "HBM3e": (2000, 12_000), "HBM3": (1000, 6500), "HBM2e": (500, 4000),
    "HBM2": (250, 1700), "GDDR7": (250, 2500), "GDDR6X": (400, 1200), "GDDR6": (100, 1100),
    "LPDDR": (30, 1000), "DDR5": (30, 1000), "DDR4": (15, 500),
}  # fmt: skip
"""Lowest and highest of a device with that memory."""
FIRST_YEAR = {
    "Volta": 2017, "Turing": 2018, "Ampere": 2020, "Ada": 2022, "Hopper": 2022, "Blackwell": 2024,
    "CDNA1": 2020, "CDNA2": 2021, "CDNA3": 2023, "CDNA4": 2025,
}  # fmt: skip
GENERATION_YEARS = 4
RIDGE = (5.0, 2000.0)
CACHE_RATE = (1.5, 12.0)
"""Rates of last-level caches over their memories', with room around those measured."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A doubt about one field of a profile."""

    check: str
    field: str
    message: str


Check = Callable[[Hardware], Iterator[Finding]]


def check_hardware(hardware: Hardware) -> list[Finding]:
    """Everything that looks implausible in a profile; an empty list is a clean one."""
    return [finding for check in CHECKS for finding in check(hardware)]


def missing_sources(hardware: Hardware) -> Iterator[Finding]:
    """A group of figures must say where they were read."""
    for name in type(hardware).model_fields:
        group = getattr(hardware, name)
        if isinstance(group, Group) and group.source is None:
            yield Finding("missing-sources", f"{name}.source", "say where the figures were read")


def sparse_peaks(hardware: Hardware) -> Iterator[Finding]:
    """A 16-bit peak far above units × FLOP per clock × clock is the 2:4-sparse figure."""
    per_clock = FLOP_PER_CLOCK.get(hardware.compute_capability or "")
    if per_clock is None or hardware.sm_count is None or hardware.clock_hz is None:
        return
    geforce = "GeForce" in (hardware.title or "")
    dense = hardware.sm_count * per_clock * hardware.clock_hz / TERA * (0.5 if geforce else 1)
    for name in ("fp16", "bf16"):
        peak = getattr(hardware.peaks_tflops, name)
        if peak is not None and peak > 1.4 * dense:
            message = f"{peak:g} TFLOP/s, but units × clock give {dense:.0f} dense: sparse?"
            yield Finding("sparse-peaks", f"peaks_tflops.{name}", message)


def lacking_formats(hardware: Hardware) -> Iterator[Finding]:
    """A peak for a format that the generation has no path for would be believed."""
    lacking = LACKING.get(hardware.compute_capability or "", "").split()
    for name in lacking:
        if getattr(hardware.peaks_tflops, name) is not None:
            message = f"{hardware.compute_capability} has no {name} matrix path: leave it out"
            yield Finding("lacking-formats", f"peaks_tflops.{name}", message)


def format_ratios(hardware: Hardware) -> Iterator[Finding]:
    """Halving the bits doubles the rate or, on some chips, leaves it: four times is sparse."""
    peaks = hardware.peaks_tflops
    half = [rate for rate in (peaks.bf16, peaks.fp16) if rate is not None]
    fast = [*half, *([peaks.fp16_accumulate] if peaks.fp16_accumulate else [])]
    byte = [rate for rate in (peaks.fp8, peaks.int8) if rate is not None]
    gpu = hardware.vendor in {"NVIDIA", "AMD"}
    ultra = hardware.compute_capability == "10.3"  # INT8 cut to a fifteenth, FP4 three times FP8
    yield from ratio("fp8", peaks.fp8, max(half, default=None), {2} if gpu else {1, 2})
    if not ultra:
        yield from ratio("int8", peaks.int8, max(fast, default=None), {1, 2})
    yield from ratio("fp6", peaks.fp6, peaks.fp8, {1, 2})
    yield from ratio("fp4", peaks.fp4, max(byte, default=None), {2, 3} if ultra else {2})
    yield from ratio("int4", peaks.int4, peaks.int8, {1, 2})


def ratio(name: str, rate: float | None, base: float | None, usual: set[int]) -> Iterator[Finding]:
    """A finding unless ``rate`` is one of the usual multiples of ``base``, within 6 %."""
    if rate is None or base is None:
        return
    if not any(abs(rate / base / multiple - 1) < 0.06 for multiple in usual):
        expected = " or ".join(str(multiple) for multiple in sorted(usual))
        message = f"{rate / base:.2f} times the next wider format's rate; usual is {expected}"
        yield Finding("format-ratios", f"peaks_tflops.{name}", message)


def precision_order(hardware: Hardware) -> Iterator[Finding]:
    """A wider format is never faster than a narrower one."""
    peaks = hardware.peaks_tflops
    half = max((rate for rate in (peaks.fp16, peaks.bf16) if rate is not None), default=None)
    pairs = (("fp64", peaks.fp32), ("fp32", half), ("tf32", half))
    for name, narrower in pairs:
        rate = getattr(peaks, name)
        if rate is not None and narrower is not None and rate > narrower:
            message = f"{rate:g} TFLOP/s is above the {narrower:g} of a narrower format"
            yield Finding("precision-order", f"peaks_tflops.{name}", message)


def bidirectional_link(hardware: Hardware) -> Iterator[Finding]:
    """Vendors print NVLink's two directions together."""
    link = hardware.link
    generation = re.match(r"NVLink(\d)", link.kind) if link else None
    highest = NVLINK_GB_S.get(int(generation[1])) if generation else None
    if link and highest and link.gb_s_per_direction > 1.05 * highest:
        message = (
            f"{link.gb_s_per_direction:g} GB/s, but {link.kind} has {highest} per direction: "
            "both directions together?"
        )
        yield Finding("bidirectional-link", "link.gb_s_per_direction", message)


def link_pairs(hardware: Hardware) -> Iterator[Finding]:
    """One pair never gets more than a device has, and a bridge joins few cards."""
    link = hardware.link
    if link and link.gb_s_per_pair and link.gb_s_per_pair > link.gb_s_per_direction:
        message = f"{link.gb_s_per_pair:g} GB/s is above the device's {link.gb_s_per_direction:g}"
        yield Finding("link-pairs", "link.gb_s_per_pair", message)
    if link and "bridge" in link.kind and link.domain_gpus > 4:
        message = f"a bridge joins 2 or 4 cards, not {link.domain_gpus}"
        yield Finding("link-pairs", "link.domain_gpus", message)


def pcie_rate(hardware: Hardware) -> Iterator[Finding]:
    """The rate per direction follows from generation and lanes."""
    pcie = hardware.pcie
    if pcie is None:
        return
    nominal = PCIE_GB_S_PER_LANE[pcie.generation] * pcie.lanes
    if not 0.8 * nominal <= pcie.gb_s_per_direction <= 1.02 * nominal:
        message = (
            f"{pcie.gb_s_per_direction:g} GB/s, but Gen{pcie.generation} x{pcie.lanes} has "
            f"{nominal:g} per direction"
        )
        yield Finding("pcie-rate", "pcie.gb_s_per_direction", message)


def network_rate(hardware: Hardware) -> Iterator[Finding]:
    """Adapters are sold in Gbit/s, eight of which are a GB/s, and hang on PCIe."""
    rate, pcie = hardware.network_bandwidth, hardware.pcie_bandwidth
    if rate is not None and pcie is not None and rate > 2 * pcie:
        message = f"{rate / GIGA:g} GB/s is above twice PCIe's {pcie / GIGA:g}: Gbit/s?"
        yield Finding("network-rate", "network.gb_s_per_gpu", message)


def usable_memory(hardware: Hardware) -> Iterator[Finding]:
    """What a program sees is a little less than what is installed, and counted in GiB."""
    memory = hardware.memory
    if memory.usable_gib is None:
        return
    # Some vendors' gigabytes are GiB: 1.0737e9 bytes.
    most = memory.capacity_gb * 1.075 * GIGA / GIB
    if memory.usable_gib > most:
        message = f"{memory.usable_gib:g} GiB are more than the {memory.capacity_gb:g} GB installed"
    elif memory.usable_gib == memory.capacity_gb:
        message = f"{memory.usable_gib:g} GiB repeats the capacity in GB: ask the driver"
    elif memory.usable_gib < 0.6 * most:
        message = f"only {memory.usable_gib:g} GiB of {memory.capacity_gb:g} GB: bytes or MB mixed?"
    else:
        return
    yield Finding("usable-memory", "memory.usable_gib", message)


def memory_type(hardware: Hardware) -> Iterator[Finding]:
    """A kind of memory has a range of bandwidths."""
    kind, rate = hardware.memory.type or "", hardware.memory.bandwidth_gb_s
    known = next((name for name in BANDWIDTH_GB_S if kind.startswith(name)), None)
    if known is None:
        return
    low, high = BANDWIDTH_GB_S[known]
    if not low <= rate <= high:
        message = f"{rate:g} GB/s; devices with {known} have {low} to {high}"
        yield Finding("memory-type", "memory.bandwidth_gb_s", message)


def ridge_point(hardware: Hardware) -> Iterator[Finding]:
    """16-bit FLOP per byte of memory traffic lies between a CPU's and a cut-down GPU's."""
    peak = hardware.peak("bf16") or hardware.peak("fp16")
    if peak is None:
        return
    ridge = peak / hardware.memory_bandwidth
    if not RIDGE[0] <= ridge <= RIDGE[1]:
        message = f"{ridge:.3g} FLOP per byte; known devices have {RIDGE[0]:g} to {RIDGE[1]:g}"
        yield Finding("ridge-point", "memory.bandwidth_gb_s", message)


def cache_size(hardware: Hardware) -> Iterator[Finding]:
    """The last-level cache is a small part of memory: KB or bytes given as MB stand out."""
    cache = hardware.l2_bytes
    if cache is not None and cache > 0.05 * hardware.capacity_bytes:
        message = f"{cache / MEGA:g} MB is over 5 % of the memory: KB given as MB?"
        yield Finding("cache-size", "memory.l2_mb", message)


def cache_rate(hardware: Hardware) -> Iterator[Finding]:
    """The last-level cache is faster than the memory behind it, by less than a first-level one."""
    rate = hardware.l2_bandwidth
    if rate is None:
        return
    ratio = rate / hardware.memory_bandwidth
    if not CACHE_RATE[0] <= ratio <= CACHE_RATE[1]:
        message = f"{ratio:.3g} times the memory's rate; those measured have 2.0 to 6.1"
        yield Finding("cache-rate", "memory.l2_gb_s", message)


def price_order(hardware: Hardware) -> Iterator[Finding]:
    """Low is low, and a price has a date."""
    price = hardware.price
    if price and price.usd_per_hour_low > price.usd_per_hour_high:
        message = f"{price.usd_per_hour_low:g} is above the high of {price.usd_per_hour_high:g}"
        yield Finding("price-order", "price.usd_per_hour_low", message)
    if price and price.date is None:
        yield Finding("price-order", "price.date", "prices fall: say when it was read")


def release_year(hardware: Hardware) -> Iterator[Finding]:
    """A part appears within a few years of its generation."""
    words = re.findall(r"\w+", hardware.architecture or "")
    first = next((FIRST_YEAR[word] for word in words if word in FIRST_YEAR), None)
    if first is None or hardware.year is None:
        return
    if not first <= hardware.year <= first + GENERATION_YEARS:
        message = f"{hardware.year}, but {hardware.architecture} came in {first}"
        yield Finding("release-year", "year", message)


CHECKS: tuple[Check, ...] = (
    missing_sources,
    sparse_peaks,
    lacking_formats,
    format_ratios,
    precision_order,
    bidirectional_link,
    link_pairs,
    pcie_rate,
    network_rate,
    usable_memory,
    memory_type,
    ridge_point,
    cache_size,
    cache_rate,
    price_order,
    release_year,
)
