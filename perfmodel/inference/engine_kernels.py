"""An engine's kernels: the calibrated time of an operator, changed by the engine's facts.

`DeviceModel` knows the device and its library; this module knows how an engine's kernels differ
from it. Both answer ``time(operator)``. The work counted stays as it is: what a kernel executes
beyond it (scores in fp32, weights written out before a product) is time alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from perfmodel.inference.dequantise import dequantised
from perfmodel.kernels.kernel_time import KernelTime
from perfmodel.kernels.timing import DeviceModel
from perfmodel.kernels.unfused import unfused_time
from perfmodel.operators.quantity import Quantity, maximum, minimum, where
from perfmodel.operators.record import (
    Attention,
    Collective,
    Gemm,
    GroupedGemm,
    Operator,
)
from perfmodel.specs.engine_timing import Kernels
from perfmodel.specs.hardware import Hardware
from perfmodel.units import BITS_PER_BYTE, MICROSECOND, TERA

LIMIT_POWER = 3.0
"""A kernel near two limits is slower than either: time³ = work³ + limit³."""
EXPANDED_BYTES = 4.0
"""Bytes per weight that is written out in 16 bits and read again."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What an operator's time under an engine is made of; the engine's factors are not in it."""

    family: str
    """``gemm``, ``attention``, ``collective``, ``other``."""
    bits: float
    """Bits per weight of a product, else 0."""
    work_s: Quantity
    """The calibrated time without its launch."""
    compute_s: Quantity
    memory_s: Quantity
    network_s: Quantity
    launch_s: Quantity
    weight_clocks_s: Quantity
    """Seconds at one weight per clock and SM; 0 without SMs."""
    flop_clocks_s: Quantity
    """Seconds at one FLOP per clock and SM (decode attention); 0 without SMs."""
    expand_s: Quantity
    """Writing weights out in 16 bits before the product, at the rate of the product's reads."""


def adjusted(parts: Parts, kernels: Kernels) -> tuple[Quantity, Quantity, Quantity, Quantity]:
    """Work, compute, memory and network seconds of ``parts`` under an engine's factors.

    The calibrated work keeps its ratio to the larger of its parts, whatever form made it.
    """
    p = parts
    if p.family == "collective":
        extra = MICROSECOND * kernels.collective_us
        work = kernels.collective * p.work_s + extra
        return work, p.compute_s, p.memory_s, kernels.collective * p.network_s + extra
    if p.family == "other":
        return p.work_s, p.compute_s, p.memory_s, p.network_s
    if p.family == "attention":
        limit = _limit(p.flop_clocks_s, kernels.decode_flops_per_clock)
        c = m = kernels.attention
    else:
        scale = kernels.gemm_of(p.bits)
        limit = _limit(p.weight_clocks_s, scale.weights_per_clock)
        c, m = scale.compute, scale.memory
    compute, memory = c * p.compute_s, m * p.memory_s
    larger = maximum(maximum(p.compute_s, p.memory_s), 1e-30)
    work = p.work_s * maximum(compute, memory) / larger
    work = (work**LIMIT_POWER + limit**LIMIT_POWER) ** (1 / LIMIT_POWER) + m * p.expand_s
    return work, maximum(compute, limit), memory + m * p.expand_s, p.network_s


def _limit(at_one: Quantity, rate: float | None) -> Quantity:
    return at_one / rate if rate else 0.0


def clocks(hardware: Hardware) -> float:
    """Clocks per second of all SMs together; 0 where the profile doesn't state both.

    Only chips with a warp-like unit per SM have such limits: one with fewer than eight units
    (matrix engines, cores of a TPU) is not meant.
    """
    compute = hardware.compute
    if compute is None or compute.sm_count is None or compute.boost_mhz is None:
        return 0.0
    return compute.sm_count * compute.boost_mhz * 1e6 if compute.sm_count >= 8 else 0.0


def _weights(operator: Operator) -> Quantity:
    if isinstance(operator, Gemm):
        return operator.batch * operator.n * operator.k
    if isinstance(operator, GroupedGemm):
        return operator.active_experts * operator.n * operator.k
    return 0


def _bits(operator: Operator, weights: Quantity) -> float:
    """Bits of a stored weight; the same in each element of an array."""
    share = np.asarray(BITS_PER_BYTE * operator.weight_bytes / maximum(weights, 1e-30))
    return float(share.flat[0])


