"""What the page's pictures and figures say, against the estimates that they are of."""

import math

import numpy as np
import pytest

import perfmodel
from perfmodel import Workload
from perfmodel.planning.outcome import usd_per_million_tokens
from perfmodel.text import seconds
from reports.html.breakdown import breakdown
from reports.html.curves import curves
from reports.html.figures import figure_columns
from reports.html.plane import LETTER
from reports.html.record import make_report
from reports.html.roofline import roofline_view
from reports.html.view import page_view
from reports.labels import Box
from tests.reports.html.made import case, llama, too_large


@pytest.fixture(scope="module")
def view():
    return page_view(llama())


def test_figures_are_those_of_the_estimate(view):
    asked = view.asked
    # perfmodel estimate llama-3.1-8b --hardware h100-sxm --batch 8 --prompt 2048 says the same.
    result = perfmodel.estimate("llama-3.1-8b", "h100-sxm", Workload(batch=8, prompt=2048))
    assert view.columns["ttft_s"][asked] == f"{1e3 * result.ttft_s:.0f} ms"
    assert view.columns["tpot_s"][asked] == f"{1e3 * result.tpot_s:.2f} ms"
    low, high = result.interval("ttft_s")
    assert view.columns["ttft_s_interval"][asked] == f"{1e3 * low:.0f} ms – {1e3 * high:.0f} ms"


def test_cost_is_rent_over_tokens():
    answer = llama().answer
    # 2 to 5 USD an hour for one GPU: 10⁶ tokens take 10⁶ / rate seconds.
    hours = 1e6 / answer.output_tokens_per_s / 3600
    assert usd_per_million_tokens(answer) == (pytest.approx(2 * hours), pytest.approx(5 * hours))


def test_what_does_not_fit_has_memory_and_no_times(view):
    fits = llama().grid.fits()
    assert 0 < fits.sum() < len(fits)
    for name in ("ttft_s", "tpot_s", "output_tokens_per_s", "cost", "prefill_limit"):
        assert [text == "–" for text in view.columns[name]] == [not fit for fit in fits]
    assert all(
        "doesn’t fit" in said
        for said, fit in zip(view.columns["said"], fits, strict=True)
        if not fit
    )


def test_memory_parts_fill_the_bar_up_to_what_is_needed(view):
    def width(name, setting):
        return float(view.columns[name][setting].removesuffix("%"))

    for setting in range(llama().grid.size):
        parts = sum(
            width(f"{p}_width", setting) for p in ("weights", "kv", "activation", "reserved")
        )
        full = 100.0 if view.columns["fits"][setting] == "no" else 100.1
        assert parts <= full + 0.05
        if view.columns["fits"][setting] == "no":
            assert parts == pytest.approx(100, abs=0.05)
            assert width("capacity_width", setting) < 100
        else:
            assert width("capacity_width", setting) == 100


def test_breakdown_shares_fill_each_phase():
    grid = llama().grid
    found = breakdown(grid)
    fits = grid.fits()
    for phase in ("prefill", "decode"):
        widths = np.asarray([
            [float(w.removesuffix("%")) for w in found.columns[f"width.{phase}.{n}"]]
            for n, _ in found.groups
        ])  # fmt: skip
        assert widths.sum(axis=0)[fits] == pytest.approx(100, abs=0.05)
        assert not widths.sum(axis=0)[~fits].any()


def test_a_group_has_its_operators_time():
    report = llama()
    found = breakdown(report.grid)
    number = next(n for n, group in found.groups if group == "attention")
    for phase in ("prefill", "decode"):
        rows = getattr(report.answer, phase).cost.operators
        spent = next(row.cost.time_s for row in rows if row.name == "attention")
        shown = found.columns[f"time.{phase}.{number}"][report.grid.asked]
        assert shown == seconds(spent)


