"""From a run's folder to a calibration: which rows, which sets, how sure; the shipped CPU's too."""

import csv
from pathlib import Path

import numpy as np
import pytest

from calibrate.cases_file import load_cases, shipped_cases
from calibrate.check import compare, fresh_cases
from calibrate.fit_run import fit_run, smooth_form
from calibrate.plan import make_plan
from calibrate.run_rows import is_run, read_run
from calibrate.runs.registry import CEILINGS
from calibrate.small_sets import calibrate_small
from calibrate.write import Provenance, write_calibration
from perfmodel.errors import InputError
from perfmodel.kernels.calibration_file import load_calibrated
from perfmodel.kernels.choice import choose_calibration
from perfmodel.kernels.forms.base import Chip
from perfmodel.kernels.forms.elementwise import ElementwiseForm
from perfmodel.kernels.requests import elementwise_request, request_of
from perfmodel.operators.record import Elementwise, ExpertLayer, Gemm, GroupedGemm
from perfmodel.specs.hardware import hardware_dir, load_hardware
from tests.calibrate.fakes import fake_device
from tests.cli.runner import perfmodel

NAME = "epyc-zen5-1-thread"
ROWS = Path(str(hardware_dir())) / "measured" / f"{NAME}.torch"
CORE = Chip(peak=4e11, bandwidth=4e10, sm_count=1, clock_hz=2.5e9, l2_bytes=32e6)
SPREAD = 0.1


@pytest.fixture(scope="module")
def cpu():
    return load_hardware(NAME)


@pytest.fixture(scope="module")
def run(cpu):
    return read_run(ROWS, cpu)


def changed(folder, source, change):
    """A copy of a family's file whose rows went through ``change``."""
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (folder / source.name).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows([row | change(i) for i, row in enumerate(rows)])


def test_a_folder_of_a_run_is_told_from_tables(tmp_path):
    assert is_run(ROWS)
    assert not is_run(tmp_path)
    (tmp_path / "gemm.csv").write_text("gpu,dtype,m,n,k,latency_us\nx,bfloat16,1,1,1,5\n")
    assert not is_run(tmp_path)


def test_sets_hold_the_rows_of_their_format(run):
    wanted = {"gemm.bf16", "gemm.fp32", "attention_decode.bf16", "grouped_gemm.bf16", "launch"}
    assert wanted <= set(run.sets)
    gemm = run.sets["gemm.bf16"]
    m, n, k = (gemm.shapes[name] for name in ("m", "n", "k"))
    assert gemm.flops == pytest.approx(2 * m * n * k)
    assert gemm.bytes == pytest.approx(2 * (m * n + m * k + n * k))
    norms = run.sets["elementwise.bf16"]
    assert norms.bytes == pytest.approx(sum(norms.shapes.values()))
    assert sum(norms.shapes["copy"] > 0) == 2  # a copy and a triad, whatever was streamed
    assert run.sets["gemm.bf16"].clocked


def test_disturbed_and_failed_rows_are_left_out_and_counted(tmp_path, cpu, run):
    states = [{"quality": "disturbed"}, {"status": "failed"}]
    changed(tmp_path, ROWS / "gemm.csv", lambda i: states[i] if i < 2 else {})
    found = read_run(tmp_path, cpu)
    assert found.left_out == {"disturbed by other jobs": "1 rows", "failed when measured": "1 rows"}
    rows = sum(len(s) for name, s in found.sets.items() if name.startswith("gemm"))
    assert rows == len((ROWS / "gemm.csv").read_text().splitlines()) - 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"quality": "disturbed"}, "no undisturbed row"),
        ({"threads": "8"}, "measured on 8 threads"),
    ],
)
def test_rows_that_cannot_be_used_are_one_line(tmp_path, cpu, change, says):
    changed(tmp_path, ROWS / "gemm.csv", lambda _: change)
    with pytest.raises(InputError, match=says):
        read_run(tmp_path, cpu)


def test_rows_of_two_devices_are_refused(tmp_path, cpu):
    changed(tmp_path, ROWS / "gemm.csv", lambda i: {"device": str(i % 2)})
    with pytest.raises(InputError, match="several devices"):
        read_run(tmp_path, cpu)


