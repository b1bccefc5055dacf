"""What `calibrate check` answers where a machine is too fast for any step to be scored."""

import pytest

from calibrate import end_to_end
from calibrate.decoder import StepRow
from calibrate.end_to_end import StepCheck, score_steps
from tests.cli.runner import perfmodel

NAME = "epyc-zen5-1-thread"
CHECK = ("calibrate", "check", "--calibration", "x.yaml", "--hardware", NAME, "--device", "cpu",
         "--threads", 1, "--end-to-end", "--size", "tiny")  # fmt: skip


def step(phase, seconds, predicted):
    row = StepRow(
        batch=1, prompt=64, context=64, phase=phase, seconds=seconds, fastest_s=seconds,
        spread=0.0, samples=9, reached=True, quality="ok",
    )  # fmt: skip
    return StepCheck("7M", row, predicted, predicted / 2, predicted * 2, predicted / 4)


@pytest.fixture
def steps(monkeypatch):
    """Put steps in the place of measured ones."""

    def put(*made):
        monkeypatch.setattr(end_to_end, "check_steps", lambda *_, **__: list(made))

    return put


def test_steps_too_short_to_score_are_none_not_nan(steps):
    steps(step("prefill", 4e-3, 5e-3), step("decode", 1e-3, 2e-3))
    answer = perfmodel(*CHECK, "--json")
    assert answer.status == 0, answer.err
    for score in answer.record["scores"].values():
        assert score["rows"] == 0
        assert {v for k, v in score.items() if k != "rows"} == {None}
    assert len(answer.record["steps"]) == 2


def test_a_phase_without_long_steps_leaves_the_other_its_score(steps):
    # 10 ms measured, 11 ms predicted: 10 % off; the roof of 2.75 ms: 72.5 % off
    steps(step("prefill", 10e-3, 11e-3), step("decode", 1e-3, 2e-3))
    scores = perfmodel(*CHECK, "--json").record["scores"]
    assert scores["decode"]["median"] is None
    assert scores["all"] == scores["prefill"]
    assert scores["prefill"]["median"] == pytest.approx(10.0)
    assert scores["prefill"]["bare_roofline_median"] == pytest.approx(72.5)
    assert scores["prefill"]["coverage"] == 100.0


def test_the_table_says_what_was_not_scored(steps):
    steps(step("prefill", 10e-3, 11e-3), step("decode", 1e-3, 2e-3))
    answer = perfmodel(*CHECK)
    assert answer.status == 0
    assert "prefill: 1 steps" in answer.out
    assert "decode: no step over 5 ms" in answer.out


def test_steps_that_miss_by_far_fail(steps):
    steps(step("prefill", 10e-3, 20e-3))
    assert perfmodel(*CHECK).status == 1


def test_nothing_to_score_is_no_score():
    own, bare = score_steps([step("decode", 1e-3, 2e-3)])
    assert (own.rows, bare.rows) == (0, 0)
