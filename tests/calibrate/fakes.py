"""A device that runs nothing: its clock moves by what a script says. For the harness alone."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from calibrate.state import State
from calibrate.timing import Sample


class ScriptedTimer:
    """Samples take ``call_s`` a call, times the next factor of ``noise``, plus a wait."""

    method = "script"

    def __init__(self, call_s, noise=(1.0,), waits=(0.0,), *, resolution_s=1e-7, serial=False):
        self.call_s, self.noise, self.waits = call_s, noise, waits
        self.resolution_s, self.serial = resolution_s, serial
        self.repeats, self.taken, self.prepared = 1, 0, []

    def prepare(self, repeats):
        self.repeats = repeats
        self.prepared.append(repeats)

    def sample(self):
        factor = self.noise[self.taken % len(self.noise)]
        wait = self.waits[self.taken % len(self.waits)]
        self.taken += 1
        return Sample(self.call_s * self.repeats * factor + wait, wait, self.serial)


class FakeDevice:
    """What a plan asks of a device."""

    kind, name, target, software = "cuda", "Fake GPU", "cpu", "none"
    total_bytes, cache_bytes, units = 80 * 10**9, 50 * 10**6, 132

    def free_bytes(self):
        return self.total_bytes

    def offers(self, dtype):
        return True

    def state(self):
        return State(1000.0, None, None, None, "none", None, "")


def fake_device() -> Any:
    """A data-centre GPU as far as a plan asks."""
    return FakeDevice()


class FakeCuda:
    """The part of ``torch.cuda`` that CudaDevice uses, on a clock that calls move.

    It stands in for the interface only: times come from the test, never out as a measurement.
    """

    OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})

    def __init__(self, capability=(9, 0), refuses_graph=False):
        self.now, self.refuses_graph = 0.0, refuses_graph
        self.log: list[str] = []
        major, minor = capability
        self.about = SimpleNamespace(
            name="NVIDIA H100 80GB HBM3", multi_processor_count=132, total_memory=85 * 10**9,
            L2_cache_size=50 * 2**20, major=major, minor=minor, uuid="abc",
        )  # fmt: skip
        fake = self

        class Event:
            def __init__(self, enable_timing):
                self.at = None

            def record(self):
                self.at = fake.now

            def synchronize(self):
                fake.log.append("wait")

            def elapsed_time(self, end):
                return (end.at - self.at) * 1e3

        class CUDAGraph:
            calls_s = 0.0

            def replay(self):
                fake.log.append("replay")
                fake.now += self.calls_s

        self.Event, self.CUDAGraph = Event, CUDAGraph

    @contextmanager
    def graph(self, graph):
        if self.refuses_graph:
            raise RuntimeError("operation not permitted when stream is capturing")
        start = self.now
        yield
        graph.calls_s, self.now = self.now - start, start

    def _sleep(self, cycles):
        self.log.append("spin")
        self.now += 1.0  # before the first event: must not count

    def set_device(self, index):
        self.log.append(f"device {index}")

    def get_device_properties(self, index):
        return self.about

    def mem_get_info(self, target):
        return 70 * 10**9, 85 * 10**9

    def synchronize(self, target=None):
        self.log.append("synchronize")

    def empty_cache(self):
        self.log.append("empty")

    def is_available(self):
        return True

    def device_count(self):
        return 2
