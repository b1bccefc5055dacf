"""The machine's own cores as a device: torch on the CPU, a monotonic clock, /proc for its state."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from calibrate.state import State
from calibrate.timing import Sample
from perfmodel.units import KIB, MIB

FALLBACK_CACHE = 32 * MIB
"""Assumed where the system doesn't tell its caches: a wrong guess costs memory, not truth."""
FLUSH_FACTOR = 2


class CpuDevice:
    """All cores that this process may use, as one device."""

    kind: Literal["cpu"] = "cpu"
    target = "cpu"

    def __init__(self, threads: int | None = None) -> None:
        """Take ``threads`` of the cores, or as many as torch does by itself."""
        import torch  # noqa: PLC0415

        self._torch = torch
        if threads is not None:
            torch.set_num_threads(threads)
        self.name = cpu_name()
        self.units = int(torch.get_num_threads())
        self.cache_bytes = last_level_cache(Path("/sys/devices/system/cpu"))
        self.total_bytes = total_memory()
        self.software = f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
        self._before = _busy_seconds()
        self._flush: Any = None

    def free_bytes(self) -> int:
        """MemAvailable, or the total where the system doesn't tell."""
        found = re.search(r"MemAvailable:\s+(\d+) kB", _read(Path("/proc/meminfo")))
        return min(int(found[1]) * KIB if found else self.total_bytes, self.total_bytes)

    def state(self) -> State:
        """Clock and neighbours; power, heat and throttling where the system gives them."""
        clock = _clock_mhz()
        temperature = _temperature()
        missing = ["power_w, memory_clock_mhz, throttle: not read on CPUs"]
        if clock is None:
            missing.append("clock_mhz: neither cpufreq nor /proc/cpuinfo has it")
        if temperature is None:
            missing.append("temperature_c: no thermal zone")
        return State(
            clock_mhz=clock,
            memory_clock_mhz=None,
            power_w=None,
            temperature_c=temperature,
            throttle="unknown",
            others_busy=self._others(),
            note="; ".join(missing),
        )

    def _others(self) -> float | None:
        """Cores' share that others (and the hypervisor) took since the last call."""
        before, now = self._before, _busy_seconds()
        self._before = now
        if before is None or now is None or now[2] - before[2] < 0.05:  # ticks are 10 ms
            return None
        system, own, wall = (b - a for a, b in zip(before, now, strict=True))
        cores = os.cpu_count() or 1
        return round(min(1.0, max(0.0, (system - own) / (wall * cores))), 3)

    def synchronize(self) -> None:
        """Nothing to wait for: torch's CPU calls return when they are done."""

    def timer(self, call: Any, *, host: bool, graph: bool, flush: bool) -> ClockTimer:
        """A timer by the monotonic clock; the host is the device, and there are no graphs.

        With ``host`` the calling thread may sleep for a peer's sake: only a wait for a core is
        then a disturbance, not every moment off it.
        """
        before = self._evict if flush else None
        if self.units == 1 and not host:
            return ClockTimer(call, before, cpu=time.thread_time)
        return ClockTimer(call, before, waited=waited_seconds)

    def _evict(self) -> None:
        if self._flush is None:
            size = FLUSH_FACTOR * self.cache_bytes
            self._flush = self._torch.zeros(size, dtype=self._torch.uint8)
        self._flush.add_(1)

    def offers(self, dtype: str) -> bool:
        """What torch multiplies on a CPU; fp8 is only emulated there."""
        return dtype in {"float32", "bfloat16", "float16", "int8", "int4_wo"}

    def release(self) -> None:
        """Memory goes back by itself."""


