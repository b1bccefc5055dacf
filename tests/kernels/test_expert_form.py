"""The expert layer's form: limits by hand, load by routing, recovery of known parameters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.fit import fit_form
from calibrate.sets.experts import calibrate_experts, rows_of
from perfmodel.errors import InputError
from perfmodel.kernels.forms.base import Chip
from perfmodel.kernels.forms.experts import ExpertsForm, layer_shapes
from perfmodel.kernels.forms.routing import EVEN, TILE_ROWS, UNIFORM, load
from perfmodel.operators.feed_forward import expected_experts
from perfmodel.specs.hardware import load_hardware
from tests.data import REASON, data_dir

needs_data = pytest.mark.skipif(data_dir() is None, reason=REASON)
H100 = Chip(peak=989.4e12, bandwidth=3.35e12, sm_count=132, clock_hz=1.83e9, l2_bytes=50e6)
WHOLE = Chip(peak=45e12, bandwidth=0.4e12, sm_count=1, clock_hz=0.0, l2_bytes=0.0)
FORM = ExpertsForm()
START = {p.name: p.start for p in FORM.parameters}
LAYER = {"hidden": 4096, "inter": 1536, "topk": 8, "experts": 128, "weight_bytes": 2.0}
# no fixed cost, no passes, no ramp: what is left is the two GEMMs
BARE = START | {
    "start": 1e-6,
    "ranks_start": 1e-6,
    "per_128_experts": 1e-6,
    "hidden_passes": 1e-6,
    "inter_passes": 1e-6,
    "prologue": 1e-6,
    "half_rows": 1e-6,
    "wave": 1e-6,
    "block_rate": 1e6,
    "overlap": 20.0,
}


def seconds(values=START, chip=H100, form=FORM, **given):
    return form.seconds(chip, values, layer_shapes(**(LAYER | {"tokens": 64} | given)))


def loads(tokens, topk, experts, ranks, law):
    return load(*(np.asarray(x, dtype=float) for x in (tokens, topk, experts, ranks, law)))


def test_one_expert_is_two_dense_products():
    tokens, hidden, inter = 16384, 4096, 8192
    one = seconds(BARE, tokens=tokens, hidden=hidden, inter=inter, topk=1, experts=1)
    flops = 2 * tokens * hidden * 3 * inter
    # the soft minimum of twelve tiles that cost the same is 12^(-1/12) of one's
    assert one == pytest.approx(12 ** (-1 / 12) * flops / (BARE["compute"] * H100.peak), rel=0.02)


def test_balanced_experts_do_the_work_of_a_dense_layer():
    one = seconds(BARE, tokens=65536, topk=1, experts=1, routing=EVEN)
    many = seconds(BARE, tokens=65536 // 8, topk=8, experts=64, routing=EVEN)
    assert many == pytest.approx(one, rel=0.01)


def test_few_tokens_take_the_time_to_read_the_experts_they_touch():
    time = seconds(BARE, tokens=4, routing=EVEN, form=FORM.in_step())
    read = 32 * 3 * 4096 * 1536 * 2
    assert time == pytest.approx(read / (BARE["memory"] * H100.bandwidth), rel=0.02)
    assert time == pytest.approx(1.5 * seconds(BARE, tokens=4, routing=EVEN, gated=False,
                                               form=FORM.in_step()), rel=0.02)  # fmt: skip


def test_misaligned_slices_are_slower():
    aligned = seconds(tokens=64, inter=512, moe_tp=16)
    assert seconds(tokens=64, inter=384, moe_tp=16) > aligned


def test_even_load_by_hand():
    found = loads([1, 16, 4096], 8, 128, 4, EVEN)
    assert found.rows.tolist() == [2, 32, 8192]
    assert found.active.tolist() == [2, 32, 32]
    # 256 rows each
    assert [int(t[-1]) for t in found.tiles] == [32 * 256 // bm for bm in TILE_ROWS]


def test_uniform_load_touches_the_expected_experts():
    found = loads([4, 100], 8, 128, 1, UNIFORM)
    assert found.active == pytest.approx(expected_experts(128, 8, np.array([4, 100])))
    assert found.rows.tolist() == [32, 800]


def test_power_law_loads_the_heaviest_rank():
    tokens = 2.0 ** np.arange(0, 15)
    even, mild, steep = (loads(tokens, 8, 128, 8, law) for law in (EVEN, 1.01, 1.2))
    assert (mild.rows >= even.rows * 0.999).all()
    assert (steep.rows[8:] > 1.4 * even.rows[8:]).all()
    for found in (mild, steep):
        assert (found.active <= np.minimum(found.rows, 16) * 1.001).all()
        assert (np.diff(found.rows) >= 0).all()
    whole = loads(tokens, 8, 128, 1, 1.2)
    assert whole.rows == pytest.approx(tokens * 8, rel=1e-6)
    assert loads(2, 8, 128, 1, 1.01).active == pytest.approx(16, rel=0.05)  # as measured


def test_the_older_rule_gives_few_tokens_to_the_first_rank():
    args = [np.asarray(x, dtype=float) for x in (1, 8, 256, 32, 1.01)]
    assert load(*args, older=True).active == pytest.approx(8)
    assert load(*args).active == pytest.approx(1, abs=0.2)


@settings(deadline=None, max_examples=100)
@given(
    chip=st.sampled_from([H100, WHOLE]),
    tokens=st.integers(1, 2**20),
    width=st.tuples(st.integers(1, 2**15), st.integers(1, 2**15)),
    topk=st.integers(1, 16),
    spare=st.integers(0, 500),
    ranks=st.integers(1, 64),
    gated=st.booleans(),
    routing=st.sampled_from([EVEN, UNIFORM]),
)
def test_any_layer_takes_a_positive_finite_time_that_grows(
    chip, tokens, width, topk, spare, ranks, gated, routing
):
    hidden, inter = width
    given = {
        "tokens": tokens,
        "hidden": hidden,
        "inter": inter,
        "topk": topk,
        "experts": (topk + spare) * ranks,
        "moe_ep": ranks,
        "gated": gated,
        "routing": routing,
    }
    time = seconds(chip=chip, **given)
    assert np.isfinite(time)
    assert time > 0
    shapes = layer_shapes(**(LAYER | given))
    assert np.isfinite(FORM.features(chip, shapes)).all()
    assert FORM.in_step().seconds(chip, START, shapes) >= time * (1 - 1e-9)
    for axis, size in (("tokens", 2 * tokens), ("hidden", 2 * hidden)):
        assert seconds(chip=chip, **(given | {axis: size})) >= time * (1 - 1e-9)


def test_arrays_and_numbers_agree():
    tokens = np.array([1.0, 7.0, 64.0, 3000.0])
    together = seconds(tokens=tokens, routing=1.01, moe_ep=4)
    assert together == pytest.approx([float(seconds(tokens=t, routing=1.01, moe_ep=4))
                                      for t in tokens])  # fmt: skip


def test_known_parameters_are_recovered():
    rng = np.random.default_rng(3)
    count = 300
    shapes = layer_shapes(
        np.asarray(2.0 ** rng.integers(0, 15, count), dtype=np.float64),
        hidden=rng.choice([2048, 4096, 7168], count),
        inter=rng.choice([768, 1536, 4096], count),
        topk=rng.choice([2, 4, 8], count),
        experts=rng.choice([16, 64, 256], count),
        weight_bytes=2.0,
    )
    true = START | {"start": 40.0, "compute": 0.55, "memory": 0.85, "hidden_passes": 5.0}
    measured = FORM.seconds(H100, true, shapes) * np.exp(rng.normal(0, 0.01, count))
    fitted = fit_form(FORM, H100, shapes, measured, starts=1)
    assert np.median(np.abs(fitted.log_residuals)) < 0.015
    for name, rel in (("start", 0.1), ("memory", 0.05), ("hidden_passes", 0.1)):
        assert fitted.values[name] == pytest.approx(true[name], rel=rel)


def table(gpu, dtype):
    pd = pytest.importorskip("pandas")
    folder = data_dir()
    assert folder is not None
    rows = pd.read_parquet(folder / "measurements" / "moe.parquet")
    return rows[(rows["gpu"] == gpu) & (rows["dtype"] == dtype)]


@needs_data
def test_a_hundred_and_fifty_rows_predict_the_others():
    rows = table("h100-sxm", "bfloat16").sample(2500, random_state=0)
    (fit,) = calibrate_experts(rows, load_hardware("h100-sxm"), count=150, folds=0)
    everything = fit.scores["all"]
    assert len(fit.calibrated.used) == 150
    assert everything.rows == len(rows) - 150
    assert everything.median < 4.5
    assert everything.p90 < 15
    assert abs(everything.bias) < 2
    assert 80 < everything.coverage < 96


@needs_data
def test_kernels_of_one_format_are_fitted_apart():
    rows = table("h100-sxm", "fp8_block").sample(1500, random_state=0)
    fits = calibrate_experts(rows, load_hardware("h100-sxm"), count=120, folds=0)
    assert len(fits) == 2
    assert sum(len(fit.calibrated.used) for fit in fits) <= 120
    for fit in fits:
        assert fit.scores["all"].median < 12


@needs_data
def test_mixed_rows_and_impossible_formats_are_refused():
    rows = table("h100-sxm", "bfloat16").head(4).copy()
    with pytest.raises(InputError, match="fp4"):
        calibrate_experts(rows.assign(dtype="nvfp4"), load_hardware("h100-sxm"))
    rows.loc[rows.index[0], "gpu"] = "l40s"
    with pytest.raises(ValueError, match="one gpu"):
        rows_of(rows)