def test_few_rows_make_no_set(tmp_path, cpu):
    changed(tmp_path, ROWS / "launch.csv", lambda _: {})
    changed(tmp_path, ROWS / "bandwidth.csv", lambda _: {})
    found = read_run(tmp_path, cpu)
    assert set(found.sets) == {"launch"}  # streams alone are no elementwise set
    sets, without = fit_run(found.sets, cpu)
    assert set(sets) == {"launch"}
    assert without == {}


@pytest.mark.parametrize(("rows", "draws"), [(8, 12), (16, 12), (40, 2)])
def test_intervals_of_small_fits_cover_new_rows(rows, draws):
    form = ElementwiseForm()
    values = {p.name: p.start for p in form.parameters}
    rng = np.random.default_rng(rows)

    def drawn(count):
        size = np.exp(rng.uniform(np.log(1e4), np.log(1e8), count))
        kind = rng.integers(0, 3, count)
        names = ("norm", "silu", "rotary")
        shapes = {n: np.where(kind == i, size, 0.0) for i, n in enumerate(names)}
        exact = form.seconds(CORE, values, shapes)
        return shapes, exact * np.exp(SPREAD * rng.normal(size=count))

    inside = []
    for _ in range(draws):
        fitted, _ = calibrate_small(form, CORE, *drawn(rows))
        shapes, measured = drawn(100)
        _, low, high = fitted.predict(shapes)
        inside.append(np.mean((low <= measured) & (measured <= high)))
    assert 0.82 < np.mean(inside) < 0.995


def test_the_shipped_calibration_is_the_fit_of_the_shipped_rows(run, cpu, tmp_path):
    sets, _ = fit_run(run.sets, cpu)
    path = tmp_path / "again.yaml"
    write_calibration(path, Provenance(NAME, "torch", "x", "2026-01-01", "x"), sets)
    again, shipped = load_calibrated(path), choose_calibration(cpu, "torch")
    assert shipped is not None
    assert set(again.sets) == set(shipped.calibrated.sets)
    for name, rows in run.sets.items():
        if name in again.sets and name != "launch":
            peak = 1.0 if rows.family == "elementwise" else cpu.peak(again.sets[name].arithmetic)
            chip = Chip(peak, cpu.memory_bandwidth, 1, cpu.clock_hz, cpu.l2_bytes)
            ours = again.sets[name].kernels.predict(chip, rows.shapes)[0]
            theirs = shipped.calibrated.sets[name].kernels.predict(chip, rows.shapes)[0]
            assert ours == pytest.approx(theirs, rel=0.03), name


def test_shipped_fit_beats_the_roofline_set_by_set(run, cpu):
    found = compare(run.sets, cpu, choose_calibration(cpu, "torch").calibrated, run.left_out)
    assert not found.failures
    for one in found.sets:
        assert one.factor > 2, one.name
    assert found.total.name == "all"
    assert "2 rows" in found.left_out["attention_prefill.fp32.sdpa_math"]


def test_no_parameter_of_the_shipped_fit_is_at_its_bound(run, cpu):
    from perfmodel.kernels.calibration_file import read_calibration

    path = Path(str(hardware_dir())) / "calibrations" / f"{NAME}.torch.yaml"
    for name, found in read_calibration(path).sets.items():
        assert not found.at_bound, name
    assert not read_run(ROWS, cpu).left_out


def test_a_bad_calibration_fails_the_check(run, cpu):
    worse = {
        name: rows.__class__(
            rows.family, rows.shapes, rows.seconds * 4, rows.flops, rows.bytes, rows.kernel,
            rows.dtype, rows.clocked,
        )
        for name, rows in run.sets.items()
    }  # fmt: skip
    found = compare(worse, cpu, choose_calibration(cpu, "torch").calibrated)
    assert "isn't 2 times below" in found.failures[0]
    assert "the 90 % intervals hold" in found.failures[1]


