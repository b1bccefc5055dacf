"""Forms that know no tiles: GEMM, grouped GEMM, attention, elementwise, launch."""

import numpy as np
import pytest

from calibrate.fit import fit_form
from perfmodel.kernels.forms.base import Chip
from perfmodel.kernels.forms.elementwise import ElementwiseForm
from perfmodel.kernels.forms.launch import LaunchForm
from perfmodel.kernels.forms.smooth import SmoothGemm, SmoothGrouped
from perfmodel.kernels.forms.smooth_attention import SmoothAttention
from perfmodel.operators.masks import causal_pairs

CORE = Chip(peak=4e11, bandwidth=4e10, sm_count=1, clock_hz=2.5e9, l2_bytes=32e6)
FORMS = [
    SmoothGemm(), SmoothGemm(4.0, 4.0, 4.0), SmoothGrouped(), SmoothAttention(),
    SmoothAttention(causal=True), ElementwiseForm(),
]  # fmt: skip
TOLERANCE = 1e-12
"""A smooth form never falls as a size grows: beyond rounding."""


def grid(form, count=400, seed=0):
    rng = np.random.default_rng(seed)

    def sizes(low, high):
        return np.round(np.exp(rng.uniform(np.log(low), np.log(high), count)))

    if isinstance(form, SmoothGemm):
        return {"m": sizes(1, 16384), "n": sizes(1, 131072), "k": sizes(1, 131072)}
    if isinstance(form, SmoothGrouped):
        return {
            "rows": sizes(1, 65536), "active": sizes(1, 256), "elements": sizes(64, 1e8),
            "widths": sizes(64, 1e5), "calls": np.ones(count),
        }  # fmt: skip
    if isinstance(form, ElementwiseForm):
        return {name: sizes(64, 1e9) for name in ("norm", "silu", "rotary", "copy")}
    kv_heads = sizes(1, 16)
    made = {
        "batch": sizes(1, 256), "kv_heads": kv_heads, "heads": kv_heads * sizes(1, 8),
        "head_dim": sizes(16, 256), "window": np.zeros(count),
    }  # fmt: skip
    if form.causal:
        return made | {"q_len": sizes(1, 32768), "prefix_len": sizes(1, 32768)}
    return made | {"kv_len": sizes(1, 1e6)}


def centre(form):
    return {p.name: p.start for p in form.parameters}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_times_are_positive_finite_and_never_fall_with_a_size(form):
    shapes, values = grid(form), centre(form)
    time = form.seconds(CORE, values, shapes)
    assert (time > 0).all()
    assert np.isfinite(time).all()
    for name in shapes.keys() - {"heads", "kv_heads", "active", "window", "calls"}:
        more = form.seconds(CORE, values, shapes | {name: shapes[name] * 2})
        assert (more >= time * (1 - TOLERANCE)).all(), name


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_known_parameters_are_found_again(form):
    shapes = grid(form, 300)
    rng = np.random.default_rng(1)
    true = {
        p.name: float(np.clip(p.start * np.exp(0.3 * p.sigma * rng.normal()), p.low, p.high))
        for p in form.parameters
    }
    times = form.seconds(CORE, true, shapes)
    fitted = fit_form(form, CORE, shapes, times)
    again = form.seconds(CORE, fitted.values, shapes)
    assert np.median(np.abs(again / times - 1)) < 0.01


def test_a_gemm_isnt_faster_than_its_own_shares_of_the_roof():
    form, shapes = SmoothGemm(), grid(SmoothGemm())
    values = centre(form)
    m, n, k = (shapes[name] for name in ("m", "n", "k"))
    time = form.seconds(CORE, values, shapes)
    assert (time >= 2 * m * n * k / (values["compute"] * CORE.peak)).all()
    best = max(values["memory"], values["vector"])
    assert (time >= 2 * (m * k + n * k + m * n) / (best * CORE.bandwidth)).all()


def test_a_single_row_takes_the_faster_of_two_kernels():
    form, values = SmoothGemm(), centre(SmoothGemm()) | {"vector": 1.0, "memory": 0.2}
    one, two = form.seconds(
        CORE, values, {"m": np.array([1.0, 2.0]), "n": np.array(4096.0), "k": np.array(4096.0)}
    )
    assert one == pytest.approx(values["start"] * 1e-6 + 2 * 4096**2 / CORE.bandwidth, rel=0.05)
    assert two > 3 * one


