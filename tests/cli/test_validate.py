"""`validate kernels` end to end, with a calibration that exists for the test only."""

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from perfmodel.kernels import choice as choices
from tests.calibrate.tables import calibration_file, gemm_shapes, timed
from tests.cli.runner import perfmodel

COMMAND = ("validate", "kernels")


@pytest.fixture
def calibrated(tmp_path, monkeypatch):
    """A folder of calibrations with one file, for H100 and vLLM."""
    folder = tmp_path / "calibrations"
    folder.mkdir()
    calibration_file(folder / "h100-sxm.vllm.yaml")
    monkeypatch.setattr(choices, "_folder", lambda: folder)
    choices.available.cache_clear()
    yield folder
    choices.available.cache_clear()


@pytest.fixture
def measured(tmp_path):
    shapes = gemm_shapes()
    noise = np.tile([0.0, 0.1, -0.1, 0.5], len(shapes) // 4)
    path = tmp_path / "gemm.parquet"
    timed("gemm", shapes, noise).to_parquet(path, index=False)
    return path


def test_json_says_rows_errors_and_sources(calibrated, measured):
    ran = perfmodel(*COMMAND, measured, "--hardware", "h100-sxm", "--stack", "vllm", "--json")
    assert (ran.status, ran.err) == (0, "")
    record = ran.record
    assert (record["rows"], record["predicted"], record["unpredicted"]) == (24, 24, {})
    assert record["calibration"] == "fitted (vllm 0.24.0)"
    assert record["families"] == ["gemm"]
    every = record["scores"][0]
    assert (every["family"], every["dtype"], every["regime"]) == ("gemm", "bfloat16", "all")
    assert every["coverage"] == 75
    middle = (1 - np.exp(-0.1)) / 2 + (np.exp(0.1) - 1) / 2
    assert every["median"] == pytest.approx(100 * middle, rel=1e-3)
    assert {s["regime"] for s in record["scores"]} == {"all", "m ≤ 64", "m > 64", "over 10 µs"}


def test_the_terminal_says_the_same(calibrated, measured):
    ran = perfmodel(*COMMAND, measured, "-H", "h100-sxm")
    assert (ran.status, ran.err) == (0, "")
    assert "24 of 24 rows predicted" in ran.out
    assert "fitted (vllm 0.24.0)" in ran.out
    assert "m ≤ 64" in ran.out


def test_the_file_repeats_the_rows_with_predictions(calibrated, measured, tmp_path):
    out = tmp_path / "out.parquet"
    ran = perfmodel(*COMMAND, measured, "-H", "h100-sxm", "--out", out, "--json")
    assert ran.status == 0
    before, after = pd.read_parquet(measured), pd.read_parquet(out)
    for column in before:
        assert (before[column] == after[column]).all()
    assert (after["lower_us"] <= after["predicted_us"]).all()
    assert (after["source"] == "fitted (vllm 0.24.0)").all()
    again = perfmodel(*COMMAND, measured, "-H", "h100-sxm", "--out", out)
    assert (again.status, again.out) == (2, "")
    assert "--force" in again.err
    assert perfmodel(*COMMAND, measured, "-H", "h100-sxm", "--out", out, "--force").status == 0


def test_another_device_takes_the_relatives_calibration(calibrated, measured):
    frame = pd.read_parquet(measured).assign(gpu="h200-sxm")
    frame.to_parquet(measured, index=False)
    record = perfmodel(*COMMAND, measured, "-H", "h200-sxm", "--json").record
    assert record["sources"] == {"transferred from h100-sxm (vllm 0.24.0)": 24}


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_plot_is_drawn(calibrated, measured, tmp_path, suffix):
    path = tmp_path / f"errors.{suffix}"
    ran = perfmodel(*COMMAND, measured, "-H", "h100-sxm", "--plot", path)
    assert ran.status == 0
    if suffix == "svg":
        text = path.read_text()
        assert "measured (µs)" in text
        assert "bfloat16" in text
    else:
        assert matplotlib.image.imread(path).shape[1] > 1000


def wrong(tmp_path, measured):
    bad = tmp_path / "bad.csv"
    bad.write_text("dtype,m,n,k,latency_us\nbfloat16,1,512,512,5\nbfloat16,1,512,512,x\n")
    return {
        "no table": ((tmp_path / "none.parquet", "-H", "h100-sxm"), "none.parquet"),
        "a bad row": ((bad, "-H", "h100-sxm"), "row 2, latency_us"),
        "unknown hardware": ((measured, "-H", "h1000"), "h1000"),
        "no hardware": ((measured,), "--hardware"),
        "unknown stack": ((measured, "-H", "h100-sxm", "--stack", "vlm"), "--stack"),
        "a wrong suffix": ((measured, "-H", "h100-sxm", "--out", tmp_path / "o.txt"), ".parquet"),
        "no folder": ((measured, "-H", "h100-sxm", "--out", tmp_path / "n" / "o.csv"), "no folder"),
        "a wrong plot": ((measured, "-H", "h100-sxm", "--plot", tmp_path / "o.bmp"), ".svg"),
    }


@pytest.mark.parametrize("name", [
    "no table", "a bad row", "unknown hardware", "no hardware", "unknown stack", "a wrong suffix",
    "no folder", "a wrong plot",
])  # fmt: skip
def test_bad_input_is_one_line_and_status_2(calibrated, measured, tmp_path, name):
    arguments, named = wrong(tmp_path, measured)[name]
    ran = perfmodel(*COMMAND, *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert len(ran.err.strip().splitlines()) == 1
    assert named in ran.err


def test_help_names_the_command():
    assert "kernels" in perfmodel("validate", "--help").out
