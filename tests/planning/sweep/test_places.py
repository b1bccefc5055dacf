"""Places in lists of whole numbers, dense and sparse."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.planning.sweep.places import Places, distinct


@given(st.lists(st.integers(0, 2**24), min_size=1, max_size=30))
def test_places_and_distinct_numbers_are_numpys(numbers):
    array = np.asarray(numbers, dtype=np.float64)
    values = distinct(array)
    assert values.tolist() == np.unique(array).tolist()
    assert values[Places(values)(array)].tolist() == array.tolist()