def test_a_mark_stands_at_its_intensity_and_rate():
    grid = llama().grid
    view = roofline_view(grid, llama().roofline, grid.asked)
    number, track = next(
        (n, t) for n, t in enumerate(view.tracks) if t.name == "qkv_proj" and t.phase == "prefill"
    )
    # m = 8·2,048 rows, n = 4,096 + 2·1,024, k = 4,096, 2 bytes each:
    # 2mnk / 2(mk + kn + mn) = 1 / (1/n + 1/m + 1/k) = 2,137 FLOP per byte.
    intensity = 1 / (1 / 6144 + 1 / 16384 + 1 / 4096)
    mark = track.marks[grid.asked]
    assert mark.intensity == pytest.approx(intensity)
    x, y, radius = map(float, view.columns[f"mark.{number}.wide"][grid.asked].split())
    plot = view.pictures[0]
    ticks = {tick.label: tick.at for tick in plot.x_ticks}
    # On the line between the ticks of 1,000 and 10,000 by its logarithm.
    along = math.log10(intensity / 1000)
    assert x == pytest.approx(ticks["1k"] + along * (ticks["10k"] - ticks["1k"]), abs=0.06)
    rows = {tick.label: tick.at for tick in plot.y_ticks}
    up = math.log10(mark.flops_per_s / 1e14)
    assert y == pytest.approx(rows["100T"] + up * (rows["1P"] - rows["100T"]), abs=0.06)
    # Area by share: a quarter of the time has half the radius.
    assert radius == pytest.approx(plot.layout.full * math.sqrt(mark.share), abs=0.06)


@pytest.mark.parametrize("size", [0, 1])
def test_names_cover_no_other_name_and_no_mark(size):
    grid = llama().grid
    view = roofline_view(grid, llama().roofline, grid.asked)
    layout = view.pictures[size].layout
    inside = Box(layout.left, layout.top, layout.right, layout.bottom)
    for setting in range(0, grid.size, 3):
        names = list(_names(view, layout, setting))
        marks = list(_marks(view, layout, setting))
        for number, box in enumerate(names):
            assert inside.holds(box)
            assert not any(box.overlaps(other) for other in names[:number])
            assert not any(box.overlaps(mark) for mark in marks)
        assert bool(names) == bool(marks) == bool(grid.fits()[setting])


def _names(view, layout, setting):
    for slot in range(view.pictures[0].slots):
        text = view.columns.get(f"name.{layout.name}.{slot}", [""] * (setting + 1))[setting]
        if text:
            place = view.columns[f"place.{layout.name}.{slot}"][setting]
            x, y, _ = map(float, place.split())
            half = LETTER * layout.text * len(text) / 2 - 0.1  # places are rounded to a tenth
            yield Box(x - half, y - layout.text / 2 + 0.1, x + half, y + layout.text / 2 - 0.1)


def _marks(view, layout, setting):
    for number in range(len(view.tracks)):
        place = view.columns[f"mark.{number}.{layout.name}"][setting]
        if place:
            x, y, r = map(float, place.split())
            yield Box(x - r, y - r, x + r, y + r)


def test_curves_end_where_the_memory_does():
    grid = llama().grid
    made, columns = curves(grid, uncertain=True)
    assert [curve.name for curve in made] == ["tpot_s", "output_tokens_per_s", "ttft_s", "memory"]
    for setting in range(grid.size):
        along = grid.line(setting, "batch")
        fitting = sum(grid.fits()[s] for s in along)
        line = columns["line.tpot_s"][setting]
        assert line.count("L") == max(0, fitting - 1)
        assert bool(columns["dot.tpot_s"][setting]) == grid.fits()[setting]


def test_without_calibration_there_is_no_interval():
    grid = make_report(case(roofline_only=True)).grid
    columns = figure_columns(grid, uncertain=False)
    assert not any(name.endswith("_interval") for name in columns)
    made, drawn = curves(grid, uncertain=False)
    assert not any(curve.band for curve in made)
    assert not any(name.startswith("band.") for name in drawn)


def test_where_nothing_fits_there_is_nothing_to_slide():
    view = page_view(too_large())
    assert view.start is None
    assert view.roofline is None
    assert not view.curves
    assert view.headline.startswith("It doesn’t fit")


def test_where_the_case_does_not_fit_the_sliders_start_at_one_that_does():
    report = make_report(case("llama-3.1-8b", work={"batch": 1000, "prompt": 2048}))
    view = page_view(report)
    assert not view.fits
    # 182 of that length fit: 128 is the largest stop among them.
    assert report.grid.at(view.start) == (128, 2048)
