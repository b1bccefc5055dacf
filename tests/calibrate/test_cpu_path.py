"""The whole path on this machine's own cores: run, fit, check, end to end. Real times only."""

from pathlib import Path

import pytest

from calibrate.check import FACTOR
from perfmodel.kernels.calibration_file import load_calibrated
from perfmodel.specs.hardware import load_hardware
from tests.cli.runner import perfmodel

CASES = Path(__file__).parent / "cases" / "cpu-path.yaml"
SHARE = 15.0
"""Median error of whole steps that is aimed at, in per cent."""
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chain")]


class Chain:
    """One pass through the commands, into one folder."""

    def __init__(self, folder):
        self.folder, self.profile = folder, folder / "profile.yaml"
        self.calibration = folder / "calibration.yaml"
        same = ("--hardware", self.profile)
        self.run = perfmodel(
            "calibrate", "run", "--cases", CASES, "--threads", 1, "--out", folder, "--json"
        )
        self.fit = perfmodel(
            "calibrate", "fit", folder, *same, "--stack", "torch", "--out", self.calibration,
            "--json",
        )  # fmt: skip
        same = ("--calibration", self.calibration, *same)
        self.check = perfmodel("calibrate", "check", *same, "--cases", CASES, "--json")
        self.steps = perfmodel(
            "calibrate", "check", *same, "--end-to-end", "--size", "tiny", "--json"
        )

    @property
    def good(self):
        """Whether kernels and steps are predicted as they ought to be."""
        return self.check.status == 0 and self.steps.status == 0


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """A pass; a second one where other jobs spoiled the first, by the same measure.

    It isn't warned of: a warning is an error here, and would forbid the second pass.
    """
    first = Chain(tmp_path_factory.mktemp("first"))
    if first.good:
        return first
    return Chain(tmp_path_factory.mktemp("second"))


def test_the_chain_runs(chain):
    assert (chain.run.status, chain.fit.status) == (0, 0), chain.run.err + chain.fit.err


def test_its_files_load(chain):
    profile = load_hardware(str(chain.profile))
    found = load_calibrated(chain.calibration)
    assert found.hardware == profile.name
    assert found.stack == "torch"
    wanted = {"gemm.bf16", "attention_prefill.bf16", "attention_decode.bf16", "elementwise.bf16"}
    assert wanted | {"launch"} <= set(found.sets)
    assert found.launch_s("eager") == 0.0  # the clock's times hold it


def test_fresh_shapes_beat_the_bare_roofline_by_the_factor(chain):
    total = chain.check.record["sets"][-1]
    assert total["set"] == "all"
    assert total["rows"] > 30
    assert total["bare_roofline_median"] > FACTOR * total["median"], chain.check.out
    assert chain.check.status == 0, chain.check.record["failures"]


def test_whole_steps_are_near_the_estimate(chain):
    scores = chain.steps.record["scores"]
    assert len(chain.steps.record["steps"]) == 6
    if scores["all"]["rows"]:  # steps over 5 ms: a fast machine may have none
        assert scores["all"]["median"] < SHARE, chain.steps.out
    assert chain.steps.status == 0


def test_an_estimate_takes_the_file(chain):
    answer = perfmodel(
        "estimate", "smollm2-135m", "--hardware", chain.profile, "--stack", chain.calibration,
        "--engine", "torch-eager", "--execution", "eager", "--prompt", 64, "--json",
    )  # fmt: skip
    assert answer.status == 0, answer.err
    assert "fitted (torch" in answer.out


def test_another_devices_profile_is_refused(chain):
    answer = perfmodel(
        "calibrate", "check", "--calibration", chain.calibration, "--hardware", "epyc-9654",
        "--threads", 1, "--cases", CASES,
    )  # fmt: skip
    assert answer.status == 2
    assert "the profile of epyc-9654" in answer.err
