import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel
from perfmodel.inference.ceilings import DEVICE_MEMORY, L2
from perfmodel.inference.roofline import roofline
from perfmodel.inference.roofline_record import roofline_record

MODEL = "llama-3.1-8b"


def workload(**sizes):
    return perfmodel.Workload(**{"batch": 8, "prompt": 2048, "output": 256} | sizes)


def only(result):
    (device,) = result.devices
    return device


def ceiling(device, name):
    return next(c for c in device.ceilings if c.name == name)


def mark(device, phase, name, setting=0):
    return next(m for m in device.of(phase, setting) if m.name == name)


@pytest.mark.parametrize(
    ("hardware", "ridge"),
    [
        ("h100-sxm", 989.4e12 / 3.35e12),  # 295.3
        ("a100-sxm-80gb", 312e12 / 2.039e12),  # 153.0
        ("b200-sxm", 2.25e15 / 8e12),  # 281.3
    ],
)
def test_the_ridge_is_where_both_datasheet_roofs_meet(hardware, ridge):
    device = only(roofline(MODEL, hardware, workload()))
    found = [r for r in device.ridges if r.of == "datasheet" and r.arithmetic == "bf16"]
    assert [r.flops_per_byte for r in found] == [pytest.approx(ridge, rel=1e-4)]
    assert found[0].flops_per_s == ceiling(device, "bf16").datasheet


def test_a_decode_product_has_the_intensity_of_its_sizes():
    device = only(roofline(MODEL, "h100-sxm", workload()))
    qkv = mark(device, "decode", "qkv_proj")
    # m 8, n 4096 + 2·1024 = 6144, k 4096, 32 layers. FLOPs 2·8·6144·4096·32 = 12,884,901,888.
    # Bytes: weights 2·6144·4096 = 50,331,648, rows in and out 2·8·(4096 + 6144) = 163,840.
    assert qkv.flops == 12_884_901_888
    assert qkv.bytes == 32 * (50_331_648 + 163_840)
    assert qkv.intensity == pytest.approx(402_653_184 / 50_495_488)


def test_rates_and_shares_are_those_of_the_estimate():
    device = only(roofline(MODEL, "h100-sxm", workload()))
    estimate = perfmodel.estimate(MODEL, "h100-sxm", workload())
    for phase in ("prefill", "decode"):
        rows = getattr(estimate, phase).cost.operators
        marks = device.of(phase)
        assert [m.name for m in marks] == [row.name for row in rows]
        assert [m.time_s for m in marks] == [row.cost.time_s for row in rows]
        assert sum(m.share for m in marks) == pytest.approx(1)
        for m in marks:
            assert m.flops_per_s * m.time_s == pytest.approx(m.flops)
            assert m.bytes_per_s * m.time_s == pytest.approx(m.bytes)


@given(
    batch=st.integers(1, 64),
    prompt=st.integers(16, 8192),
    hardware=st.sampled_from(["h100-sxm", "a100-sxm-80gb", "l40s", "mi300x", "b200-sxm"]),
    weights=st.sampled_from(["bf16", "fp8", "int4"]),
)
@settings(max_examples=25, deadline=None)
def test_nothing_lies_above_its_roof(batch, prompt, hardware, weights):
    deployment = perfmodel.Deployment(weights=weights)
    device = only(roofline(MODEL, hardware, workload(batch=batch, prompt=prompt), deployment))
    memory = ceiling(device, DEVICE_MEMORY)
    slack = 1 + 1e-9
    for m in device.marks:
        if m.on_roof:
            compute = ceiling(device, m.arithmetic)
            assert m.flops_per_s <= slack * min(compute.datasheet, m.intensity * memory.datasheet)
            assert m.flops_per_s <= slack * compute.attained.rate
            assert m.attained == pytest.approx(
                m.flops_per_s / min(compute.datasheet, m.intensity * memory.datasheet), rel=0.02
            )
        assert m.bytes_per_s <= slack * memory.attained.rate
    for c in device.ceilings:
        if c.attained is not None and c.datasheet is not None:
            assert c.attained.rate <= slack * c.datasheet
            assert c.attained.low <= c.attained.rate <= c.attained.high


