"""An NVIDIA GPU as a device: torch runs it, NVML (pynvml) tells its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from calibrate.state import State
from calibrate.timing import Sample
from perfmodel.units import MIB

FALLBACK_CACHE = 64 * MIB
FLUSH_FACTOR = 2
LAUNCH_S = 2e-5
"""Host time per call that the queue is kept ahead by; generous, eager torch needs 3 to 10 µs."""
MAX_AHEAD_S = 0.02
SPIN_HZ = 2e9
"""Cycles per second of torch's spinning kernel, about a GPU's clock."""
EVENT_RESOLUTION_S = 5e-7
"""CUDA's documentation of cudaEventElapsedTime."""
REASONS = {
    "SwPowerCap": "power_cap",
    "SwThermalSlowdown": "sw_thermal",
    "HwSlowdown": "hw_slowdown",
    "HwThermalSlowdown": "hw_thermal",
    "HwPowerBrakeSlowdown": "power_brake",
    "SyncBoost": "sync_boost",
    "ApplicationsClocksSetting": "fixed_clocks",
}
"""NVML's names of what lowers the clocks; idling isn't one."""
NEEDS = {"bfloat16": (8, 0), "fp8": (8, 9), "int8": (7, 5), "int4_wo": (8, 0)}
"""Compute capability from which torch has a kernel for a dtype."""


class CudaDevice:
    """One GPU of this machine, by CUDA's index."""

    kind: Literal["cuda"] = "cuda"

    def __init__(self, index: int) -> None:
        import torch  # noqa: PLC0415

        self._torch = torch
        self.target = f"cuda:{index}"
        torch.cuda.set_device(index)
        about = torch.cuda.get_device_properties(index)
        self.name = str(about.name)
        self.units = int(about.multi_processor_count)
        self.total_bytes = int(about.total_memory)
        self.cache_bytes = int(getattr(about, "L2_cache_size", 0)) or FALLBACK_CACHE
        self._capability = (int(about.major), int(about.minor))
        self._nvml = Nvml(str(getattr(about, "uuid", "")), index)
        self.software = (
            f"torch {torch.__version__}, CUDA {torch.version.cuda}, driver {self._nvml.driver}, "
            f"sm_{about.major}{about.minor}"
        )
        self._flush: Any = None

    def free_bytes(self) -> int:
        """What the driver says is free."""
        return int(self._torch.cuda.mem_get_info(self.target)[0])

    def state(self) -> State:
        """What NVML reads now."""
        return self._nvml.state()

    def synchronize(self) -> None:
        """Wait for all streams."""
        self._torch.cuda.synchronize(self.target)

    def timer(self, call: Any, *, host: bool, graph: bool, flush: bool) -> Any:
        """A graph's replays by preference, else events; the host's clock when its time counts."""
        before = self._evict if flush else None
        if host:
            return HostTimer(call, self.synchronize, before)
        return CudaTimer(self._torch, call, graph=graph, before=before)

    def _evict(self) -> None:
        if self._flush is None:
            size = FLUSH_FACTOR * self.cache_bytes
            self._flush = self._torch.empty(size, dtype=self._torch.uint8, device=self.target)
        self._flush.fill_(1)

    def offers(self, dtype: str) -> bool:
        """Whether the compute capability has the dtype's instructions."""
        return self._capability >= NEEDS.get(dtype, (0, 0))

    def release(self) -> None:
        """Empty torch's cache, so that the next case's memory is what is stated."""
        self._torch.cuda.empty_cache()


