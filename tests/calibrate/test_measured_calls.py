import csv

import pytest

from calibrate.measured_calls import read_calls
from perfmodel.errors import InputError
from perfmodel.specs.hardware import hardware_dir

COLUMNS = ("dtype", "status", "quality", "latency_us", "flops", "bytes")
GOOD = ("bfloat16", "ok", "clean", "50", "4e6", "2e6")


def written(path, *rows, columns=COLUMNS):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def test_a_call_is_its_work_over_its_time(tmp_path):
    (call,) = read_calls(written(tmp_path / "gemm.csv", GOOD))
    assert (call.family, call.arithmetic) == ("gemm", "bf16")
    assert call.intensity == pytest.approx(2)  # 4e6 FLOP over 2e6 bytes
    assert call.flops_per_s == pytest.approx(80e9)  # 4e6 FLOP in 50 µs


def test_only_undisturbed_calls_that_count_flops_are_shown(tmp_path):
    rows = [
        GOOD,
        ("float32", "failed", "none", "0", "4e6", "2e6"),
        ("float32", "ok", "disturbed", "90", "4e6", "2e6"),
        ("float32", "ok", "clean", "50", "0", "2e6"),
        ("int4_wo", "ok", "corrected", "50", "4e6", "2e6"),
    ]
    calls = read_calls(written(tmp_path / "gemm.csv", *rows))
    # Weights of 4 bits are multiplied in 16.
    assert [call.arithmetic for call in calls] == ["bf16", "bf16"]


def test_a_folder_is_all_of_its_tables(tmp_path):
    written(tmp_path / "gemm.csv", GOOD)
    written(tmp_path / "attention_decode.csv", GOOD, GOOD)
    families = [call.family for call in read_calls(tmp_path)]
    assert families == ["attention_decode", "attention_decode", "gemm"]


def test_the_shipped_calls_stay_under_their_devices_roofs():
    hardware = hardware_dir() / "measured" / "epyc-zen5-1-thread.torch"
    calls = read_calls(hardware)
    assert {"gemm", "attention_decode", "attention_prefill"} <= {c.family for c in calls}
    assert {c.arithmetic for c in calls} <= {"bf16", "fp32", "int8", "fp16"}
    assert all(c.flops_per_s > 0 for c in calls)


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        ([("1", "2")], ("m", "n"), "status"),
        ([("bfloat16", "ok", "clean", "soon", "4e6", "2e6")], COLUMNS, "line 2"),
        ([("bfloat16", "failed", "none", "0", "4e6", "2e6")], COLUMNS, "no undisturbed call"),
    ],
)
def test_what_is_no_such_table_is_said(tmp_path, rows, columns, said):
    path = written(tmp_path / "gemm.csv", *rows, columns=columns)
    with pytest.raises(InputError, match=said) as error:
        read_calls(path)
    assert str(path) in str(error.value)


def test_nothing_there_is_said(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="calibrate run"):
            read_calls(path)
