"""Case files and the shapes drawn from them, without running any."""

import json

import pytest

from calibrate.cases_file import CasesFile, load_cases, shipped_cases
from calibrate.plan import complete, make_plan
from calibrate.runs.registry import family
from perfmodel.cli.main import run
from perfmodel.errors import InputError, UnknownNameError
from tests.calibrate.fakes import FakeDevice, fake_device

SETS = {"cpu-quick": 100, "cpu-standard": 300, "cuda-quick": 100, "cuda-standard": 300}


@pytest.mark.parametrize("name", SETS)
def test_shipped_sets_have_their_size_and_are_legal(name):
    device, kind = name.split("-")
    cases = load_cases(shipped_cases(device, kind))
    plan = make_plan(cases, fake_device())
    assert len(plan.cases) == pytest.approx(SETS[name], rel=0.15)
    assert len({case.key for case in plan.cases}) == len(plan.cases)
    for case in plan.cases:
        assert family(case.family).legal(case.shape), case.key
        assert family(case.family).work(case.shape).bytes <= 0.3 * FakeDevice.total_bytes


@pytest.mark.parametrize(("name", "minutes"), [("quick", 2), ("standard", 10)])
def test_gpu_sets_are_estimated_within_their_promise(name, minutes):
    plan = make_plan(load_cases(shipped_cases("cuda", name)), fake_device())
    assert plan.seconds < 60 * minutes


def test_a_third_of_the_gemms_are_small_and_axes_are_filled():
    plan = make_plan(load_cases(shipped_cases("cuda", "standard")), fake_device(), ["gemm"])
    m = sorted(int(c.shape["m"]) for c in plan.cases if c.family == "gemm")
    assert 0.3 < sum(size <= 64 for size in m) / len(m) < 0.7
    assert m[0] == 1
    assert m[-1] > 8192


def test_the_same_file_gives_the_same_cases():
    cases = load_cases(shipped_cases("cpu", "quick"))
    assert make_plan(cases, fake_device()) == make_plan(cases, fake_device())


def test_ceilings_come_first_whatever_is_asked_for():
    plan = make_plan(load_cases(shipped_cases("cpu", "quick")), fake_device(), ["elementwise"])
    assert list(dict.fromkeys(c.family for c in plan.cases)) == [
        "matmul_peak", "bandwidth", "elementwise",
    ]  # fmt: skip


def minimal(**families):
    data = {
        "schema": 1, "device": "cpu", "max_bytes": 10**6, "families": families,
        "assumed": {"tflops": {"float32": 0.1}, "gb_s": 10, "call_us": 5, "case_s": 0.1},
    }  # fmt: skip
    return CasesFile.parse(data, "here.yaml")


@pytest.mark.parametrize(
    ("group", "says"),
    [
        ({"also": ({"dtype": "float32", "m": 1, "n": 1},)}, "missing or unknown 'k'"),
        ({"also": ({"dtype": "fp9", "m": 1, "n": 1, "k": 1},)}, "no dtype 'fp9'"),
        ({"also": ({"kernel": "x", "dtype": "int8", "m": 1, "n": 1, "k": 1},)}, "no kernel 'x'"),
        ({"also": ({"dtype": "int8", "m": 1, "n": 1, "k": 1},)}, "no kernel of the shape"),
        ({"count": 1, "fixed": {"dtype": "float32", "n": 9999, "k": 9999, "m": 9999}}, "no legal"),
    ],
)
def test_wrong_cases_are_one_line(group, says):
    with pytest.raises(InputError, match=says):
        make_plan(minimal(gemm=group), fake_device())


def test_unknown_family_and_key_are_named():
    with pytest.raises(UnknownNameError, match="known: matmul_peak, bandwidth"):
        make_plan(minimal(), fake_device(), ["gems"])
    with pytest.raises(InputError, match=r"here\.yaml: families\.gemm\.counts"):
        minimal(gemm={"counts": 3})


def test_kernel_follows_from_the_dtype():
    shape = {"m": 1, "n": 16, "k": 16}
    assert complete("gemm", {"dtype": "fp8", **shape})["kernel"] == "torch._scaled_mm"
    assert complete("matmul_peak", {"dtype": "float16", **shape})["kernel"] == "torch.mm"


def test_plan_flag_prints_times_and_runs_nothing(tmp_path, capsys):
    out = tmp_path / "none"
    assert run(["calibrate", "run", "--out", str(out), "--plan"]) == 0
    text = capsys.readouterr().out
    assert "cases, about" in text
    assert "gemm" in text
    assert run(["calibrate", "run", "--out", str(out), "--plan", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["estimated_s"] == pytest.approx(sum(c["estimated_s"] for c in answer["cases"]))
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--device", "tpu"], "no device is called 'tpu'"),
        (["--device", "cuda:7"], "cuda"),
        (["--quick", "--standard"], "exclude each other"),
        (["--cases", "absent.yaml"], "no such file"),
        (["--families", "gems"], "no kernel family"),
        (["--threads", "0"], "0 threads on cpu"),
    ],
)
def test_wrong_flags_are_one_line_with_status_2(arguments, says, tmp_path, capsys):
    assert run(["calibrate", "run", "--out", str(tmp_path / "x"), *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