def test_grouped_rows_by_hand():
    # 8 rows over 2 matrices of 1,000 elements, no overlap: arithmetic and traffic add up
    values = {"start": 3.0, "each": 2.0, "compute": 0.5, "half_m": 4.0, "memory": 0.5,
              "overlap": 1.0}  # fmt: skip
    sizes = {"rows": 8.0, "active": 2.0, "elements": 1e3, "widths": 70.0, "calls": 1.0}
    shapes = {name: np.array([value]) for name, value in sizes.items()}
    compute = 2 * 1e3 * (8 + 4 * 2) / 2e11
    memory = (2 * 2 * 1e3 + 2 * 8 * 70) / 2e10
    expected = 3e-6 + 2 * 2e-6 + compute + memory
    assert SmoothGrouped().seconds(CORE, values, shapes) == pytest.approx([expected])


def test_attention_decode_by_hand():
    values = {"start": 5.0, "unit": 1.0, "compute": 0.1, "score": 1.0, "memory": 0.5}
    shapes = {"batch": 2.0, "kv_len": 100.0, "heads": 8.0, "kv_heads": 4.0, "head_dim": 64.0}
    rows = {name: np.array([value]) for name, value in shapes.items()}
    pairs = 16 * 100 * (4 * 64 / 4e10 + 1e-9)
    traffic = 2 * 2 * 4 * 64 * 100 * 2 + 2 * 16 * 64 * 2
    expected = 5e-6 + 16e-6 + pairs + traffic / 2e10
    assert SmoothAttention().seconds(CORE, values, rows) == pytest.approx([expected])
    windowed = SmoothAttention().seconds(CORE, values, rows | {"window": np.array([10.0])})
    assert windowed[0] < 0.7 * expected


def test_a_prompt_computes_what_the_mask_keeps_and_its_tiles_corners():
    form, values = SmoothAttention(causal=True), centre(SmoothAttention(causal=True))
    lone = values | {"unit": 1e-9, "start": 1e-9, "memory": 1e9, "half": 16.0}
    shapes = {"batch": 1.0, "q_len": 640.0, "heads": 1.0, "kv_heads": 1.0, "head_dim": 64.0}
    rows = {name: np.array([value]) for name, value in shapes.items()}
    each = 4 * 64 / (lone["compute"] * CORE.peak) + lone["score"] * 1e-9
    pairs = form.seconds(CORE, lone, rows)[0] / each
    assert pairs == pytest.approx((causal_pairs(640, 0) + 640 * 63 / 2) * (1 + 16 / 64), rel=1e-3)


def test_elementwise_operations_add_up():
    form, values = ElementwiseForm(), centre(ElementwiseForm())
    parts = [{"norm": np.array([1e6])}, {"copy": np.array([2e6])}]
    both = form.seconds(CORE, values, parts[0] | parts[1])
    assert both == pytest.approx(sum(form.seconds(CORE, values, part) for part in parts))
    fused = ElementwiseForm(fused=True).seconds(CORE, values, parts[0])
    assert fused == pytest.approx(2e-6 + 1e6 / (values["norm"] * CORE.bandwidth))
    # Unfused a norm is six kernels, and what passes between them spills.
    spill = values["spill"] / (1 + (values["spill_mib"] * 2**20 / 1e6) ** 2)
    expected = 12e-6 + 1e6 / (values["norm"] * CORE.bandwidth) * (1 + spill)
    assert form.seconds(CORE, values, parts[0]) == pytest.approx(expected)


def test_results_that_are_mapped_pay_for_their_pages():
    form = ElementwiseForm(paged=True)
    values = centre(form) | {"spill": 0.01}
    below, above = form.seconds(CORE, values, {"rotary": np.array([2.0**26, 2.0**26 + 64])})
    pages = 5 * 2**25 / 4096 * values["page"] * 1e-6
    assert above - below == pytest.approx(pages, rel=1e-3)
    assert form.regime({"norm": np.array([1.0, 1e9])}).tolist() == [0, 1]


def test_a_launch_is_the_way_it_is_made():
    graph = np.array([0.0, 1.0])
    time = LaunchForm().seconds(CORE, {"eager": 4.0, "graph": 1.0}, {"graph": graph})
    assert time == pytest.approx([4e-6, 1e-6])
