"""Bounds that the GEMM form keeps whatever the shape."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.kernels.forms.base import Chip
from perfmodel.kernels.forms.gemm import GemmForm
from perfmodel.kernels.forms.gemm_stack import block_kernel, gemm_chip, gemm_form
from perfmodel.kernels.forms.gemm_tiles import LIBRARIES
from perfmodel.specs.hardware import load_hardware

H100 = Chip(peak=989.4e12, bandwidth=3.35e12, sm_count=132, clock_hz=1.83e9, l2_bytes=50e6)
WHOLE = Chip(peak=45e12, bandwidth=0.4e12, sm_count=1, clock_hz=0.0, l2_bytes=0.0)
FORMS = [
    GemmForm(),
    GemmForm(1.0, 1.0, quantises_input=True, waits_for_host=True, library="unsplit"),
    *(GemmForm(1.0, 1.0, quantises_input=True, library=name) for name in LIBRARIES),
]
SIZE = st.integers(1, 2**27)
CHIP = st.sampled_from([H100, WHOLE])
FORM = st.sampled_from(FORMS)
SWITCH = 0.5
"""How much faster the next larger m may be where a library's rule takes another tile."""


def sizes(**given):
    return {name: np.asarray(value, dtype=float) for name, value in given.items()}


def start(form):
    return {p.name: p.start for p in form.parameters}


def seconds(form, chip, m, n, k, values=None):
    return form.seconds(chip, values or start(form), sizes(m=m, n=n, k=k))


@given(FORM, CHIP, SIZE, SIZE, SIZE)
def test_every_shape_takes_a_positive_finite_time(form, chip, m, n, k):
    for variant in (form, form.in_step()):
        time = seconds(variant, chip, m, n, k, start(form))
        assert np.isfinite(time)
        assert time > 0
        assert np.isfinite(variant.features(chip, sizes(m=m, n=n, k=k))).all()


@given(st.sampled_from(["m", "n", "k"]), CHIP, SIZE, SIZE, SIZE, st.floats(1, 4))
def test_a_larger_multiply_is_never_faster_where_the_library_picks(axis, chip, m, n, k, factor):
    # Each tile's time grows with each size, and so does the least of them.
    form = GemmForm()
    small = sizes(m=m, n=n, k=k)
    large = small | {axis: np.floor(small[axis] * factor)}
    values = start(form)
    assert form.seconds(chip, values, large) >= form.seconds(chip, values, small) * (1 - 1e-9)


@given(st.sampled_from(sorted(LIBRARIES)), SIZE, SIZE, SIZE, st.floats(1, 4))
def test_a_rule_of_m_costs_at_most_a_step_down(library, m, n, k, factor):
    form = GemmForm(1.0, 1.0, library=library)
    small, large = seconds(form, H100, m, n, k), seconds(form, H100, int(m * factor), n, k)
    assert large >= small * (1 - SWITCH)
    assert seconds(form, H100, m, n, int(k * factor)) >= small * (1 - 1e-9)


@given(FORM, CHIP, SIZE, SIZE, SIZE)
def test_a_cold_call_stays_under_the_fitted_roof(form, chip, m, n, k):
    cold, values = form.in_step(), start(form)
    compute = 2 * m * n * k / (values["compute"] * chip.peak)
    read = (form.input_bytes * m * k + form.weight_bytes * n * k) / values["memory"]
    memory = (read + form.output_bytes * m * n / values["write"]) / chip.bandwidth
    assert seconds(cold, chip, m, n, k, values) >= max(compute, memory) * (1 - 1e-9)


@given(FORM, SIZE, SIZE, SIZE)
def test_cold_operands_are_never_faster_than_warm_ones(form, m, n, k):
    bare = GemmForm(form.input_bytes, form.weight_bytes, library=form.library)
    values = start(form) | start(GemmForm())
    warm = seconds(bare, H100, m, n, k, values)
    assert seconds(bare.in_step(), H100, m, n, k, values) >= warm * (1 - 1e-9)


def test_quantisation_and_host_are_parts_that_a_step_leaves_out():
    form = gemm_form("fp8_block", load_hardware("h100-sxm"))
    values = start(form)
    shape = sizes(m=8.0, n=512.0, k=512.0)
    measured = form.seconds(H100, values, shape)
    inside = form.in_step().seconds(H100, values, shape)
    assert measured > values["host"] * 1e-6
    assert inside < 1e-5
    names = {p.name for p in form.in_step().parameters}
    assert names < {p.name for p in form.parameters}


def test_a_device_without_units_has_rates_alone():
    form = GemmForm()
    shape = sizes(m=4096.0, n=4096.0, k=4096.0)
    values = start(form)
    slow = values | {"tile": 20.0, "step": 10.0, "l2": 0.1}
    assert form.seconds(WHOLE, slow, shape) == form.seconds(WHOLE, values, shape)


def test_shapes_broadcast_and_blocks_join():
    form = GemmForm()
    m = np.arange(1.0, 301.0)[:, None]
    k = np.linspace(64, 8192, 100)[None, :]
    whole = form.seconds(H100, start(form), sizes(m=m, n=4096.0, k=k))
    assert whole.shape == (300, 100)
    assert whole[7, 3] == seconds(form, H100, 8.0, 4096.0, k[0, 3])
    assert list(form.regime(sizes(m=np.array([1, 64, 65]), n=8, k=8))) == [0, 0, 1]


@pytest.mark.parametrize(
    ("dtype", "hardware", "library"),
    [
        ("bfloat16", "h100-sxm", "cublas"),
        ("fp8", "h200-sxm", "vllm-sm90"),
        ("fp8", "b200-sxm", "vllm-sm100"),
        ("fp8", "l40s", "vllm-sm89"),
        ("fp8", "mi300x", "unsplit"),
        ("nvfp4", "b200-sxm", "unsplit"),
    ],
)
def test_the_library_follows_format_and_device(dtype, hardware, library):
    profile = load_hardware(hardware)
    assert gemm_form(dtype, profile).library == library
    assert gemm_chip(dtype, profile).bandwidth == profile.memory_bandwidth


def test_what_a_device_or_the_tables_lack_is_said():
    with pytest.raises(InputError, match="has no fp8 path"):
        gemm_chip("fp8", load_hardware("a100-sxm-80gb"))
    with pytest.raises(InputError, match="int3"):
        gemm_form("int3", load_hardware("h100-sxm"))


def test_the_kernel_of_blockwise_fp8_follows_the_shape():
    shapes = sizes(m=np.array([1, 32, 31, 64]), n=np.array([64, 64, 32, 4096]), k=128)
    hopper = ["flashinfer", "deepgemm", "cutlass", "deepgemm"]
    assert block_kernel(load_hardware("h100-sxm"), shapes) == hopper
    assert block_kernel(load_hardware("b200-sxm"), shapes)[0] == "deepgemm"
    assert block_kernel(load_hardware("l40s"), shapes) == ["triton"] * 4
