import numpy as np
import pytest

from calibrate.residual import _Evidence, fit_residual
from perfmodel.kernels.residual import matern


def wave(x):
    return 0.2 * np.sin(x[:, 0]) + 0.1 * x[:, 1]


def drawn(count, seed=0, noise=0.01):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (count, 2))
    return x, wave(x) + noise * rng.normal(size=count)


def test_a_smooth_error_is_learnt():
    x, y = drawn(150)
    unseen, _ = drawn(100, seed=1)
    found = fit_residual(x, y)
    assert np.abs(found.residual.correction(unseen) - wave(unseen)).max() < 0.05
    assert found.noise == pytest.approx(0.01, rel=0.6)
    assert np.median(np.abs(found.left_out)) < 0.02


def test_the_correction_fades_outside_the_measured_range():
    x, y = drawn(80)
    far = np.array([[300.0, 0.0], [0.0, -300.0]])
    assert np.abs(fit_residual(x, y + 0.3).residual.correction(far)).max() < 1e-3


def test_disturbed_rows_leave_their_neighbours_alone():
    x, y = drawn(200)
    hit = np.arange(0, 200, 15)
    bent = y.copy()
    bent[hit] += 0.6
    found = fit_residual(x, bent)
    kept = np.setdiff1d(np.arange(200), hit)
    assert np.median(np.abs(found.residual.correction(x[kept]) - wave(x[kept]))) < 0.02
    assert np.median(found.left_out[hit]) == pytest.approx(0.6, abs=0.05)


def test_noise_alone_is_not_learnt():
    rng = np.random.default_rng(3)
    x = rng.uniform(-3, 3, (100, 2))
    found = fit_residual(x, 0.05 * rng.normal(size=100))
    assert np.abs(found.residual.correction(x)).mean() < 0.03


def test_the_gradient_is_the_gradient():
    x, y = drawn(25)
    evidence = _Evidence(x, y, np.linspace(1, 2, 25), np.zeros(4), np.ones(4))
    theta = np.array([0.3, -0.2, -1.0, -2.0])
    slope = evidence(theta)[1]
    for i, step in enumerate(1e-5 * np.eye(4)):
        rise = evidence(theta + step)[0] - evidence(theta - step)[0]
        assert slope[i] == pytest.approx(rise / 2e-5, rel=1e-4)


def test_correlations_are_one_at_home_and_fall_with_distance():
    x = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    found = matern(x, x)
    assert np.allclose(np.diag(found), 1.0)
    assert found[0, 1] > found[0, 2] > 0
    assert found == pytest.approx(found.T)
