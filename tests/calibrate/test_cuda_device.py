"""The CUDA path behind its interface: what it asks of torch.cuda and NVML, on fakes."""

import sys
from types import SimpleNamespace

import pytest

from calibrate import cuda_device
from calibrate.cuda_device import CudaTimer, HostTimer, Nvml
from calibrate.device import open_device
from calibrate.timing import Settings, measure
from perfmodel.errors import InputError
from tests.calibrate.fakes import FakeCuda


def fake_nvml(**broken):
    def by_uuid(uuid):
        assert uuid == "GPU-abc"
        return "gpu"

    functions = {
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"575.1",
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 0x4 | 0x40 | 0x1,
        "nvmlDeviceGetClockInfo": lambda gpu, kind: {1: 1980, 2: 2619}[kind],
        "nvmlDeviceGetPowerUsage": lambda gpu: 650_000,
        "nvmlDeviceGetTemperature": lambda gpu, sensor: 61,
        "nvmlClocksThrottleReasonSwPowerCap": 0x4,
        "nvmlClocksThrottleReasonHwThermalSlowdown": 0x40,
    }
    return SimpleNamespace(**{**functions, **broken})


@pytest.fixture
def gpu(monkeypatch):
    import torch

    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    monkeypatch.setattr(torch, "cuda", FakeCuda())
    return open_device("cuda:1")


def test_device_reads_its_properties(gpu):
    assert (gpu.name, gpu.target, gpu.units) == ("NVIDIA H100 80GB HBM3", "cuda:1", 132)
    assert gpu.cache_bytes == 50 * 2**20
    assert gpu.free_bytes() == 70 * 10**9
    assert "driver 575.1, sm_90" in gpu.software


def test_state_has_clocks_power_and_reasons_but_not_idling(gpu):
    state = gpu.state()
    assert (state.clock_mhz, state.memory_clock_mhz, state.power_w) == (1980, 2619, 650)
    assert state.temperature_c == 61
    assert state.throttle == "hw_thermal+power_cap"


def test_what_nvml_cant_read_is_none_with_the_reason(monkeypatch):
    def refuse(gpu):
        raise RuntimeError("Not Supported")

    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlDeviceGetPowerUsage=refuse))
    state = Nvml("abc", 0).state()
    assert state.power_w is None
    assert "power_w: Not Supported" in state.note


def test_absent_nvml_leaves_every_figure_open(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    state = Nvml("abc", 0).state()
    assert (state.clock_mhz, state.throttle) == (None, "unknown")
    assert state.note.startswith("NVML: ")


@pytest.mark.parametrize(
    ("capability", "dtype", "offered"),
    [((8, 0), "fp8", False), ((8, 9), "fp8", True), ((7, 0), "int8", False),
     ((7, 5), "bfloat16", False), ((8, 0), "bfloat16", True)],
)  # fmt: skip
def test_dtypes_follow_the_compute_capability(gpu, capability, dtype, offered):
    gpu._capability = capability
    assert gpu.offers(dtype) is offered


def scripted(*, refuses=False, graph=True):
    fake, seen = FakeCuda(refuses_graph=refuses), []

    def call(i):
        seen.append(i)
        fake.now += 4e-6

    return fake, seen, CudaTimer(SimpleNamespace(cuda=fake), call, graph=graph)


SETTINGS = Settings(sample_s=1e-3, warmup_s=1e-4, budget_s=0.1)


def test_a_graph_is_captured_after_warming_up_and_replayed():
    fake, seen, timer = scripted()
    found = measure(timer, SETTINGS)
    assert found.seconds == pytest.approx(4e-6)
    assert timer.method == "graph"
    assert fake.log.count("replay") >= 6
    assert seen == list(range(len(seen)))  # each call on the next set of inputs


def test_events_time_what_cant_be_captured_behind_a_spinning_kernel():
    fake, _, timer = scripted(refuses=True)
    found = measure(timer, SETTINGS)
    assert found.seconds == pytest.approx(4e-6)
    assert timer.method == "events"
    assert "replay" not in fake.log
    assert fake.log.count("spin") >= 8


def test_running_out_of_memory_while_capturing_is_not_swallowed():
    fake, _, timer = scripted()
    timer.prepare(1)
    timer.sample()
    timer.sample()

    def full(i):
        raise fake.OutOfMemoryError("CUDA out of memory")

    timer._call = full
    with pytest.raises(fake.OutOfMemoryError):
        timer.prepare(2)


def test_host_timer_waits_for_an_idle_device_on_both_sides():
    log: list[object] = []
    timer = HostTimer(log.append, lambda: log.append("wait"), None)
    timer.prepare(2)
    timer.sample()
    timer.sample()
    assert log == ["wait", 0, 1, "wait", "wait", 2, 3, "wait"]


def test_machines_without_cuda_say_so():
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(InputError, match="sees no CUDA device; try --device cpu"):
        open_device("cuda")


def test_too_high_an_index_says_how_many_there_are(gpu):
    with pytest.raises(InputError, match="there are 2 CUDA devices"):
        open_device("cuda:2")


def test_reasons_cover_what_lowers_clocks():
    assert set(cuda_device.REASONS.values()) >= {"power_cap", "hw_thermal", "sw_thermal"}
