import numpy as np
import pytest

from calibrate.design import choose, represent

GRID = np.stack(np.meshgrid(np.arange(20.0), np.arange(30.0)), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize("pick", [choose, represent])
def test_rows_are_distinct_and_the_same_for_a_seed(pick):
    rows = pick(GRID, 50, seed=4)
    assert len(set(rows.tolist())) == 50
    assert (rows == pick(GRID, 50, seed=4)).all()
    assert (rows != pick(GRID, 50, seed=5)).any()


@pytest.mark.parametrize("pick", [choose, represent])
def test_few_rows_are_all_taken(pick):
    assert pick(GRID[:7], 50).tolist() == list(range(7))


@pytest.mark.parametrize("pick", [choose, represent])
def test_the_whole_range_is_reached(pick):
    taken = GRID[pick(GRID, 60)]
    assert (taken.min(axis=0) <= [3, 4]).all()
    assert (taken.max(axis=0) >= [16, 25]).all()


def test_a_feature_without_range_does_no_harm():
    flat = np.column_stack([GRID, np.ones(len(GRID))])
    assert len(choose(flat, 20)) == len(represent(flat, 20)) == 20


def test_dense_regions_get_their_share_of_representatives():
    rng = np.random.default_rng(0)
    dense, rare = rng.normal(0, 1, (900, 2)), rng.normal(40, 1, (100, 2))
    rows = np.concatenate([dense, rare])
    taken = represent(rows, 50)
    assert 20 < (taken < 900).sum() < 50
