"""The runner end to end on this machine's cores: rows, resuming, failures, profile."""

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibrate.cases_file import load_cases
from calibrate.device import open_device
from calibrate.measure import Runner, columns, settings_of, shape_of
from calibrate.plan import Case, complete, key_of, make_plan
from calibrate.profile import measured_profile, write_profile
from calibrate.rows import RowFile, read_rows
from calibrate.runs import registry
from calibrate.state import State
from perfmodel.errors import InputError
from perfmodel.specs.hardware import load_hardware

TINY = Path(__file__).parent / "cases" / "tiny.yaml"


@pytest.fixture(scope="module")
def device():
    opened: Any = open_device("cpu", threads=1)
    opened.cache_bytes = 2**20  # rotating over the real cache would take most of the test's time
    return opened


@pytest.fixture(scope="module")
def plan(device):
    return make_plan(load_cases(TINY), device)


@pytest.fixture(scope="module")
def measured(device, plan, tmp_path_factory):
    out = tmp_path_factory.mktemp("rows")
    summary = Runner(device, out, settings_of(load_cases(TINY), 0.1)).run(plan)
    return out, summary


def rows_of(out):
    return [(path.stem, row) for path in sorted(out.glob("*.csv")) for row in read_rows(path)]


def test_each_case_has_one_complete_row(measured, plan):
    out, summary = measured
    rows = rows_of(out)
    assert sorted(key_of(name, row) for name, row in rows) == sorted(c.key for c in plan.cases)
    assert summary.measured == len(rows)
    for name, row in rows:
        assert list(row) == columns(name)
        assert shape_of(row, name)["dtype"] == row["dtype"]
        if row["status"] == "ok":
            assert float(row["latency_us"]) >= float(row["fastest_us"]) > 0
            assert row["quality"] in {"clean", "corrected"}
            assert math.isfinite(float(row["roof_share"]))
            assert row["flag"] == ("above_roof" if float(row["roof_share"]) > 1 else "")


def test_a_kernel_that_the_device_lacks_is_a_row_with_its_reason(measured):
    failed = [row for _, row in rows_of(measured[0]) if row["status"] == "failed"]
    assert [row["op"] for row in failed] == ["graph"]
    assert failed[0]["reason"] == "NotImplementedError: torch has no graphs on a CPU"
    assert float(failed[0]["latency_us"]) == 0


def test_profile_loads_as_hardware(measured, device, tmp_path):
    data = measured_profile(measured[0], device.total_bytes, device.cache_bytes)
    write_profile(data, tmp_path / "profile.yaml")
    hardware = load_hardware(tmp_path / "profile.yaml")
    best = max(float(r["bytes"]) / float(r["fastest_us"]) * 1e6
               for r in read_rows(measured[0] / "bandwidth.csv"))  # fmt: skip
    assert hardware.memory_bandwidth == pytest.approx(best, rel=1e-3)
    assert (hardware.peak("fp32") or 0) > 0
    assert hardware.sm_count == 1
    assert str(hardware.peaks_tflops.source).startswith("measured by perfmodel")
    assert hardware.name.endswith("-1-thread-measured")


def test_profile_without_ceilings_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no ceilings measured"):
        measured_profile(tmp_path, 10**10, 10**6)


def test_resuming_measures_only_what_is_missing(measured, device, plan):
    out, _ = measured
    before = rows_of(out)
    file = out / "gemm.csv"
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])  # a line that a crash tore
    summary = Runner(device, out, settings_of(load_cases(TINY), 0.1)).run(plan)
    assert (summary.measured, summary.resumed) == (1, len(plan.cases) - 1)
    assert [key_of(n, r) for n, r in rows_of(out)] == [key_of(n, r) for n, r in before]


def test_rows_of_other_conditions_arent_mixed(measured, device, plan):
    with pytest.raises(InputError, match="cache 'cold', this run's is 'warm'"):
        Runner(device, measured[0], settings_of(load_cases(TINY), 0.1), warm=True).run(plan)


