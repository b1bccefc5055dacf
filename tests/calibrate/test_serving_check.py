"""Simulated loads beside measured ones, and numbers fitted on them."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrate.serving_check import Predictor, check_serving, group_scores, output_of
from calibrate.serving_fit import MovedSteps, Numbers, fit_numbers, responses
from calibrate.serving_points import fit_serving, write_fitted
from calibrate.serving_protocols import few, halves, without
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
LOADS = (1, 4, 16, 48)


@pytest.fixture(scope="module")
def predictor():
    return Predictor()


@pytest.fixture(scope="module")
def found(predictor):
    return responses(predictor, [replace(PLAIN_ROW, concurrency=c) for c in LOADS])


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


def test_step_times_move_as_stated(predictor):
    times = predictor.served(PLAIN_ROW).engine.times
    own = Numbers(1.0, 300.0, 12.0)
    same = MovedSteps(times, own, own)
    assert same.decode(8, 8000) == pytest.approx(times.decode(8, 8000))
    host = 1e-6 * (300 + 12 * 8)
    slow = MovedSteps(times, own, Numbers(1.2, 500.0, 20.0))
    moved = 1.2 * (times.decode(8, 8000) - host) + 1e-6 * (500 + 20 * 8)
    assert slow.decode(8, 8000) == pytest.approx(moved)


def test_lines_stand_for_simulations(predictor, found):
    case = predictor.served(PLAIN_ROW)
    host = case.plan.engine.host
    own, new = Numbers(1.0, host.step_us, host.sequence_us), Numbers(1.15, 600.0, 25.0)
    for response in found:
        row = response.predicted.row
        times = MovedSteps(case.engine.times, own, new)
        _, tpot = predictor.run(row, replace(case.engine, times=times))
        assert response.at(new.array).tpot_ms == pytest.approx(tpot, rel=0.01)


def measured_with(found, numbers):
    """Responses whose rows were measured on a server with such numbers."""
    rows = []
    for r in found:
        tpot = r.at(numbers.array).tpot_ms
        rows.append(replace(r, predicted=replace(
            r.predicted, row=replace(r.predicted.row, tpot_ms=tpot)
        )))  # fmt: skip
    return rows


def test_a_fit_on_the_presets_own_times_changes_nothing(found):
    own = found[0].own
    assert fit_numbers(measured_with(found, own)).array == pytest.approx(own.array, rel=1e-3)


def test_a_fit_finds_a_slower_server(found):
    true = Numbers(1.0, 300.0, 45.0)
    rows = measured_with(found, true)
    made = fit_numbers(rows)
    for r in rows:
        assert r.at(made.array).tpot_ms == pytest.approx(r.predicted.row.tpot_ms, rel=0.05)
    # 33 us more for each of 48 sequences lengthen a step of some 9 ms by a sixth.
    assert made.sequence_us > 30


def test_one_outlier_among_many_moves_little(found):
    rows = measured_with(found, found[0].own)
    row = rows[0].predicted.row
    odd = replace(rows[0], predicted=replace(
        rows[0].predicted, row=replace(row, tpot_ms=4 * row.tpot_ms)
    ))  # fmt: skip
    made = fit_numbers([*rows, *rows, odd])
    assert abs(made.kernels - 1) < 0.1


def test_protocols_never_score_what_they_fit(found):
    rows = [
        replace(r, predicted=replace(r.predicted, row=replace(
            r.predicted.row, number=n, gpu=gpu, model=model
        )))
        for n, (r, gpu, model) in enumerate(
            (r, gpu, model) for r in found for gpu in "ab" for model in ("x", "y")
        )
    ]  # fmt: skip
    for splits in (halves(rows), without(rows, "gpu"), without(rows, "model"), few(rows, 2)):
        for fitted, scored in splits:
            assert not {r.predicted.row.number for r in fitted} & {
                r.predicted.row.number for r in scored
            }
    for fitted, scored in without(rows, "gpu"):
        assert not {r.predicted.row.gpu for r in fitted} & {r.predicted.row.gpu for r in scored}
    assert sum(len(scored) for _, scored in halves(rows)) == len(rows)


def test_points_that_cant_be_used_are_refused_by_row():
    bad = {
        "row 2: .*nothing": replace(PLAIN_ROW, number=2, model="nothing"),
        "row 2: tpot_ms: is empty": replace(PLAIN_ROW, number=2, tpot_ms=float("nan")),
        "row 2: tpot_ms: .*times": replace(PLAIN_ROW, number=2, tpot_ms=800.0),
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