def test_attainable_is_the_assumed_share_where_nothing_is_calibrated():
    device = only(roofline(MODEL, "mi300x", workload()))
    # generic.yaml: products reach 0.66 of the peak and 0.80 of the bandwidth, less the launches.
    compute, memory = ceiling(device, "bf16"), ceiling(device, DEVICE_MEMORY)
    assert compute.attained.source == memory.attained.source == "assumed"
    assert compute.attained.rate == pytest.approx(0.66 * compute.datasheet, rel=0.01)
    assert memory.attained.rate == pytest.approx(0.80 * memory.datasheet, rel=0.01)


def test_the_datasheet_alone_puts_everything_on_the_roof():
    device = only(roofline(MODEL, "h100-sxm", workload(), roofline_only=True))
    assert all(c.attained is None for c in device.ceilings if c.name != L2)
    for m in device.marks:
        if m.on_roof:
            assert m.attained == pytest.approx(1)


def test_formats_in_use_have_roofs_of_their_own():
    plain = only(roofline(MODEL, "h100-sxm", workload()))
    assert [c.name for c in plain.ceilings if c.kind == "compute" and c.used] == ["bf16"]
    both = only(roofline(MODEL, "h100-sxm", workload(), perfmodel.Deployment(weights="fp8")))
    used = [c.name for c in both.ceilings if c.kind == "compute" and c.used]
    assert used == ["bf16", "fp8"]  # attention and the head stay in 16 bits
    assert {r.arithmetic for r in both.ridges} == {"bf16", "fp8"}


def test_l2_has_a_roof_where_the_profile_states_its_rate():
    stated = only(roofline(MODEL, "a100-sxm-80gb", workload()))
    hardware = perfmodel.load_hardware("a100-sxm-80gb")
    assert ceiling(stated, L2).attained.rate == hardware.l2_bandwidth == 5.4e12
    assert ceiling(stated, L2).datasheet is None
    ridge = next(r for r in stated.ridges if r.level == L2)
    assert ridge.flops_per_byte == pytest.approx(ceiling(stated, "bf16").attained.rate / 5.4e12)
    silent = only(roofline(MODEL, "b200-sxm", workload()))
    assert L2 not in {c.name for c in silent.ceilings}


@pytest.mark.parametrize("path", ["batch", "prompt", "output", "cached_prefix"])
def test_a_path_is_the_settings_one_by_one(path):
    values = [1, 64, 500]
    whole = roofline(MODEL, "h100-sxm", workload(**{path: np.asarray(values)}))
    assert whole.path == path
    assert whole.settings == (1, 64, 500)
    for number, value in enumerate(values):
        alone = only(roofline(MODEL, "h100-sxm", workload(**{path: value})))
        for phase in ("prefill", "decode"):
            marks = only(whole).of(phase, number)
            for got, wanted in zip(marks, alone.of(phase), strict=True):
                assert (got.name, got.bound) == (wanted.name, wanted.bound)
                assert got.time_s == pytest.approx(wanted.time_s)
                assert got.flops == pytest.approx(wanted.flops)
                assert got.bytes == pytest.approx(wanted.bytes)


def test_one_setting_is_no_path():
    result = roofline(MODEL, ["h100-sxm", "l40s"], workload())
    assert (result.path, result.settings) == (None, (8,))
    assert [d.hardware.name for d in result.devices] == ["h100-sxm", "l40s"]


@pytest.mark.parametrize(
    "sizes",
    [
        {"batch": np.array([1, 2]), "prompt": np.array([64, 128])},
        {"batch": np.array([[1, 2], [3, 4]])},
    ],
)
def test_a_path_follows_one_list(sizes):
    with pytest.raises(perfmodel.InputError, match="path"):
        roofline(MODEL, "h100-sxm", workload(**sizes))


def test_no_hardware_is_no_roof():
    with pytest.raises(perfmodel.InputError, match="hardware"):
        roofline(MODEL, [], workload())


def test_the_record_is_plain_json():
    result = roofline(MODEL, ["h100-sxm"], workload(batch=np.array([1, 8])))
    record = json.loads(json.dumps(roofline_record(result), allow_nan=False))
    (device,) = record["devices"]
    assert record["settings"] == [1, 8]
    assert len(device["operators"]) == len(only(result).marks)
    host = next(o for o in device["operators"] if o["name"] == "engine.host")
    assert host["arithmetic_intensity"] == 0
    roofs = {roof["name"]: roof for roof in device["roofs"]}
    assert roofs["bf16"]["datasheet_flops_per_s"] == 989.4e12
    assert roofs["device memory"]["datasheet_bytes_per_s"] == 3.35e12
