"""Each doubt is found where it was planted, and nowhere else; no row is dropped."""

import numpy as np
import pandas as pd

from calibrate.lint import lint
from calibrate.table_work import roof_of
from calibrate.tables import read_table
from perfmodel.specs.hardware import load_hardware
from tests.calibrate.tables import DEVICE, grid, timed


def base():
    """A sweep without a fault: over the roof, the larger the slower, no neighbours far apart."""
    frame = grid(dtype=["bfloat16"], n=[4096, 8192], k=[4096], m=[64, 256, 1024, 2048, 4096, 8192])
    frame = frame.astype({"m": int, "n": int, "k": int})
    roof = roof_of("gemm", frame, DEVICE).us
    return frame.assign(latency_us=1.2 * roof + 3)


def found(tmp_path, frame, hardware=None):
    path = tmp_path / "t.parquet"
    frame.to_parquet(path, index=False)
    table = read_table(path, hardware)
    findings = {f.check: f for f in lint(table, hardware)}
    assert len(table.rows) == len(frame)
    return findings


def test_a_clean_sweep_raises_no_doubt(tmp_path):
    assert found(tmp_path, base()) == {}


def test_repeats_are_told_from_repeats_that_differ(tmp_path):
    frame = base()
    again = frame.iloc[[0, 3]].copy()
    again.iloc[1, frame.columns.get_loc("latency_us")] *= 1.5
    findings = found(tmp_path, pd.concat([frame, again], ignore_index=True))
    assert findings["duplicate"].rows == (1, 4, 13, 14)
    assert findings["differing-duplicate"].rows == (4, 14)
    assert "1.5×" in findings["differing-duplicate"].message


def test_an_outlier_stands_out_from_its_neighbours(tmp_path):
    frame = base()
    frame.loc[3, "latency_us"] *= 8
    assert found(tmp_path, frame)["outlier"].rows == (4,)
    frame = base()
    frame.loc[[1, 2, 4, 5], "latency_us"] *= 9
    assert found(tmp_path, frame)["outlier"].rows == (4,)


def test_a_row_far_from_the_roof_needs_no_neighbours(tmp_path):
    frame = base().iloc[::2].assign(k=lambda f: 4096 + 64 * np.arange(len(f)))
    frame.loc[4, "latency_us"] *= 40
    assert found(tmp_path, frame)["far-from-roof"].rows == (3,)


def test_faster_than_possible(tmp_path):
    frame = base()
    roof = roof_of("gemm", frame, DEVICE).us
    frame.loc[5, "latency_us"] = 0.7 * roof[5]
    findings = found(tmp_path, frame)
    assert findings["above-peak"].rows == (6,)
    assert "1.43×" in findings["above-peak"].message


def test_warm_caches_are_told_from_wrong_times(tmp_path):
    frame = grid(
        dtype=["bfloat16"], kv_dtype=["bfloat16"], batch=[1], heads=[32], kv_heads=[8],
        head_dim=[128], window=[0], kv_len=[4096, 262144],
    ).drop(columns="dtype")  # fmt: skip
    frame = frame.astype({"batch": int, "heads": int, "kv_heads": int, "kv_len": int})
    roof = roof_of("attention_decode", frame, DEVICE).us
    findings = found(tmp_path, frame.assign(latency_us=0.5 * roof))
    assert findings["l2-warm"].rows == (1,)
    assert findings["above-bandwidth"].rows == (2,)


def test_a_larger_size_that_is_faster(tmp_path):
    frame = base()
    frame.loc[3, "latency_us"] = 1.2 * frame.loc[4, "latency_us"]
    findings = found(tmp_path, frame)
    assert findings["non-monotone"].rows == (4,)
    assert set(findings) == {"non-monotone"}


def test_mixed_kernels_and_versions(tmp_path):
    frame = base()
    frame.loc[[1, 2], "kernel"] = "deepgemm"
    frame.loc[[7], "framework_version"] = "0.14.0"
    findings = found(tmp_path, frame)
    assert findings["mixed-kernels"].rows == (2, 3)
    assert "deepgemm (2)" in findings["mixed-kernels"].message
    assert findings["mixed-versions"].rows == (8,)


def test_rows_of_an_unknown_device_are_compared_with_the_device_given(tmp_path):
    frame = base().assign(gpu="some box")
    assert found(tmp_path, frame) == {}
    # Half the bandwidth and an eighth of the peak: nothing of this could be so fast there.
    slower = found(tmp_path, frame, load_hardware("l4"))
    assert {"above-peak", "l2-warm"} <= set(slower)


def test_a_form_is_never_under_the_roof_by_much(tmp_path):
    frame = timed("gemm", base().drop(columns="latency_us"))
    assert not {"above-peak", "above-bandwidth"} & set(found(tmp_path, frame))
