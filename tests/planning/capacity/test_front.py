"""User speed against cost: interpolation and dominance, by hand."""

from math import isnan

import pytest

from perfmodel.planning.capacity.choice import busy_share
from perfmodel.planning.capacity.front import front_points, tpot_at
from perfmodel.planning.capacity.sizing import Level, Seen
from tests.planning.capacity.case import small

LEVELS = (
    Level(2.0, 1.0, 0.4, 0.1, 0, (Seen(0.1, 0.010, 1.0), Seen(0.1, 0.012, 1.0))),
    Level(6.0, 1.0, 0.8, 0.1, 0, (Seen(0.1, 0.030, 1.0), Seen(0.1, 0.020, 1.0))),
)


def test_tpot_between_loads_is_the_slowest_class_s():
    assert tpot_at(LEVELS, 4.0) == pytest.approx(0.021)  # halfway from 0.012 to 0.030
    assert tpot_at(LEVELS, 0.5) == 0.012
    assert isnan(tpot_at((Level(1.0, 1, 1, 1, 0, (Seen(0.1, None, 0.1),)),), 1.0))


def test_the_busy_share_falls_to_none_with_the_load():
    assert busy_share(LEVELS, 1.0) == pytest.approx(0.2)
    assert busy_share(LEVELS, 5.0) == pytest.approx(0.7)


def test_points_cost_more_where_replicas_are_loaded_less():
    plan = small()
    points = front_points(plan)
    assert points[0].usd_per_hour == plan.best.fleet.usd_per_hour
    rents = [p.usd_per_hour for p in points]
    assert rents == sorted(rents)
    assert rents[-1] <= 5 * rents[0]
    speeds = [p.tokens_per_s for p in points if p.front]
    assert speeds == sorted(speeds)
    for point in points:
        beaten = any(
            q.usd_per_hour <= point.usd_per_hour and q.tokens_per_s > point.tokens_per_s
            for q in points
        )
        assert not (point.front and beaten)
    # 60 requests/s · 3600 s · 80 tokens = 17.28·10⁶ output tokens an hour
    assert points[0].usd_per_million_output_tokens == pytest.approx(rents[0] / 17.28)
