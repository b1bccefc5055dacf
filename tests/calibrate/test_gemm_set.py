"""The GEMM model on measured rows that it hasn't seen."""

import numpy as np
import pytest

from calibrate.sets.gemm import calibrate_gemm, rows_of, shares
from perfmodel.kernels.forms.gemm import GemmForm
from perfmodel.specs.hardware import load_hardware
from tests.data import REASON, data_dir

needs_data = pytest.mark.skipif(data_dir() is None, reason=REASON)


def table(gpu, dtype):
    pd = pytest.importorskip("pandas")
    folder = data_dir()
    assert folder is not None
    rows = pd.read_parquet(folder / "measurements" / "gemm.parquet")
    return rows[(rows["gpu"] == gpu) & (rows["dtype"] == dtype)]


@needs_data
@pytest.mark.parametrize(
    ("gpu", "dtype", "median", "p90"),
    [("h100-sxm", "bfloat16", 4.5, 13.5), ("h100-sxm", "fp8", 4.0, 12.5)],
)
def test_three_hundred_rows_predict_the_others(gpu, dtype, median, p90):
    (fit,) = calibrate_gemm(table(gpu, dtype), load_hardware(gpu), folds=0)
    assert len(fit.calibrated.used) == 300
    everything = fit.scores["all"]
    assert everything.rows == 8700
    assert everything.median < median
    assert everything.p90 < p90
    assert abs(everything.bias) < 2
    assert 84 < everything.coverage < 95


@needs_data
def test_blockwise_fp8_is_fitted_by_kernel():
    rows = table("h100-sxm", "fp8_block").sample(2000, random_state=0)
    fits = calibrate_gemm(rows, load_hardware("h100-sxm"), folds=0)
    assert {fit.kernel for fit in fits} == {"cutlass", "deepgemm", "flashinfer"}
    assert sum(len(fit.calibrated.used) for fit in fits) <= 300
    for fit in fits:
        assert fit.scores["all"].median < 6
        form = fit.calibrated.form
        assert isinstance(form, GemmForm)
        shape = {name: np.array([size]) for name, size in (("m", 8.0), ("n", 512.0), ("k", 512.0))}
        cold, _, _ = fit.calibrated.predict(shape, form.in_step())
        assert cold[0] < 20e-6


@needs_data
def test_rows_of_several_devices_are_refused():
    rows = table("h100-sxm", "bfloat16").head(4).copy()
    rows.loc[rows.index[0], "gpu"] = "l40s"
    with pytest.raises(ValueError, match="one gpu"):
        rows_of(rows)


def test_each_kernel_gets_its_share():
    kernels = np.asarray(["a"] * 900 + ["b"] * 100)
    assert shares(kernels, 300) == {"a": 246, "b": 54}
    assert sum(shares(kernels, 10).values()) <= 10
