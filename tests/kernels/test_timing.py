"""Time of one operator: the roof, what lies above it, and which wire is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.kernels.calibration import Calibration, load_calibration
from perfmodel.kernels.kernel_time import bound_times
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.record import (
    Attention,
    Collective,
    Elementwise,
    ExpertLayer,
    Gemm,
    GroupedGemm,
    Recurrence,
)
from perfmodel.specs.hardware import Hardware, load_hardware


def hardware(scale: float = 1.0, **groups: Any) -> Hardware:
    """100 TFLOP/s and 1 TB/s: the ridge lies at 100 FLOP/byte."""
    fields = {
        "schema": 1,
        "name": "made-up",
        "peaks_tflops": {"bf16": 100.0 * scale, "fp8": 200.0 * scale},
        "memory": {"capacity_gb": 80.0, "bandwidth_gb_s": 1000.0 * scale},
    }
    return Hardware.parse(fields | groups, "made-up")


def link(gb_s: float, domain: int) -> dict[str, Any]:
    return {"kind": "link", "gb_s_per_direction": gb_s, "domain_gpus": domain}


def calibration(compute: float, memory: float, spread: float, launch_us: float) -> Calibration:
    family = {"compute": compute, "memory": memory, "spread": spread}
    names = ("gemm", "attention", "grouped_gemm", "recurrence", "elementwise")
    return Calibration.parse(
        {
            "schema": 1,
            "hardware": "any",
            "stack": "any",
            "origin": "assumed",
            "source": "a test",
            "families": dict.fromkeys(names, family),
            "collective": {
                "link": compute, "link_latency_us": 10.0, "network": memory,
                "network_latency_us": 30.0, "spread": spread,
            },
            "launch": {"graph_us": launch_us, "eager_us": 5 * launch_us},
        },
        "a test",
    )  # fmt: skip


def gemm(m: Any, n: int = 1024, k: int = 1024) -> Gemm:
    return Gemm(name="gemm", m=m, n=n, k=k, weight_bytes=2.0 * n * k)


def elementwise(tokens: Any) -> Elementwise:
    return Elementwise(name="norm", tokens=tokens, read_bytes=1e3, write_bytes=1e3)


def collective(message: Any, ranks: int, span: int, kind: Any = "all_reduce") -> Collective:
    return Collective(name=kind, kind=kind, message_bytes=message, ranks=ranks, span=span)


sizes = st.floats(1, 1e6)
shares = st.floats(0.01, 1)
calibrations = st.none() | st.builds(
    calibration, shares, shares, st.floats(1, 20), st.floats(0, 50)
)


@st.composite
def operators(draw: Any) -> Any:
    count = draw(sizes)
    attention = Attention(
        name="attention", phase="decode", sequences=count, queries=1, keys=100, pairs=100,
        context=100,
        heads=8, kv_heads=2, qk_dim=64, value_dim=64, key_bytes=512.0,
    )  # fmt: skip
    layer = ExpertLayer(count, 32, 32, 2, 8, 1, 1, gated=True)
    grouped = GroupedGemm(
        name="experts", layer=layer, rows=count, active_experts=3.0, experts=8, n=64, k=32,
        weight_bytes=1e4,
    )  # fmt: skip
    scan = Recurrence(
        name="scan", sequences=count, queries=3, state_elements=100, state_bytes=200.0,
        flops_per_token=500, io_elements=30,
    )  # fmt: skip
    exchange = collective(count, draw(st.integers(2, 32)), draw(st.integers(2, 32)))
    return draw(
        st.sampled_from([gemm(count), elementwise(count), attention, grouped, scan, exchange])
    )


WIRED: dict[str, Any] = {
    "link": link(100.0, 4),
    "network": {"gb_s_per_gpu": 10.0},
    "pcie": {"generation": 4, "gb_s_per_direction": 32.0},
}


# --- the roof ----------------------------------------------------------------------------------


def test_roof_of_a_compute_bound_gemm():
    """4096³: 2·4096³ = 1.374e11 FLOPs at 1e14/s = 1.374 ms; 3·4096²·2 B = 0.1 GB = 0.1 ms."""
    time = DeviceModel(hardware(), None).time(gemm(4096, 4096, 4096))
    assert time.time_s == time.roof_s == time.compute_s == 2 * 4096**3 / 1e14
    assert time.memory_s == pytest.approx(6 * 4096**2 / 1e12)
    assert bound_times(time) == {
        "compute": time.time_s, "memory": 0.0, "network": 0.0, "launch": 0.0,
    }  # fmt: skip


def test_roof_of_a_memory_bound_gemm():
    """One row: 2 B·(1024² weights + 1024 in + 1024 out) over 1e12 B/s."""
    time = DeviceModel(hardware(), None).time(gemm(1))
    assert time.time_s == time.roof_s == 2 * (1024**2 + 2 * 1024) / 1e12
    assert bound_times(time)["memory"] == time.time_s


def test_arithmetic_picks_the_peak():
    device = DeviceModel(hardware(), None)
    twice = Gemm(name="gemm", m=4096, n=4096, k=4096, arithmetic="fp8")
    assert device.time(twice).compute_s == device.time(gemm(4096, 4096, 4096)).compute_s / 2
    with pytest.raises(InputError, match="int8") as error:
        device.time(Gemm(name="gemm", m=1, n=1, k=1, arithmetic="int8"))
    assert "\n" not in str(error.value)


def test_efficiency_launch_and_spread_by_hand():
    """Compute at half the peak, 3 µs to launch, three times either way."""
    device = DeviceModel(hardware(), calibration(0.5, 0.8, 3.0, 3.0))
    time = device.time(gemm(4096, 4096, 4096))
    ideal = 2 * 4096**3 / 1e14
    assert time.time_s == pytest.approx(2 * ideal + 3e-6)
    assert time.high_s == pytest.approx(3 * time.time_s)
    assert time.low_s == time.roof_s == ideal  # a third of the time would pass under the roof
    eager = DeviceModel(hardware(), calibration(0.5, 0.8, 3.0, 3.0), "eager")
    assert eager.time(gemm(4096, 4096, 4096)).time_s == pytest.approx(2 * ideal + 15e-6)


@given(operators(), calibrations, st.sampled_from(["graph", "eager"]))
def test_never_under_the_roof_and_inside_the_interval(operator, calibrated, execution):
    time = DeviceModel(hardware(**WIRED), calibrated, execution).time(operator)
    assert time.roof_s > 0
    assert time.roof_s <= time.low_s <= time.time_s <= time.high_s
    assert time.roof_s >= operator.bytes / 1e12
    if operator.flops:
        assert time.roof_s >= operator.flops / 1e14


@given(operators(), calibrations)
def test_bounds_share_out_the_whole_time(operator, calibrated):
    time = DeviceModel(hardware(**WIRED), calibrated).time(operator)
    limits = bound_times(time)
    assert sum(limits.values()) == pytest.approx(time.time_s)
    assert sorted(limits.values())[:3] == [0, 0, 0]
    if calibrated is None:
        assert limits["launch"] == 0


@given(calibrations, sizes, sizes)
def test_more_work_is_never_faster(calibrated, a, b):
    device = DeviceModel(hardware(**WIRED), calibrated)
    small, large = sorted((a, b))
    for make in (gemm, elementwise, lambda x: collective(x, 4, 4)):
        fewer, more = device.time(make(small)), device.time(make(large))
        assert fewer.time_s <= more.time_s
        assert fewer.roof_s <= more.roof_s


@given(operators(), shares, shares)
def test_twice_the_machine_takes_half_the_time(operator, compute, memory):
    """All rates doubled, nothing to launch, no latency."""
    ideal = calibration(compute, memory, 2.0, 0.0)
    ideal = ideal.model_copy(
        update={
            "collective": ideal.collective.model_copy(
                update={"link_latency_us": 0.0, "network_latency_us": 0.0}
            )
        }
    )
    doubled: dict[str, Any] = {
        "link": link(200.0, 4),
        "network": {"gb_s_per_gpu": 20.0},
        "pcie": {"generation": 5, "gb_s_per_direction": 64.0},
    }
    one = DeviceModel(hardware(**WIRED), ideal).time(operator)
    two = DeviceModel(hardware(2.0, **doubled), ideal).time(operator)
    for name in ("time_s", "low_s", "high_s", "roof_s"):
        assert getattr(two, name) == pytest.approx(getattr(one, name) / 2)


@given(operators(), shares, shares, shares)
def test_a_better_calibration_is_never_slower(operator, compute, memory, other):
    worse, better = sorted((compute, other))
    slow, fast = (
        DeviceModel(hardware(**WIRED), calibration(share, memory, 1.5, 1.0)).time(operator)
        for share in (worse, better)
    )
    assert fast.time_s <= slow.time_s


def test_a_tiny_kernel_is_bound_by_its_launch():
    """One token's norm: 2 kB in 2 ns, under 3 µs of launch."""
    device = DeviceModel(hardware(), calibration(1.0, 1.0, 1.0, 3.0))
    tiny, large = device.time(elementwise(1)), device.time(elementwise(10_000))
    assert bound_times(tiny)["launch"] == tiny.time_s == pytest.approx(3e-6 + 2e-9)
    assert bound_times(large)["memory"] == large.time_s == pytest.approx(3e-6 + 2e-5)