@dataclass(frozen=True, slots=True)
class EngineDevice:
    """A calibrated device that runs an engine's kernels."""

    device: DeviceModel
    kernels: Kernels

    def base(self, operator: Operator) -> KernelTime:
        """The device's time, with the widening of quantised values that nothing measured."""
        rows = self.kernels.dequantise_rows
        rate = clocks(self.device.hardware)
        own = self.device.time(operator)
        if isinstance(operator, Attention) and not operator.fused and self._fuses:
            own = unfused_time(self.device, operator, own)
        return dequantised(self.device, operator, own, rows, rate)

    @property
    def _fuses(self) -> bool:
        """Whether unfused attention was asked for: an engine's own is in its fitted factors."""
        return self.kernels.attention_scores == "fused"

    def time(self, operator: Operator) -> KernelTime:
        """Seconds of one execution; arrays broadcast."""
        base = self.base(operator)
        work, compute, memory, network = adjusted(self.parts(operator, base), self.kernels)
        if isinstance(operator, Collective):
            own = self._own_all_reduce(operator)
            work, network = minimum(work, own), minimum(network, own)
        roof = self.roof(operator, base)
        time = maximum(work, roof) + base.launch_s
        ratio = maximum(base.time_s, 1e-30)
        return replace(
            base,
            time_s=time,
            low_s=maximum(time * (base.low_s / ratio), roof),
            high_s=time * (base.high_s / ratio),
            compute_s=compute,
            memory_s=memory,
            network_s=network,
            roof_s=roof,
        )

    def _own_all_reduce(self, operator: Collective) -> Quantity:
        """Seconds of the engine's own all-reduce; infinite where it has none for the message."""
        own, hardware = self.kernels.all_reduce, self.device.hardware
        inside = hardware.link is not None and operator.span <= hardware.link_domain
        if own is None or operator.kind != "all_reduce" or not inside or operator.ranks < 2:
            return np.inf
        start = MICROSECOND * (own.start_us + own.rank_us * (operator.ranks - 2))
        seconds = start + operator.wire_bytes / (own.link_share * hardware.link_bandwidth)
        return where(operator.message_bytes <= own.most_bytes, seconds, np.inf)

    def launched(self, eager_where: Quantity) -> EngineDevice:
        """The same device where some settings launch their kernels one by one."""
        return EngineDevice(self.device.launched(eager_where), self.kernels)

    def issue_s(self, execution: Literal["graph", "eager"]) -> float:
        """Seconds from launch to launch of kernels without work."""
        return self.device.issue_s(execution)

    def _accumulate(self, operator: Operator) -> float:
        """The listed peak over the peak with FP16 accumulation, where the engine uses it."""
        fast = self.device.hardware.peaks_tflops.fp16_accumulate
        used = self.kernels.fp16_accumulate and operator.arithmetic in {"fp16", "bf16"}
        if fast is None or not used:
            return 1.0
        return self.device.peak(operator.arithmetic) / (TERA * fast)

    def roof(self, operator: Operator, base: KernelTime) -> Quantity:
        """Seconds at the datasheet's peaks, those of FP16 accumulation where it is used."""
        ratio = self._accumulate(operator)
        if ratio == 1.0 or isinstance(operator, Collective):
            return base.roof_s
        compute = ratio * operator.flops / self.device.peak(operator.arithmetic)
        return maximum(compute, operator.bytes / self.device.hardware.memory_bandwidth)

    def parts(self, operator: Operator, base: KernelTime) -> Parts:
        """``base`` taken apart, with the engine's facts (not its factors) worked in."""
        parts = Parts(
            family="other",
            bits=0.0,
            work_s=base.time_s - base.launch_s,
            compute_s=base.compute_s,
            memory_s=base.memory_s,
            network_s=base.network_s,
            launch_s=base.launch_s,
            weight_clocks_s=0.0,
            flop_clocks_s=0.0,
            expand_s=0.0,
        )
        if isinstance(operator, Collective):
            return replace(parts, family="collective")
        if isinstance(operator, Attention):
            return self._attention(operator, parts)
        if isinstance(operator, Gemm | GroupedGemm):
            return self._gemm(operator, parts)
        return parts

    def _gemm(self, operator: Gemm | GroupedGemm, parts: Parts) -> Parts:
        weights = _weights(operator)
        bits = _bits(operator, weights)
        rate = clocks(self.device.hardware)
        ratio = self._accumulate(operator)
        compute = ratio * parts.compute_s
        larger = maximum(maximum(parts.compute_s, parts.memory_s), 1e-30)
        return replace(
            parts,
            family="gemm",
            bits=bits,
            compute_s=compute,
            work_s=parts.work_s * maximum(compute, parts.memory_s) / larger,
            weight_clocks_s=weights / rate if rate else 0.0,
            expand_s=self._expand(operator, weights, bits, parts),
        )

    def _expand(
        self, operator: Gemm | GroupedGemm, weights: Quantity, bits: float, parts: Parts
    ) -> Quantity:
        rows = self.kernels.dequantise_rows
        if rows is None or bits >= 16 or isinstance(operator, GroupedGemm):
            return 0.0
        share = EXPANDED_BYTES * weights / maximum(operator.bytes, 1e-30)
        return where(operator.m >= rows, share * parts.memory_s, 0.0)

    def _attention(self, operator: Attention, parts: Parts) -> Parts:
        k = self.kernels
        square = operator.queries * operator.keys
        compute, memory = parts.compute_s, parts.memory_s
        if not k.causal_skip and operator.phase == "prefill":
            compute = compute * square / maximum(operator.pairs, 1e-30)
        if not operator.fused and k.score_bytes == 4:
            scores = 8.0 * operator.heads * square * operator.sequences
            memory = memory * (1 + scores / maximum(operator.bytes, 1e-30))
        larger = maximum(maximum(parts.compute_s, parts.memory_s), 1e-30)
        # An absorbed MLA reads one latent for all heads, on tensor cores: no such limit there.
        limited = operator.phase == "decode" and not operator.latent
        rate = clocks(self.device.hardware) if limited else 0.0
        # Such kernels take one query; several go through a prefill's, on tensor cores: no faster.
        each = operator.flops / maximum(operator.queries, 1)
        return replace(
            parts,
            family="attention",
            compute_s=compute,
            memory_s=memory,
            work_s=parts.work_s * maximum(compute, memory) / larger,
            flop_clocks_s=each / rate if rate else 0.0,
        )
