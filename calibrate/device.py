"""A device that kernels are timed on, behind one small interface."""

from __future__ import annotations

import os
import re
from typing import Any, Literal, Protocol

from calibrate.state import State
from calibrate.timing import Timer
from perfmodel.errors import InputError

Kind = Literal["cpu", "cuda"]


class Device(Protocol):
    """What the harness needs to know of a device, and what it may ask of it."""

    @property
    def kind(self) -> Kind:
        """Which path of torch runs its kernels."""

    @property
    def name(self) -> str:
        """What the vendor calls it."""

    @property
    def target(self) -> str:
        """What torch calls it: ``cpu``, ``cuda:0``."""

    @property
    def software(self) -> str:
        """Driver and libraries behind torch, for the provenance of a row."""

    @property
    def total_bytes(self) -> int:
        """Device memory."""

    @property
    def cache_bytes(self) -> int:
        """The last-level on-chip cache that repeated inputs could stay in."""

    @property
    def units(self) -> int:
        """SMs, or the threads that torch computes with."""

    def free_bytes(self) -> int:
        """Memory that can be allocated now."""

    def state(self) -> State:
        """Clocks, power, temperature, throttling now, and neighbours since the last call."""

    def synchronize(self) -> None:
        """Wait until all work given to the device is done."""

    def timer(self, call: Any, *, host: bool, graph: bool, flush: bool) -> Timer:
        """A timer of ``call(i)``.

        Args:
            call: runs the kernel once on the ``i``-th set of inputs.
            host: count the time the host needs to launch, as well as the kernel's.
            graph: replay from a graph where the device has them.
            flush: push the inputs out of the last-level cache before every sample.
        """

    def offers(self, dtype: str) -> bool:
        """Whether kernels of a dtype run here (natively, not emulated)."""

    def release(self) -> None:
        """Give cached memory back after a case."""


def open_device(name: str, threads: int | None = None) -> Device:
    """The device called ``cpu``, ``cuda`` or ``cuda:1``; ``threads`` limits the CPU's cores.

    Raises:
        InputError: no such device here, or torch isn't installed; one line with the remedy.
    """
    match = re.fullmatch(r"(cpu|cuda)(?::(\d{1,3}))?", name.strip().lower())
    if match is None or (match[1] == "cpu" and match[2]):
        raise InputError(f"no device is called {name!r:.40}; known: cpu, cuda, cuda:1, …")
    if threads is not None and (match[1] != "cpu" or threads < 1):
        raise InputError(f"{threads} threads on {name}: give 1 or more, and only for the CPU")
    cores = os.cpu_count() or 1
    if threads is not None and threads > cores:
        raise InputError(f"{threads} threads: this machine has {cores}")
    try:
        import torch  # noqa: PLC0415  (heavy, and optional)
    except ImportError:
        raise InputError("measuring needs torch: pip install 'perfmodel[calibrate]'") from None
    if match[1] == "cpu":
        from calibrate.cpu_device import CpuDevice  # noqa: PLC0415

        return CpuDevice(threads)
    index = int(match[2] or 0)
    if not torch.cuda.is_available():
        raise InputError(f"{name}: torch {torch.__version__} sees no CUDA device; try --device cpu")
    count = torch.cuda.device_count()
    if index >= count:
        raise InputError(f"{name}: there are {count} CUDA devices, numbered from 0")
    from calibrate.cuda_device import CudaDevice  # noqa: PLC0415

    return CudaDevice(index)