def test_arrays_are_timed_as_their_numbers():
    device = DeviceModel(hardware(**WIRED), load_calibration())
    rows = np.array([1.0, 64.0, 1e3, 1e5])
    for make in (gemm, elementwise, lambda x: collective(x, 4, 4)):
        together: Any = device.time(make(rows))
        apart: list[Any] = [device.time(make(m)) for m in rows]
        for name in ("time_s", "low_s", "high_s", "roof_s"):
            expected = [getattr(t, name) for t in apart]
            assert np.allclose(getattr(together, name), expected, rtol=1e-14, atol=0)
        for bound, seconds in bound_times(together).items():
            expected = [bound_times(t)[bound] for t in apart]
            assert np.allclose(seconds, expected, rtol=1e-14)


# --- wires -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "span", "gb_s", "inside"),
    [
        ("h100-sxm", 2, 450, True),  # NVLink to 8
        ("h100-sxm", 8, 450, True),
        ("h100-sxm", 16, 50, False),  # a 400 Gbit/s adapter each
        ("l40s", 4, 32, True),  # no link: PCIe 4.0 × 16
        ("l40s", 8, 32, True),
    ],
)
def test_which_wire(name, span, gb_s, inside):
    assert DeviceModel(load_hardware(name), None).wire_rate(span) == (gb_s * 1e9, inside)


