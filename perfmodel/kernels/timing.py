"""Operators in, seconds out: the roof of a device under its calibration.

This is the one interface between work and time. A better model of a family replaces the body of
`DeviceModel.time` for that family; what calls it sees `KernelTime` alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.kernels.calibration import Calibration
from perfmodel.kernels.calibration_file import LoadedSet, kernels_of, measured_nearest
from perfmodel.kernels.choice import Choice, transfer_widens
from perfmodel.kernels.exchange_time import exchange_time, of_another_machine
from perfmodel.kernels.flash import Flash
from perfmodel.kernels.flash_time import flash_time
from perfmodel.kernels.forms.base import Chip, Shapes
from perfmodel.kernels.forms.gemm_stack import block_kernel
from perfmodel.kernels.kernel_time import KernelTime, latency
from perfmodel.kernels.network import Network
from perfmodel.kernels.requests import Request, flat_shapes, request_of, variant
from perfmodel.kernels.widening import Ends, Parts, bounded, is_wide, own_ends
from perfmodel.operators.quantity import Array, Quantity, as_quantity, maximum
from perfmodel.operators.record import Attention, Collective, Elementwise, Operator
from perfmodel.specs.hardware import Hardware
from perfmodel.units import MICROSECOND


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """One device, its calibration (None: the bare roof), and how kernels are launched."""

    hardware: Hardware
    calibration: Calibration | None
    execution: Literal["graph", "eager"] = "graph"
    choice: Choice | None = None
    """Calibrated sets that price the families they cover; the shares price the rest."""
    attention: Flash | None = None
    """A FlashAttention by name; None: the kernel that was measured, or a fused one's shares."""
    launch_us: float | None = None
    """What a launch outside a graph adds beyond one inside; None: the calibration's."""
    eager_where: Quantity = 0
    """1 where kernels are launched one by one although the execution is ``graph``."""
    gpus_per_node: int | None = None
    """As of `Network`."""

    @property
    def label(self) -> str:
        """What an output says of the numbers' origin."""
        if self.calibration is None:
            return "datasheet roof"
        return self.calibration.origin if self.choice is None else self.choice.label

    def peak(self, arithmetic: str) -> float:
        """Dense peak in FLOP/s of a multiply-add that the device has.

        Raises:
            InputError: the profile has no such peak.
        """
        peak = self.hardware.peak(arithmetic)
        if peak is None:
            raise InputError(f"{self.hardware.name}: no peak for {arithmetic} in its profile")
        return peak

    def issue_s(self, execution: Literal["graph", "eager"]) -> float:
        """Seconds from launch to launch of kernels without work, in a graph or one by one."""
        if self.calibration is None:
            return 0.0
        own = None if self.choice is None else self.choice.calibrated.launch_s(execution)
        if own is not None:
            return own
        launch = self.calibration.launch
        return MICROSECOND * (launch.graph_us if execution == "graph" else launch.eager_us)

    def launched(self, eager_where: Quantity) -> DeviceModel:
        """The same device where some settings launch their kernels one by one."""
        return replace(self, eager_where=eager_where)

    @property
    def _one_by_one(self) -> Quantity:
        return 1 if self.execution == "eager" else self.eager_where

    def _extra_s(self, measured: bool) -> float:
        """What launching a kernel by itself adds to it; a measured time holds a graph's launch."""
        if self.launch_us is not None and self.calibration is not None:
            return MICROSECOND * self.launch_us
        return self.issue_s("eager") - (0.0 if measured else self.issue_s("graph"))

    @property
    def launch_s(self) -> Quantity:
        """Seconds that a launch adds to each kernel of assumed shares."""
        return self.issue_s("graph") + self._one_by_one * self._extra_s(measured=False)

    def time(self, operator: Operator) -> KernelTime:
        """Seconds of one execution of ``operator``; arrays broadcast."""
        if self.attention is not None and isinstance(operator, Attention):
            return flash_time(self, operator, self.attention)
        return self.own_kernel(operator)

    def own_kernel(self, operator: Operator) -> KernelTime:
        """`time` whatever attention kernel was asked for by name."""
        measured = self._calibrated(operator)
        if measured is not None:
            return measured
        return self.unmeasured(operator)

    def unmeasured(self, operator: Operator) -> KernelTime:
        """`time` as if no kernel had been measured: the roof under the assumed shares."""
        if isinstance(operator, Collective):
            return exchange_time(self, operator)
        compute = self.compute_s(operator)
        memory = operator.bytes / self.hardware.memory_bandwidth
        roof = maximum(compute, memory)
        starts = _starts(operator)
        if self.calibration is None:
            return self.combine(compute, memory, 0.0, roof, 1.0, starts)
        share = self.calibration.families.of(operator)
        ends = (compute / share.compute, memory / share.memory)
        return self.combine(*ends, 0.0, roof, share.spread, starts)

    def compute_s(self, operator: Operator) -> Quantity:
        """Arithmetic at the peak; what counts no FLOPs needs none, whatever the chip multiplies."""
        if isinstance(operator, Collective | Elementwise):
            return 0.0
        return operator.flops / self.peak(operator.arithmetic)

    def chip(self, arithmetic: str, link: float = 0.0) -> Chip:
        """The device's constants for forms that compute in ``arithmetic``."""
        peak = 1.0 if arithmetic == "none" else self.peak(arithmetic)
        return Chip.of(self.hardware, peak, link)

    def _calibrated(self, operator: Operator) -> KernelTime | None:
        """The time by a calibrated set, or None where none covers the operator."""
        if self.choice is None or self.calibration is None:
            return None
        sets = self.choice.calibrated.sets
        if isinstance(operator, Elementwise) and operator.part_of == "experts":
            covered = any(name.startswith("experts.") for name in sets)
            return self._inside_another() if covered else None
        request = request_of(operator, sets)
        if request is None:
            return None
        link = 0.0
        if isinstance(operator, Collective):
            link, inside = self.wire_rate(operator.span)
            alone = not inside or operator.ranks < 2
            if alone or of_another_machine(self, operator, sets.get(request.set_name)):
                return None
        flat, shape = flat_shapes(request)
        parts = self._parts(request, flat)
        if not parts:
            return None
        ends = self._predict(request, flat, parts, link)
        time, low, high = (as_quantity(request.share * end.reshape(shape)) for end in ends)
        widen = request.widen
        if self.choice.origin == "transferred" or not request.corrected:
            widen *= transfer_widens(request.set_name)
        low, high = time * (low / time) ** widen, time * (high / time) ** widen
        low, high = self._believable(operator, parts, flat, time, (low, high))
        return self._measured_time(operator, time, low, high, link)

    def _parts(self, request: Request, flat: Shapes) -> Parts:
        """Which set prices which of the shapes; nothing where one of them has none."""
        assert self.choice is not None  # noqa: S101  (the caller looked)
        sets = self.choice.calibrated.sets
        names = self._set_names(request, flat)
        parts: Parts = []
        for name in np.unique(names):
            found = sets.get(name)
            if found is None or not self._computes(found):
                return []
            parts.append((names == name, found))
        return parts

    def _set_names(self, request: Request, flat: Shapes) -> NDArray[np.str_]:
        """The set of each shape's kernel, where a format has several kernels."""
        assert self.choice is not None  # noqa: S101
        sets = self.choice.calibrated.sets
        if request.set_name == "gemm.fp8_block" and request.set_name not in sets:
            kernels = block_kernel(self.hardware, flat)
            return np.asarray([f"{request.set_name}.{kernel}" for kernel in kernels])
        if request.set_name.startswith("experts."):
            own = kernels_of(request.set_name, sets)
            chips = {name: self.chip(sets[name].arithmetic) for name in own
                     if self._computes(sets[name])}  # fmt: skip
            if len(chips) > 1:
                return measured_nearest(flat, {n: (sets[n], chip) for n, chip in chips.items()})
        return np.full(len(next(iter(flat.values()))), request.set_name)

    def _computes(self, found: LoadedSet) -> bool:
        return found.arithmetic == "none" or self.hardware.peak(found.arithmetic) is not None

    def _predict(
        self,
        request: Request,
        flat: Shapes,
        parts: Parts,
        link: float,
    ) -> tuple[Array, Array, Array]:
        time, low, high = (np.empty(len(parts[0][0])) for _ in range(3))
        for mask, found in parts:
            predicted = found.kernels.predict(
                self.chip(found.arithmetic, link),
                {name: size[mask] for name, size in flat.items()},
                variant(found.kernels.form, request.changes),
                corrected=request.corrected,
            )
            time[mask], low[mask], high[mask] = predicted
        return time, low, high

    def _believable(
        self, operator: Operator, parts: Parts, flat: Shapes, time: Quantity, ends: Ends
    ) -> Ends:
        """The ends, widened no farther than knowing nothing is (`kernels.widening`)."""
        assert self.calibration is not None  # noqa: S101
        spread = self.calibration.spread_of(operator)
        if not is_wide(time, ends, spread):
            return ends
        return bounded(time, ends, own_ends(parts, flat, time), self.unmeasured(operator), spread)

    def _measured_time(
        self, operator: Operator, time: Quantity, low: Quantity, high: Quantity, link: float
    ) -> KernelTime:
        """A set's prediction with the roof beside it; an eager launch comes on top."""
        assert self.choice is not None  # noqa: S101
        starts, alone = _starts(operator), self._extra_s(measured=True)
        extra = starts * self._one_by_one * alone
        compute = self.compute_s(operator)
        memory = operator.bytes / self.hardware.memory_bandwidth
        network = operator.wire_bytes / link if link else 0.0
        roof = maximum(maximum(compute, memory), network)
        time = maximum(time, roof) + extra
        return KernelTime(
            time_s=time,
            low_s=maximum(low + extra, roof),
            high_s=maximum(high + extra, time),
            compute_s=compute,
            memory_s=memory,
            network_s=network,
            launch_s=extra,
            roof_s=roof,
            source=self.choice.origin,
            latency_s=latency(time, roof),
            launches=starts,
            saves_s=starts * alone,
        )

    def _inside_another(self) -> KernelTime:
        """An operator that a measured kernel does in the same pass."""
        return KernelTime(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, "in experts", launches=0)

    @property
    def network(self) -> Network:
        """The ways between the GPUs."""
        return Network(self.hardware, self.gpus_per_node)

    def wire_rate(self, span: int) -> tuple[float, bool]:
        """Bytes/s per direction between ``span`` GPUs, as `Network.wire_rate`."""
        return self.network.wire_rate(span)

    def combine(
        self,
        compute: Quantity,
        memory: Quantity,
        network: Quantity,
        roof: Quantity,
        spread: float,
        starts: int = 1,
    ) -> KernelTime:
        """The largest of the parts, and the launch."""
        launch = starts * self.launch_s
        time = maximum(maximum(compute, memory), network) + launch
        return KernelTime(
            time_s=time,
            low_s=maximum(time / spread, roof),
            high_s=time * spread,
            compute_s=compute,
            memory_s=memory,
            network_s=network,
            launch_s=launch,
            roof_s=roof,
            source="datasheet roof" if self.calibration is None else self.calibration.origin,
            launches=starts,
            saves_s=starts * self._extra_s(measured=False),
        )


def _starts(operator: Operator) -> int:
    """Launches of an operator: none for a pass that joined its neighbour's kernel."""
    return 0 if isinstance(operator, Elementwise) and operator.part_of == "joined" else 1