class ClockTimer:
    """Times calls by ``time.perf_counter``."""

    method = "clock"

    def __init__(
        self,
        call: Callable[[int], Any],
        before: Callable[[], None] | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        resolution_s: float | None = None,
        waited: Callable[[], float] = lambda: 0.0,
        cpu: Callable[[], float] | None = None,
    ) -> None:
        """Time ``call``; a wait for cores shows in ``waited``, or in ``cpu`` if it is one thread.

        Args:
            call: runs the kernel on the ``i``-th inputs.
            before: called ahead of each sample, untimed.
            clock: seconds of the wall.
            resolution_s: the clock's smallest step; the system's if not given.
            waited: seconds that threads have waited for cores so far.
            cpu: seconds that the only thread has run so far.
        """
        self._call, self._before, self._clock = call, before, clock
        self._waited, self._cpu = waited, cpu
        stated = time.get_clock_info("perf_counter").resolution
        self.resolution_s = max(stated, 1e-7) if resolution_s is None else resolution_s
        self._repeats, self._next = 1, 0

    def prepare(self, repeats: int) -> None:
        """Set the calls per sample."""
        self._repeats = repeats

    def sample(self) -> Sample:
        """Time ``repeats`` calls, each on the next set of inputs."""
        if self._before is not None:
            self._before()
        # Whoever waits for the core gets it now, rather than in the middle of the sample.
        os.sched_yield()
        if self._cpu is not None:
            ran = self._cpu()
            seconds = self._run()
            return Sample(seconds, max(0.0, seconds - (self._cpu() - ran)), serial=True)
        waited = self._waited()
        seconds = self._run()
        return Sample(seconds, self._waited() - waited)

    def _run(self) -> float:
        call, first = self._call, self._next
        self._next = last = first + self._repeats
        start = self._clock()
        for i in range(first, last):
            call(i)
        return self._clock() - start


def waited_seconds() -> float:
    """Seconds that this process's threads were ready to run but had no core; 0 if unknown."""
    total = 0
    for task in _tasks():
        fields = _read(Path(f"/proc/self/task/{task}/schedstat")).split()
        total += int(fields[1]) if len(fields) == 3 else 0
    return total * 1e-9


def _tasks() -> list[str]:
    try:
        return os.listdir("/proc/self/task")  # noqa: PTH208  (between two readings of the clock)
    except OSError:
        return []


def cpu_name() -> str:
    """The model name that the system gives."""
    found = re.search(r"model name\s*:\s*(.+)", _read(Path("/proc/cpuinfo")))
    return " ".join(found[1].split()) if found else "unknown CPU"


def last_level_cache(root: Path) -> int:
    """Bytes of the last-level caches of the cores that this process may use, all instances."""
    found: dict[tuple[int, str], int] = {}
    for index in root.glob("cpu[0-9]*/cache/index*"):
        size = re.fullmatch(r"(\d+)([KM])", _read(index / "size").strip())
        level = _read(index / "level").strip()
        if size and level.isdigit():
            factor = KIB if size[2] == "K" else MIB
            found[int(level), _read(index / "shared_cpu_list").strip()] = int(size[1]) * factor
    top = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == top) or FALLBACK_CACHE


def total_memory() -> int:
    """Physical memory, or the container's limit if lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read(Path("/sys/fs/cgroup/memory.max")).strip()
    return min(physical, int(limit)) if limit.isdigit() else physical


def _clock_mhz() -> float | None:
    governed = _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")).strip()
    if governed.isdigit():
        return int(governed) / 1000
    shown = re.findall(r"cpu MHz\s*:\s*([\d.]+)", _read(Path("/proc/cpuinfo")))
    return min(map(float, shown)) if shown else None


def _temperature() -> float | None:
    zones = (_read(zone).strip() for zone in Path("/sys/class/thermal").glob("thermal_zone*/temp"))
    known = [int(zone) / 1000 for zone in zones if zone.lstrip("-").isdigit()]
    return max(known, default=None)


def _busy_seconds() -> tuple[float, float, float] | None:
    """Seconds that all cores were busy, that this process was, and of the wall clock."""
    fields = _read(Path("/proc/stat")).split("\n", 1)[0].split()[1:9]
    if len(fields) < 8:
        return None
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, fields)
    ticks = user + nice + system + irq + soft + steal
    own = os.times()
    return ticks / os.sysconf("SC_CLK_TCK"), own.user + own.system, time.monotonic()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