class CudaTimer:
    """Times calls by a pair of events around them, replayed from a graph where that works."""

    resolution_s = EVENT_RESOLUTION_S

    def __init__(
        self, torch: Any, call: Callable[[int], Any], *, graph: bool, before: Any = None
    ) -> None:
        self._torch, self._call, self._before = torch, call, before
        self._wants_graph, self._graph = graph, None
        self._repeats, self._next = 1, 0
        self.method = "events"

    def prepare(self, repeats: int) -> None:
        """Set the calls per sample; captures them when a graph is wanted and several are timed."""
        self._repeats, self._graph, self.method = repeats, None, "events"
        # While warming up (one call) a graph would only hide lazy initialisation.
        if self._wants_graph and self._next > 1:
            self._graph = self._capture()
            self.method = "events" if self._graph is None else "graph"

    def _capture(self) -> Any:
        cuda = self._torch.cuda
        graph = cuda.CUDAGraph()
        try:
            with cuda.graph(graph):
                self._run()
        except RuntimeError as error:
            if isinstance(error, cuda.OutOfMemoryError):
                raise
            cuda.synchronize()
            return None  # an operator that can't be captured: events time it eagerly
        return graph

    def _run(self) -> None:
        first = self._next
        self._next = first + self._repeats
        for i in range(first, self._next):
            self._call(i)

    def sample(self) -> Sample:
        """The time between the events."""
        cuda = self._torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        if self._before is not None:
            self._before()
        if self._graph is None:
            # The device spins while the host queues the calls: the host's pace isn't measured.
            ahead = min(MAX_AHEAD_S, self._repeats * LAUNCH_S)
            cuda._sleep(int(ahead * SPIN_HZ))
        start.record()
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()
        end.record()
        end.synchronize()
        return Sample(float(start.elapsed_time(end)) * 1e-3)


class HostTimer:
    """Times calls by the host's clock, from an idle device to an idle device."""

    method = "clock"

    def __init__(self, call: Callable[[int], Any], wait: Callable[[], None], before: Any) -> None:
        from calibrate.cpu_device import ClockTimer  # noqa: PLC0415

        self._wait, self._repeats = wait, 1

        def calls(sample: int) -> None:
            for i in range(sample * self._repeats, (sample + 1) * self._repeats):
                call(i)
            wait()

        def ready() -> None:
            if before is not None:
                before()
            wait()

        self._timer = ClockTimer(calls, ready)
        self.resolution_s = self._timer.resolution_s

    def prepare(self, repeats: int) -> None:
        """Set the calls between two waits."""
        self._repeats = repeats

    def sample(self) -> Sample:
        """The time from the first launch until the device is idle again."""
        return self._timer.sample()


class Nvml:
    """Readings of one GPU; what can't be read is None with a note, never a guess."""

    def __init__(self, uuid: str, index: int) -> None:
        self.driver = "unknown"
        self._handle: Any = None
        self._fault = ""
        try:
            import pynvml  # noqa: PLC0415

            self._nvml = pynvml
            pynvml.nvmlInit()
            self.driver = _text(pynvml.nvmlSystemGetDriverVersion())
            self._handle = self._find(uuid, index)
        except Exception as error:
            self._fault = f"NVML: {error!s:.80}"

    def _find(self, uuid: str, index: int) -> Any:
        """By UUID, since CUDA_VISIBLE_DEVICES renumbers CUDA's devices but not NVML's."""
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        try:
            return self._nvml.nvmlDeviceGetHandleByUUID(name)
        except Exception:
            return self._nvml.nvmlDeviceGetHandleByIndex(index)

    def state(self) -> State:
        """Clocks in MHz, power in W, temperature in °C, active throttle reasons."""
        if self._handle is None:
            return State(None, None, None, None, "unknown", None, self._fault)
        nvml, gpu, missing = self._nvml, self._handle, [""]
        missing.clear()

        def read(field: str, ask: Callable[[], Any], factor: float = 1.0) -> float | None:
            try:
                return float(ask()) * factor
            except Exception as error:
                missing.append(f"{field}: {error!s:.60}")
                return None

        reasons = read("throttle", lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))
        busy = "others_busy: NVML can't tell processes apart"
        return State(
            clock_mhz=read("clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(gpu, 1)),
            memory_clock_mhz=read("memory_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(gpu, 2)),
            power_w=read("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(gpu), 1e-3),
            temperature_c=read("temperature_c", lambda: nvml.nvmlDeviceGetTemperature(gpu, 0)),
            throttle="unknown" if reasons is None else self._reasons(int(reasons)),
            others_busy=None,
            note="; ".join([*missing, busy]),
        )

    def _reasons(self, bits: int) -> str:
        known = {
            getattr(self._nvml, f"nvmlClocksThrottleReason{name}", 0): label
            for name, label in REASONS.items()
        }
        return "+".join(sorted(label for bit, label in known.items() if bits & bit)) or "none"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
