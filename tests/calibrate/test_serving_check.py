"""Simulated loads beside measured ones."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrate.serving_check import Predictor, check_serving, group_scores, output_of
from calibrate.serving_points import fit_serving, write_fitted
from calibrate.serving_table import Row, ServingTable, read_serving
from perfmodel.errors import InputError
from perfmodel.serving.arrivals import ClosedLoop, Demand
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.serve import Serving, simulate
from perfmodel.specs.deployment import Deployment
from tests.calibrate.test_serving_table import PLAIN, table
from tests.data import REASON, data_dir

PLAIN_ROW = Row(
    1, "llama-3.1-8b", "h100-sxm", "vllm", "", "bf16", "bf16", 1, 1, 1, 4, 256, 32, 1.0, "own",
    30.0, 8.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def predictor():
    return Predictor()


def test_a_prediction_is_the_simulators(predictor):
    row = replace(PLAIN_ROW, length_factor=0.9)
    made = predictor.predict(row)
    # 0.8 of 256 is 204.8, of 32 is 25.6: evenly from 205 to 256 and from 26 to 32.
    demand = Demand(ClosedLoop(4), Lengths("uniform", (205, 256)), Lengths("uniform", (26, 32)), 40)
    case = Deployment(weights="bf16")
    same = simulate("llama-3.1-8b", "h100-sxm", demand, case, Serving(prefix_caching=False))
    assert made.tpot_ms == pytest.approx(1e3 * same.tpot_s.mean)
    assert made.ttft_ms == pytest.approx(1e3 * same.ttft_s.mean)


def test_steps_before_the_first_token_are_added_to_ttft_alone(predictor):
    plain, late = (predictor.predict(replace(PLAIN_ROW, ttft_steps=n)) for n in (0.0, 10.0))
    assert late.tpot_ms == plain.tpot_ms
    assert late.ttft_ms == pytest.approx(plain.ttft_ms + 10 * plain.tpot_ms)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "no-such-model"}, "no-such-model"),
        ({"gpu": "no-such-gpu"}, "no-such-gpu"),
        ({"engine": "no-such-engine"}, "no-such-engine"),
        ({"model": "llama-3.1-405b"}, "no room"),
        ({"attention_dp": 8}, "attention data parallelism"),
        ({"tp": 3}, "tp"),
    ],
)
def test_a_row_that_cant_be_predicted_has_a_reason(predictor, change, said):
    made = predictor.predict(replace(PLAIN_ROW, **change))
    assert np.isnan(made.tpot_ms)
    assert said in made.reason


def test_ranks_that_share_experts_are_simulated(predictor):
    """A row of 2 ranks beside the simulator's own deployment of them."""
    row = replace(PLAIN_ROW, model="qwen3-30b-a3b", ep=2, attention_dp=2)
    made = predictor.predict(row)
    assert not made.reason
    case = predictor.served(row)
    assert (case.plan.parallel.gpus, case.engine.ranks) == (2, 2)
    one = predictor.predict(replace(row, ep=1, attention_dp=1))
    assert 0.4 * one.tpot_ms < made.tpot_ms < 1.2 * one.tpot_ms


def test_a_check_scores_flagged_rows_apart_and_keeps_the_input(tmp_path):
    unknown = PLAIN.replace("llama-3.1-8b", "nothing")
    check = check_serving(read_serving(table(tmp_path, PLAIN, PLAIN, unknown)))
    overall = next(s for s in check.scores if s.group == "all")
    assert (overall.tpot.rows, [s.tpot.rows for s in check.flagged]) == (1, [1])
    out = output_of(check)
    assert list(out["ttft_ms"]) == ["100.5"] * 3
    assert (out["predicted_tpot_ms"][2], out["reason"][0]) == ("", "")
    assert "nothing" in out["reason"][2]


def test_points_that_cant_be_used_are_refused_by_row():
    bad = {
        "row 2: .*nothing": replace(PLAIN_ROW, number=2, model="nothing"),
        "row 2: tpot_ms: is empty": replace(PLAIN_ROW, number=2, tpot_ms=float("nan")),
        "row 2: tpot_ms: .*times": replace(PLAIN_ROW, number=2, tpot_ms=800.0),
        "row 2: ttft_ms: .*units": replace(PLAIN_ROW, number=2, length_factor=0.9, ttft_ms=0.03),
    }
    for said, row in bad.items():
        with pytest.raises(InputError, match=said):
            fit_serving(ServingTable(Path("own.csv"), None, (row,)), "vllm")


def test_a_written_preset_has_short_numbers(tmp_path):
    loads = [replace(PLAIN_ROW, number=n, concurrency=c) for n, c in enumerate((1, 16), 1)]
    points = Path("own.csv")
    write_fitted(fit_serving(ServingTable(points, None, tuple(loads))), tmp_path / "a.yaml", points)
    text = (tmp_path / "a.yaml").read_text(encoding="utf-8")
    numbers = [n for n in re.findall(r"\d+\.\d+", text) if len(n.replace(".", "")) > 6]
    assert numbers == []


@pytest.mark.skipif(data_dir() is None, reason=REASON)
def test_measured_servers_are_predicted_with_nothing_fitted():
    """Some of the shared rows; docs/serving-validation.md has all of them."""
    rows = read_serving(data_dir() / "measurements" / "serving.csv")
    kept = tuple(row for row in rows.rows if row.tp == 4 and row.number % 4 == 0)
    check = check_serving(replace(rows, rows=kept))
    scores = {(s.group, s.name): s for s in check.scores}
    assert scores["all", "all"].tpot.median < 10
    assert scores["all", "all"].tpot.p90 < 27
    assert scores["bench", "inferencex"].ttft.median < 25
    assert all(isinstance(s.tpot.median, float) for s in group_scores(check.predicted[:0]))
