"""Collectives and elementwise kernels: limits by hand, monotony, measured rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.fit import fit_form
from calibrate.sets.collective import calibrate_collectives, collective_chip, rows_of
from perfmodel.kernels.forms.base import Chip
from perfmodel.kernels.forms.collective import CollectiveForm, soft_least
from perfmodel.operators.record import Collective
from perfmodel.specs.hardware import load_hardware
from tests.data import REASON, data_dir

needs_data = pytest.mark.skipif(data_dir() is None, reason=REASON)
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
NVLINK = Chip(peak=1.0, bandwidth=3.35e12, sm_count=1, clock_hz=0.0, l2_bytes=0.0, link=450e9)
START = {p.name: p.start for p in CollectiveForm("all_reduce").parameters}


def seconds(kind, size, ranks, values=START, **more):
    shapes = {"message_bytes": np.asarray(size, float), "ranks": np.asarray(ranks, float)}
    shapes |= {name: np.asarray(value, float) for name, value in more.items()}
    return CollectiveForm(kind).seconds(NVLINK, values, shapes)


@pytest.mark.parametrize(("kind", "passes"), [(k, 2 if k == "all_reduce" else 1) for k in KINDS])
def test_a_large_message_takes_its_bytes_over_the_link(kind, passes):
    size = 2.0**40
    for ranks in (2, 4, 8, 16):
        wire = passes * (ranks - 1) / ranks * size
        time = seconds(kind, size, ranks)
        assert time == pytest.approx(wire / (NVLINK.link * START["rate_8"]), rel=0.03)
        operator = Collective(
            name="x", kind=kind, message_bytes=size, ranks=ranks, span=ranks
        )  # both count alike
        assert operator.wire_bytes == pytest.approx(wire)


def test_a_tiny_message_takes_the_latency_alone():
    for ranks in (2, 4, 8):
        latency = START["low_start"] + START["low_rank"] * (ranks - 2)
        assert seconds("all_gather", 1, ranks) == pytest.approx(latency * 1e-6, rel=0.06)


def test_one_byte_elements_reduce_more_slowly_in_large_groups():
    wide = seconds("all_reduce", 2**30, 8, element_bytes=2)
    assert seconds("all_reduce", 2**30, 8, element_bytes=1) > wide
    assert seconds("all_gather", 2**30, 8, element_bytes=1) == pytest.approx(
        seconds("all_gather", 2**30, 8, element_bytes=2)
    )


@given(
    st.sampled_from(KINDS),
    st.floats(1, 1e13),
    st.integers(2, 1024),
    st.floats(1, 8),
    st.lists(st.floats(0, 1), min_size=len(START), max_size=len(START)),
)
def test_any_message_takes_a_positive_time_that_grows_with_it(kind, size, ranks, factor, at):
    parameters = CollectiveForm(kind).parameters
    values = {p.name: p.low * (p.high / p.low) ** x for p, x in zip(parameters, at, strict=True)}
    small, large = seconds(kind, size, ranks, values), seconds(kind, size * factor, ranks, values)
    assert np.isfinite(large)
    assert 0 < small <= large * (1 + 1e-9)


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=4))
def test_the_soft_least_is_close_to_the_least(times):
    found = soft_least(*map(np.asarray, times))
    assert min(times) * len(times) ** (-1 / 6) * (1 - 1e-9) <= found <= min(times) * (1 + 1e-9)


def test_known_rates_are_recovered():
    form = CollectiveForm("all_gather")
    true = START | {"low_start": 9.0, "rate_2": 0.6, "rate_4": 0.7, "rate_8": 0.8}
    size, ranks = np.meshgrid(2.0 ** np.arange(9, 30, 3), [2.0, 4.0, 8.0])
    shapes = {"message_bytes": size.ravel(), "ranks": ranks.ravel()}
    fitted = fit_form(form, NVLINK, shapes, form.seconds(NVLINK, true, shapes), starts=1)
    assert np.abs(fitted.log_residuals).max() < 0.02
    for name in ("low_start", "rate_2", "rate_4", "rate_8"):
        assert fitted.values[name] == pytest.approx(true[name], rel=0.08)


def table(gpu):
    pd = pytest.importorskip("pandas")
    folder = data_dir()
    assert folder is not None
    rows = pd.read_parquet(folder / "measurements" / "collective.parquet")
    return rows[rows["gpu"] == gpu]


@needs_data
def test_measured_messages_are_counted_as_ours():
    # no device moves more than its link can, by our count of what it sends
    shapes, measured = rows_of(table("h100-sxm").query("op == 'all_gather'"))
    sent = CollectiveForm("all_gather").wire_bytes(shapes["message_bytes"], shapes["ranks"])
    share = sent / measured / NVLINK.link
    assert 0.6 < share.max() < 0.9


@needs_data
def test_twenty_four_rows_an_operation_predict_the_others():
    fits = calibrate_collectives(table("h100-sxm"), load_hardware("h100-sxm"))
    assert {fit.operation for fit in fits} == set(KINDS)
    for fit in fits:
        assert len(fit.calibrated.used) == 24
        assert fit.scores["all"].median < 8
        assert fit.scores["all"].p90 < 25
        assert fit.unseen.median < 11
    assert np.mean([fit.scores["all"].median for fit in fits]) < 5
    assert 85 < np.mean([fit.scores["all"].coverage for fit in fits]) < 98


@needs_data
def test_rows_of_several_operations_are_refused():
    with pytest.raises(ValueError, match="one op"):
        rows_of(table("h100-sxm"))


def test_cards_without_a_link_talk_over_pcie():
    assert collective_chip(load_hardware("l40s")).link == 32e9
    assert collective_chip(load_hardware("h100-sxm")).link == 450e9
