import numpy as np
import pytest

from calibrate.calibrated import calibrate_set, held_out, intervals
from perfmodel.kernels.kernel_set import outside
from tests.calibrate.toy import CHIP, Toy, rows


@pytest.mark.parametrize("folds", [0, 5])
def test_intervals_hold_nine_tenths_of_unseen_rows(folds):
    shapes, times = rows(1500, noise=0.05)
    fit = calibrate_set(Toy(), CHIP, shapes, times, count=150, folds=folds)
    scores = held_out(fit, shapes, times)
    assert scores["all"].rows == 1350
    assert scores["small"].rows + scores["large"].rows == 1350
    assert scores["all"].median < 4.5
    assert 85 < scores["all"].coverage < 95


def test_intervals_widen_outside_the_measured_range():
    shapes, times = rows(300, noise=0.02)
    fit = calibrate_set(Toy(), CHIP, shapes, times, count=100)
    _, low, high = fit.predict({"work": np.array([1e8, 1e10, 1e12])})
    width = np.log(high / low)
    assert width[0] < width[1] < width[2]


def test_few_rows_have_no_correction():
    shapes, times = rows(20)
    fit = calibrate_set(Toy(), CHIP, shapes, times)
    assert fit.residual is None
    seconds, low, high = fit.predict({"work": np.array([1e8])})
    assert low[0] <= seconds[0] <= high[0]


def test_a_regime_with_few_rows_takes_the_interval_of_all():
    left = np.linspace(-0.1, 0.2, 100)
    found = intervals(left, np.r_[np.zeros(95), np.ones(5)], ("many", "few"))
    assert found["few"].rows == 100
    assert found["many"].rows == 95
    assert found["few"].low < 0 < found["few"].high


def test_distance_outside_a_box_adds_up():
    low, high = np.zeros(2), np.ones(2)
    x = np.array([[0.5, 0.5], [2.0, 0.5], [-1.0, 3.0]])
    assert outside(x, low, high).tolist() == [0.0, 1.0, 3.0]
