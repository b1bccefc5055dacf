"""Pictures: what they hold, that nothing overlaps, and that they look as they did."""

import itertools
from functools import cache

import numpy as np
import pytest
from matplotlib.testing.compare import compare_images
from matplotlib.text import Text

from perfmodel.errors import InputError
from perfmodel.planning.capacity.front import front_points
from reports.figure import style
from reports.front import draw_front, front_figure
from reports.roofline import roofline_figure
from tests.reports.pictures_case import BASELINES, FIGURES, SIZES, draw, planned, roofs
from tests.reports.workbook.support import plan

TOLERANCE = 12.0
"""Root mean square over 0 to 255: another release's hinting of fonts passes, a moved curve not."""
EVERY = pytest.mark.parametrize("name", FIGURES)


@cache
def figure_of(name, size):
    with style():
        made = FIGURES[name](SIZES[size])
        made.draw_without_rendering()
    return made


def boxes(texts, figure):
    renderer = figure.canvas.get_renderer()
    return [(t.get_text(), t.get_window_extent(renderer)) for t in texts if t.get_text().strip()]


@EVERY
def test_it_looks_as_it_did(name, tmp_path):
    draw(name, tmp_path / f"{name}.png")
    said = compare_images(str(BASELINES / f"{name}.png"), str(tmp_path / f"{name}.png"), TOLERANCE)
    assert said is None, said


def test_a_changed_picture_is_noticed(tmp_path):
    draw("batch", tmp_path / "other.png")
    assert compare_images(str(BASELINES / "memory.png"), str(tmp_path / "other.png"), TOLERANCE)


def test_baselines_are_small_and_all_of_them_used():
    files = {path.stem: path.stat().st_size for path in BASELINES.glob("*.png")}
    assert set(files) == set(FIGURES)
    assert max(files.values()) < 60_000


@pytest.mark.parametrize("size", SIZES)
@EVERY
def test_labels_keep_clear_of_each_other_and_inside(name, size):
    made = figure_of(name, size)
    labels = [t for t in made.findobj(Text) if t.get_gid() == "label"]
    found = boxes(labels, made)
    for (one, a), (other, b) in itertools.combinations(found, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        along = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert across <= 0.5 or along <= 0.5, f"{one!r} on {other!r}"
    axes = made.axes[0].get_window_extent()
    for text, box in found:
        assert axes.x0 <= box.x0 < box.x1 <= axes.x1, text
        assert axes.y0 <= box.y0 < box.y1 <= axes.y1, text


@pytest.mark.parametrize("size", SIZES)
@EVERY
def test_no_text_leaves_the_picture(name, size):
    made = figure_of(name, size)
    texts = [*made.texts, *(t for legend in made.legends for t in legend.get_texts())]
    for axes in made.axes:
        texts += [axes.xaxis.label, axes.yaxis.label, axes.title]
    for text, box in boxes(texts, made):
        assert made.bbox.x0 - 1 <= box.x0 < box.x1 <= made.bbox.x1 + 1, text
        assert made.bbox.y0 - 1 <= box.y0 < box.y1 <= made.bbox.y1 + 1, text


def test_every_operator_has_a_mark_as_large_as_its_share():
    result = roofs("h100-sxm", batch=8, prompt=2048)
    with style():
        made = roofline_figure(result)
    sizes = {
        line.get_gid(): line.get_markersize()
        for line in made.axes[0].get_lines()
        if (line.get_gid() or "").startswith("mark/")
    }
    (device,) = result.devices
    assert len(sizes) == len(device.marks)
    for phase in ("prefill", "decode"):
        large = [m for m in device.of(phase) if m.share > 0.05 and m.flops]
        assert len(large) >= 5
        areas = [sizes[f"mark/0/{phase}/0/{m.name}"] ** 2 / m.share for m in large]
        assert areas == pytest.approx([areas[0]] * len(areas), rel=0.01)


def test_ridge_points_by_hand():
    # H100 SXM: 989.4 TFLOP/s in bf16 over 3.35 TB/s
    (device,) = roofs("h100-sxm", batch=8, prompt=2048).devices
    ridges = [ridge.flops_per_byte for ridge in device.ridges]
    assert np.isclose(ridges, 989.4e12 / 3.35e12, rtol=1e-3).any()


def test_the_front_rises_and_holds_what_the_plan_says():
    with style():
        axes = front_figure(planned()).axes[0]
    fleets = [line for line in axes.get_lines() if (line.get_gid() or "").startswith("fleet/")]
    points = front_points(planned())
    drawn = sorted((float(f.get_xdata()[0]), float(f.get_ydata()[0])) for f in fleets)
    told = sorted((p.tokens_per_s, p.usd_per_million_output_tokens) for p in points)
    assert np.asarray(drawn) == pytest.approx(np.asarray(told))
    filled = [f for f in fleets if f.get_markerfacecolor() != "white"]
    assert len(filled) == sum(p.front for p in points)


def test_a_plan_without_prices_has_no_front(tmp_path):
    with pytest.raises(InputError, match="--price"):
        draw_front(plan(prices={}), tmp_path / "front.svg")
    assert list(tmp_path.iterdir()) == []