def test_a_bridge_of_two_leaves_pcie_to_four():
    device = DeviceModel(hardware(**(WIRED | {"link": link(300.0, 2)})), None)
    assert device.wire_rate(2) == (300e9, True)
    assert device.wire_rate(4) == (32e9, True)
    assert device.wire_rate(9) == (10e9, False)


@pytest.mark.parametrize(
    ("groups", "span"),
    [
        ({"link": link(450.0, 8)}, 16),  # no network
        ({"pcie": {"generation": 4, "gb_s_per_direction": 32.0}}, 16),
        ({}, 2),  # no way at all
        ({"link": link(450.0, 2)}, 4),  # neither link nor PCIe for four
    ],
)
def test_no_way_to_each_other(groups, span):
    with pytest.raises(InputError) as error:
        DeviceModel(hardware(**groups), None).time(collective(1e6, span, span))
    assert "\n" not in str(error.value)
    assert "made-up" in str(error.value)


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        ("all_reduce", 2 * 3 / 4),  # reduce-scatter and all-gather, 3/4 of the message each
        ("all_gather", 3 / 4),
        ("reduce_scatter", 3 / 4),
        ("all_to_all", 3 / 4),  # what stays on the rank crosses no wire
        ("send_recv", 1),
    ],
)
def test_bytes_on_the_wire(kind, passes):
    operator = collective(1e9, 4, 4, kind)
    assert operator.wire_bytes == pytest.approx(passes * 1e9)
    time = DeviceModel(hardware(**WIRED), None).time(operator)
    assert time.roof_s == time.time_s == pytest.approx(passes * 1e9 / 100e9)
    assert bound_times(time)["network"] == time.time_s


def test_exchange_efficiency_and_latency_by_hand():
    """1 MB over four ranks: 1.5 MB at 80 % of 100 GB/s = 18.75 µs, and 10 µs; over the network at
    half of 10 GB/s 300 µs, and 30 µs.
    """
    device = DeviceModel(hardware(**WIRED), calibration(0.8, 0.5, 1.0, 2.0))
    assert device.time(collective(1e6, 4, 4)).time_s == pytest.approx(28.75e-6 + 2e-6)
    assert device.time(collective(1e6, 4, 16)).time_s == pytest.approx(330e-6 + 2e-6)
