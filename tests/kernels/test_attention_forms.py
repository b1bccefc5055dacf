"""Forms of attention: limits that can be worked out by hand, and properties of any shape."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.fit import fit_form
from perfmodel.kernels.forms import mla
from perfmodel.kernels.forms.attention_decode import AttentionDecode
from perfmodel.kernels.forms.attention_parts import Kernel
from perfmodel.kernels.forms.attention_prefill import AttentionPrefill
from perfmodel.kernels.forms.base import Chip
from perfmodel.kernels.forms.mla import MlaDecode, MlaPrefill
from perfmodel.operators.masks import causal_pairs

H100 = Chip(peak=989.4e12, bandwidth=3350e9, sm_count=132, clock_hz=1.83e9, l2_bytes=50e6)
LONE = Chip(peak=1e12, bandwidth=1e11, sm_count=1, clock_hz=1e9, l2_bytes=1e6)
KERNELS: tuple[Kernel, ...] = ("any", "fa2", "fa3", "trtllm", "flashinfer")
MLA_KERNELS: tuple[mla.Kernel, ...] = ("flash_attn", "flashmla", "triton")
FORMS = [
    *(AttentionDecode(kernel=kernel) for kernel in KERNELS),
    *(AttentionPrefill(kernel=kernel) for kernel in KERNELS),
    *(form(kernel=kernel) for form in (MlaDecode, MlaPrefill) for kernel in MLA_KERNELS),
]


def start(form):
    return {p.name: p.start for p in form.parameters}


def shapes(**sizes):
    default = {
        "batch": 1, "kv_len": 1024, "q_len": 1024, "prefix_len": 0, "heads": 32, "kv_heads": 8,
        "head_dim": 128, "window": 0, "kv_bytes": 2,
    }  # fmt: skip
    return {name: np.asarray(size, dtype=np.float64) for name, size in (default | sizes).items()}


def decode(**sizes):
    return shapes(**({"q_len": 1} | sizes))


def seconds(form, sizes, chip=H100, **values):
    return float(form.seconds(chip, start(form) | values, sizes))


def test_long_contexts_are_read_at_a_share_of_the_bandwidth():
    # 64 × 131,072 keys × 8 heads × 128 × 2 (K, V) × 2 B = 34.4 GB; at 0.8 of 3.35 TB/s 12.8 ms.
    sizes = decode(batch=64, kv_len=131072)
    read = 64 * 131072 * 8 * 128 * 2 * 2
    time = seconds(AttentionDecode(cold=True), sizes, em=0.8, tb=0.02, cg=0.003)
    assert time == pytest.approx(read / (0.8 * 3350e9), rel=0.01)


def test_a_small_cache_is_read_from_l2_unless_cold():
    # 4 × 2,048 × 8 × 128 × 4 B = 33.6 MB, within the H100's 50 MB.
    sizes = decode(batch=4, kv_len=2048)
    warm = seconds(AttentionDecode(), sizes, l2c=1.0, l2=4.0, tb=0.02, tp=0.02, p=8.0)
    cold = seconds(AttentionDecode(cold=True), sizes, l2=4.0, tb=0.02, tp=0.02, p=8.0)
    assert cold - warm == pytest.approx(33.6e6 / 3350e9 / 0.85 * (1 - 1 / 4), rel=0.2)


def test_long_prompts_run_at_a_share_of_the_peak():
    # 4 · 32 heads · 128 · (32,768² / 2) pairs = 8.8 TFLOP: 17.8 ms at half of 989.4 TFLOP/s.
    time = seconds(AttentionPrefill(cold=True), shapes(q_len=32768), ec=0.5, ex=3000.0)
    assert time == pytest.approx(4 * 32 * 128 * 32768**2 / 2 / (0.5 * 989.4e12), rel=0.05)


def test_one_short_call_takes_the_fixed_time():
    time = seconds(AttentionDecode(), decode(kv_len=1), t0=10.0, tp=0.02, tb=0.02)
    assert time == pytest.approx(10e-6, rel=0.02)


def test_latents_are_read_once_for_all_heads():
    # 64 × 65,536 × 576 × 2 B = 4.83 GB whatever the number of heads.
    sizes = decode(batch=64, kv_len=65536, heads=1)
    time = seconds(MlaDecode(hosted=False), sizes, em=0.8, ec=1.0, td=0.5)
    assert time == pytest.approx(64 * 65536 * 576 * 2 / (0.8 * 3350e9), rel=0.05)


@pytest.mark.parametrize("kernel", ["any", "fa3", "trtllm", "flashinfer"])
def test_a_window_at_least_as_long_as_the_context_changes_nothing(kernel):
    for form, sizes in ((AttentionDecode, decode), (AttentionPrefill, shapes)):
        with_window = seconds(form(kernel=kernel), sizes(window=1024))
        assert with_window == seconds(form(kernel=kernel), sizes(window=0))
        assert seconds(form(kernel=kernel), sizes(window=128)) < with_window


def test_verifying_several_tokens_costs_little_while_keys_are_the_load():
    one = seconds(AttentionDecode(cold=True), decode(batch=64, kv_len=16384))
    four = seconds(AttentionDecode(cold=True), decode(batch=64, kv_len=16384, q_len=4))
    assert one < four < 1.3 * one


def test_a_cached_prefix_costs_its_pairs():
    # Second half of a prompt after the first: three quarters of the whole triangle.
    whole = seconds(AttentionPrefill(), shapes(q_len=16384), t0=0.5, ckv=0.02, cq=0.01)
    half = seconds(
        AttentionPrefill(), shapes(q_len=8192, prefix_len=8192), t0=0.5, ckv=0.02, cq=0.01
    )
    assert half == pytest.approx(0.75 * whole, rel=0.05)


sizes_of_calls = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 4096),
        "kv_len": st.integers(1, 2**20),
        "q_len": st.integers(1, 2**15),
        "prefix_len": st.integers(0, 2**18),
        "kv_heads": st.sampled_from([1, 2, 4, 8, 96]),
        "group": st.integers(1, 128),
        "head_dim": st.sampled_from([32, 64, 80, 128, 192, 256, 512]),
        "window": st.sampled_from([0, 1, 128, 1024, 8192]),
        "kv_bytes": st.sampled_from([0.5, 1, 2]),
    }
)


def call(form, drawn):
    drawn = dict(drawn)
    drawn["heads"] = drawn["kv_heads"] * drawn.pop("group")
    if isinstance(form, AttentionDecode | MlaDecode):
        drawn["q_len"] = min(drawn["q_len"], 8)
        drawn["kv_len"] = max(drawn["kv_len"], drawn["q_len"])
    return shapes(**drawn)


@settings(deadline=None, max_examples=60)
@given(drawn=sizes_of_calls, form=st.sampled_from(FORMS), chip=st.sampled_from([H100, LONE]))
def test_any_call_takes_a_positive_finite_time(drawn, form, chip):
    sizes = call(form, drawn)
    time = form.seconds(chip, start(form), sizes)
    assert np.isfinite(time)
    assert time > 0
    assert np.isfinite(form.features(chip, sizes)).all()
    assert int(form.regime(sizes)) in range(len(form.regimes))


@settings(deadline=None, max_examples=60)
@given(drawn=sizes_of_calls, kernel=st.sampled_from(KERNELS))
def test_a_cold_call_stays_above_the_roof(drawn, kernel):
    form = AttentionDecode(cold=True, kernel=kernel)
    sizes = call(form, drawn)
    keys = np.where(
        sizes["window"] > 0, np.minimum(sizes["window"], sizes["kv_len"]), sizes["kv_len"]
    )
    read = 2 * sizes["batch"] * sizes["kv_heads"] * sizes["head_dim"] * keys * sizes["kv_bytes"]
    assert seconds(form, sizes) >= float(read / H100.bandwidth)

    prompt = AttentionPrefill(cold=True, kernel=kernel)
    sizes = call(prompt, drawn)
    limit = np.where(sizes["window"] > 0, sizes["window"], np.inf)
    seen = np.minimum(limit, sizes["prefix_len"] + sizes["q_len"])
    pairs = causal_pairs(sizes["q_len"], np.minimum(sizes["prefix_len"], seen), seen)
    flops = 4 * sizes["batch"] * sizes["heads"] * sizes["head_dim"] * pairs
    assert seconds(prompt, sizes) >= float(flops / H100.peak) * (1 - 1e-9)


LEAST = {"batch": 0.97, "kv_len": 0.97, "head_dim": 0.97, "q_len": 0.7, "prefix_len": 0.5}
"""Of a call's time, what one of twice the size takes at least. Of 400,000 random calls under the
priors 0.1 to 0.4 % fall by more than 3 % where more queries or a longer prefix are split over SMs
that were idle, to 0.77 and 0.56 at worst: the form gives splits away too abruptly there."""


@settings(deadline=None, max_examples=80)
@given(
    drawn=sizes_of_calls,
    form=st.sampled_from([AttentionDecode(), AttentionPrefill(), AttentionPrefill(kernel="fa3")]),
    name=st.sampled_from(list(LEAST)),
)
def test_twice_the_size_takes_hardly_less(drawn, form, name):
    small = call(form, drawn)
    large = small | {name: 2 * small[name]}
    assert seconds(form, large) >= LEAST[name] * seconds(form, small)


def test_a_window_leaves_no_more_to_split():
    """A prefix that a window cuts takes as long whatever its length."""
    drawn = {"batch": 1, "kv_len": 1, "q_len": 1, "prefix_len": 269, "kv_heads": 1, "group": 1,
             "head_dim": 512, "window": 128, "kv_bytes": 0.5}  # fmt: skip
    small = call(AttentionPrefill(), drawn)
    large = small | {"prefix_len": 2 * small["prefix_len"]}
    assert seconds(AttentionPrefill(), large) == seconds(AttentionPrefill(), small)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.name} {vars_of(form)}")
def test_a_fit_recovers_times_that_the_form_made(form):
    rng = np.random.default_rng(3)
    values = {p.name: p.start * np.exp(rng.normal() * p.sigma * 0.3) for p in form.parameters}
    values = {p.name: float(np.clip(values[p.name], p.low, p.high)) for p in form.parameters}

    def draw(rows):
        return shapes(
            batch=2.0 ** rng.integers(0, 9, rows),
            kv_len=2.0 ** rng.integers(3, 17, rows),
            q_len=np.ones(rows) if "decode" in form.name else 2.0 ** rng.integers(0, 14, rows),
            kv_heads=2.0 ** rng.integers(0, 4, rows),
            heads=2.0 ** rng.integers(3, 7, rows),
            head_dim=rng.choice([64, 128, 192, 256, 512], rows),
            window=rng.choice([0, 0, 128], rows),
        )

    rows, unseen = draw(250), draw(250)
    made = form.seconds(H100, values, rows) * np.exp(rng.normal(size=250) * 0.01)
    fitted = fit_form(form, H100, rows, made, starts=1)
    found = form.seconds(H100, fitted.values, unseen)
    off = np.abs(np.log(found / form.seconds(H100, values, unseen)))
    assert np.median(off) < 0.01
    assert np.percentile(off, 90) < 0.04


def vars_of(form):
    return getattr(form, "kernel", "")