def test_a_check_draws_other_shapes_and_no_ceilings():
    cases = load_cases(shipped_cases("cpu", "quick"))
    first = {case.key for case in make_plan(cases, fake_device()).cases}
    plan = make_plan(fresh_cases(cases), fake_device())
    assert not {case.family for case in plan.cases} & set(CEILINGS)
    fresh = {case.key for case in plan.cases}
    assert len(fresh - first) > 0.95 * len(fresh)


def test_a_calibration_may_be_a_file(cpu, tmp_path):
    path = Path(str(hardware_dir())) / "calibrations" / f"{NAME}.torch.yaml"
    assert choose_calibration(cpu, str(path)).origin == "fitted"
    assert choose_calibration(load_hardware("epyc-9654"), str(path)).origin == "transferred"
    with pytest.raises(InputError, match="can't be read"):
        choose_calibration(cpu, str(tmp_path / "absent.yaml"))


def test_operators_find_their_operation():
    def asked(name, read=4.0, write=4.0):
        op = Elementwise(name=name, tokens=10, read_bytes=read, write_bytes=write)
        return {key: size for key, size in elementwise_request(op).shapes.items() if size}

    assert asked("norm_residual") == {"norm": 40, "copy": 60}  # two rows of four, then three
    assert asked("final_norm", 4.0, 2.0) == {"norm": pytest.approx(40)}
    assert asked("rotary") == {"rotary": 80}
    assert asked("ffn.activation") == {"silu": 80}
    assert asked("kv_write") == {"copy": 80}


def test_experts_are_asked_as_a_layer_or_as_multiplies():
    layer = ExpertLayer(tokens=8, hidden=64, width=32, top_k=2, experts=4, tp=1, ep=1, gated=True)
    op = GroupedGemm(name="up", layer=layer, rows=16, active_experts=4, experts=4, n=64, k=64)
    assert request_of(op, {"experts.bf16"}).set_name == "experts.bf16"
    asked = request_of(op, {"grouped_gemm.bf16"})
    assert asked.set_name == "grouped_gemm.bf16"
    assert (asked.shapes["rows"], asked.shapes["elements"]) == (16, 64 * 64)


def test_a_widened_weight_takes_its_own_kernel_where_it_was_measured():
    op = Gemm(name="up", m=1, n=64, k=64, weight_format="int4")
    assert request_of(op, {"gemm.int4_wo"}).set_name == "gemm.int4_wo"
    assert request_of(op).set_name == "gemm.bf16"


def test_forms_of_narrow_formats_count_their_bytes():
    assert smooth_form("gemm", "int8").output_bytes == 4.0
    assert smooth_form("gemm", "int4_wo").weight_bytes == 0.5 + 4 / 128
    assert smooth_form("grouped_gemm", "bfloat16").weight_bytes == 2.0
    assert smooth_form("launch", "", clocked=False).held is False


def test_estimates_take_the_cpus_sets():
    answer = perfmodel(
        "estimate", "smollm2-135m", "--hardware", NAME, "--engine", "torch-eager",
        "--execution", "eager", "--prompt", 64, "--json",
    )  # fmt: skip
    assert answer.status == 0, answer.err
    assert "fitted (torch" in answer.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--calibration", "absent.yaml", "--hardware", NAME), "can't be read"),
        (("--calibration", "x.yaml", "--hardware", NAME, "--quick", "--standard"), "exclude"),
        (("--calibration", "x.yaml", "--hardware", NAME, "--end-to-end", "--size", "odd"), "odd"),
    ],
)
def test_wrong_flags_of_a_check_are_one_line(arguments, says):
    answer = perfmodel("calibrate", "check", *arguments)
    assert answer.status == 2
    assert says in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("family", ["gemm", "attention_decode", "attention_prefill", "moe"])
def test_a_runs_files_are_tables_to_validate(family):
    answer = perfmodel(
        "validate", "kernels", ROWS / f"{family}.csv", "--hardware", NAME, "--json"
    ).record
    assert answer["predicted"] == answer["rows"]
    assert all(source.startswith("fitted (torch") for source in answer["sources"])
    assert max(s["median"] for s in answer["scores"] if s["regime"] == "all") < 25
