import numpy as np
import pytest

from calibrate.fit import _as_written, fit_form
from perfmodel.kernels.forms.gemm import GemmForm
from tests.calibrate.toy import CHIP, Toy, rows
from tests.kernels.test_gemm_form import H100


def test_known_parameters_come_back():
    shapes, times = rows(200, noise=0.02)
    found = fit_form(Toy(), CHIP, shapes, times)
    assert found.values["start"] == pytest.approx(5.0, rel=0.02)
    assert found.values["rate"] == pytest.approx(0.4, rel=0.02)
    assert found.at_bound == ()
    assert 0 < found.relative_errors["rate"] < 0.02
    assert np.median(np.abs(found.log_residuals)) < 0.03


def test_switched_kernels_do_not_bend_the_curve():
    shapes, times = rows(200, noise=0.02)
    times[::10] *= 2.5
    found = fit_form(Toy(), CHIP, shapes, times)
    assert found.values["rate"] == pytest.approx(0.4, rel=0.05)


def test_a_parameter_that_hits_its_bound_is_named():
    shapes, times = rows(100, rate=3.0)
    assert fit_form(Toy(), CHIP, shapes, times).at_bound == ("rate",)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_time_that_cannot_be_is_refused(bad):
    shapes, times = rows(10)
    times[3] = bad
    with pytest.raises(ValueError, match="positive and finite"):
        fit_form(Toy(), CHIP, shapes, times)


def gemm_rows(count, seed, values):
    rng = np.random.default_rng(seed)
    shapes = {name: np.exp(rng.uniform(0, 9, count)).round() + 32 for name in ("m", "n", "k")}
    times = GemmForm().seconds(H100, values, shapes)
    return shapes, times * np.exp(0.03 * rng.normal(size=count))


def test_priors_let_thirty_rows_fix_a_dozen_parameters():
    form = GemmForm()
    truth = {p.name: p.start for p in form.parameters} | {"start": 4.0, "compute": 0.6}
    shapes, times = gemm_rows(30, 1, truth)
    found = fit_form(form, H100, shapes, times, starts=1)
    assert found.values["start"] == pytest.approx(4.0, rel=0.1)
    assert found.values["compute"] == pytest.approx(0.6, rel=0.15)
    unseen, measured = gemm_rows(500, 2, truth)
    error = np.abs(np.log(form.seconds(H100, found.values, unseen) / measured))
    assert np.median(error) < 0.05
    assert found.at_bound == ()


def test_parameters_are_those_that_a_file_holds():
    """Six digits, and of a value's neighbours the best: a wave's edge lies between two of them."""
    shapes, times = rows(200, noise=0.02)
    found = fit_form(Toy(), CHIP, shapes, times)
    for value in found.values.values():
        assert value == float(f"{value:.6g}")
    left = np.log(times / Toy().seconds(CHIP, found.values, shapes))
    np.testing.assert_allclose(left, found.log_residuals, atol=1e-12)


def test_rounding_stays_on_the_better_side_of_a_step():
    edge = 1.23456049  # rounds down to 1.23456, where the cost jumps

    def cost(values):
        return 100.0 if values[0] < edge else values[0] - edge

    assert _as_written(np.asarray([edge]), cost)[0] == pytest.approx(1.23456, abs=2e-5)
    assert _as_written(np.asarray([edge]), cost)[0] > edge
