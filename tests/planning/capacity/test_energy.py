"""Power and energy by hand."""

from math import isclose

from hypothesis import given
from hypothesis import strategies as st

from perfmodel.planning.capacity.energy import energy_of


def test_power_by_hand():
    found = energy_of(700.0, 4, 0.5, 2000.0)
    # 4·700 W·(0.5·0.43 + 0.5·0.17) = 840 W, 4·700·(0.5·1 + 0.5·0.30) = 1,820 W
    assert isclose(found.watts.low, 840.0)
    assert isclose(found.watts.high, 1820.0)
    # 2,000 tokens/s are 7.2·10⁶ an hour: 0.84 kWh/7.2 and 1.82 kWh/7.2
    assert isclose(found.kwh_per_million_tokens.low, 0.84 / 7.2)
    assert isclose(found.kwh_per_million_tokens.high, 1.82 / 7.2)
    assert "arXiv" in found.source


@given(st.floats(0, 1), st.floats(0, 1))
def test_power_rises_with_use_and_stays_below_tdp(one, other):
    low, high = (energy_of(400.0, 1, busy, 10.0).watts for busy in sorted((one, other)))
    assert low.low <= high.low <= low.high * 10
    assert low.high <= high.high <= 400.0 + 1e-9
    assert high.low <= high.high