def test_running_out_of_memory_is_a_row(device, plan, tmp_path, monkeypatch):
    def prepare(shape, bench):
        bench.torch.empty(2**62, dtype=bench.torch.uint8)

    gemm = replace(registry.FAMILIES["gemm"], prepare=prepare)
    monkeypatch.setitem(registry.FAMILIES, "gemm", gemm)
    case = next(case for case in plan.cases if case.family == "gemm")
    row = Runner(device, tmp_path, settings_of(load_cases(TINY), 0.1)).row(case)
    assert row.result.status == "failed"
    assert row.result.reason.startswith("out of memory")


def test_a_lost_device_ends_the_run_after_its_row(device, plan, tmp_path, monkeypatch):
    def lose(*arguments):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    peak = replace(registry.FAMILIES["matmul_peak"], prepare=lose)
    monkeypatch.setitem(registry.FAMILIES, "matmul_peak", peak)
    monkeypatch.setattr(device, "synchronize", lose)
    with pytest.raises(InputError, match=r"is lost after matmul_peak: .*run again to go on"):
        Runner(device, tmp_path, settings_of(load_cases(TINY), 0.1)).run(plan)
    assert [row["status"] for _, row in rows_of(tmp_path)] == ["failed"]


def test_inputs_larger_than_memory_are_a_row(device, plan, tmp_path, monkeypatch):
    monkeypatch.setattr(device, "free_bytes", lambda: 10)
    row = Runner(device, tmp_path, settings_of(load_cases(TINY), 0.1)).row(plan.cases[0])
    assert "exceed 60% of the free" in row.result.reason


GPU_ONLY = {
    "gemm": {"dtype": "fp8", "m": 16, "n": 32, "k": 32},
    "host_copy": {"dtype": "int8", "op": "host_to_device", "pinned": "no", "message_bytes": 4096},
}


@pytest.mark.parametrize("name", GPU_ONLY)
def test_what_only_gpus_are_given_runs_here_too(device, name, tmp_path):
    case = Case(name, complete(name, GPU_ONLY[name]), 1.0)
    row = Runner(device, tmp_path, settings_of(load_cases(TINY), 0.5)).row(case)
    assert row.result.status == "ok", row.result.reason
    assert row.result.latency_us > 0


def test_state_is_read_warm_and_after_the_samples(device, plan, tmp_path, monkeypatch):
    clocks = iter([1500.0, 1400.0])

    def state():
        return State(next(clocks), None, None, None, "none", 0.5, "")

    monkeypatch.setattr(device, "state", state)
    row = Runner(device, tmp_path, settings_of(load_cases(TINY), 0.5)).row(plan.cases[0])
    assert (row.state.clock_mhz, row.state.others_busy) == (1400.0, 0.5)
    assert next(clocks, None) is None


def test_incomplete_row_is_refused(tmp_path):
    file = RowFile(tmp_path / "x.csv", ["a", "b"])
    with pytest.raises(ValueError, match="incomplete row"):
        file.append({"a": 1})
    assert (tmp_path / "x.csv").read_text() == "a,b\n"


def test_killed_run_resumes_without_duplicates(tmp_path):
    code = "import sys; from perfmodel.cli.main import run; sys.exit(run(sys.argv[1:]))"
    arguments = ["calibrate", "run", "--cases", str(TINY), "--threads", "1", "--tolerance", "0.1",
                 "--families", "elementwise", "--out", str(tmp_path), "--json"]  # fmt: skip
    command = [sys.executable, "-c", code, *arguments]
    root = Path(__file__).resolve().parents[2]
    here = {**os.environ, "PYTHONPATH": str(root)}
    first = subprocess.Popen(command, env=here, cwd=root, stdout=subprocess.PIPE)
    until = time.monotonic() + 60
    peaks = tmp_path / "matmul_peak.csv"
    while time.monotonic() < until and len(read_rows(peaks)) < 1:
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert 1 <= len(rows_of(tmp_path)) <= 8
    done = subprocess.run(command, env=here, cwd=root, capture_output=True, timeout=100, check=True)
    keys = [key_of(name, row) for name, row in rows_of(tmp_path)]
    assert len(keys) == len(set(keys)) == 8
    assert b'"failed": 0' in done.stdout
