"""Sets of attention from measured tables: what they reach on rows they didn't see."""

import numpy as np
import pandas as pd
import pytest

from calibrate.sets.attention import calibrate_attention, rows_of
from perfmodel.kernels.forms.attention_stack import attention_form
from perfmodel.specs.hardware import load_hardware
from tests.data import REASON, data_dir


def measured(family, gpu="h100-sxm", kv_dtype="bfloat16"):
    folder = data_dir()
    if folder is None:
        pytest.skip(REASON)
    table = pd.read_parquet(folder / "measurements" / f"{family}.parquet")
    if gpu is None:
        return table
    return table[(table["gpu"] == gpu) & (table["kv_dtype"] == kv_dtype)]


@pytest.mark.parametrize(
    ("family", "median", "p90"),
    [("attention_decode", 3.0, 10.0), ("attention_prefill", 4.5, 13.5)],
)
def test_unseen_calls_of_an_h100_are_predicted(family, median, p90):
    fitted, scores = calibrate_attention(family, measured(family), load_hardware("h100-sxm"))
    assert len(fitted.used) <= 300
    everything = scores["all"]
    assert everything.rows > 8000
    assert everything.median < median
    assert everything.p90 < p90
    assert abs(everything.bias) < 1
    assert 86 <= everything.coverage <= 95
    # At their least, ``l2`` says that L2 saves nothing, and ``p`` that nothing overlaps.
    assert set(fitted.fitted.at_bound) <= {"l2", "p"}


def test_a_cold_call_takes_no_less_than_a_repeated_one():
    # 96 MB of L2 hold what an L40S reads at 864 GB/s: repeated calls are up to 4 times faster.
    table = measured("attention_decode", "l40s").sample(1500, random_state=0)
    hardware = load_hardware("l40s")
    fitted, _ = calibrate_attention("attention_decode", table, hardware)
    shapes, _ = rows_of(table)
    warm, _, _ = fitted.predict(shapes)
    form = attention_form("attention_decode", "bfloat16", hardware, cold=True)
    cold, _, _ = fitted.predict(shapes, form=form)
    assert (cold >= warm * (1 - 1e-9)).all()
    assert np.max(cold / warm) > 1.5


def test_repeated_keys_count_once_at_their_median():
    table = pd.DataFrame(
        {
            "gpu": "g", "kv_dtype": "fp8", "batch": [1, 1, 1, 2], "kv_len": 5, "heads": 1,
            "kv_heads": 1, "head_dim": 64, "window": 0, "latency_us": [1.0, 2.0, 9.0, 4.0],
        }
    )  # fmt: skip
    shapes, seconds = rows_of(table)
    assert seconds.tolist() == pytest.approx([2e-6, 4e-6])
    assert shapes["batch"].tolist() == [1, 2]
    assert shapes["kv_bytes"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="one kv_dtype"):
        rows_of(pd.concat([table, table.assign(kv_dtype="bfloat16")]))


MEASURED_KERNELS = {
    "fa2": ("vllm_flash_attn", "vllm_flash_attn_fa2"),
    "fa3": ("vllm_flash_attn_fa3", "vllm_flash_attn_fa4"),
    "trtllm": ("trtllmdecode", "trtllmprefill", "vllm_triton_attn"),
    "flashinfer": ("fidecode", "fiprefill", "vllm_triton_attn"),
    "flash_attn": ("vllm_flash_attn_mla",),
    "flashmla": ("vllm_flashmla",),
    "triton": ("vllm_triton_mla",),
}


@pytest.mark.parametrize(
    "family", ["attention_decode", "attention_prefill", "mla_decode", "mla_prefill"]
)
def test_devices_run_the_kernels_that_their_forms_describe(family):
    for (gpu, kv_dtype), rows in measured(family, None, None).groupby(["gpu", "kv_dtype"]):
        kernel = getattr(attention_form(family, kv_dtype, load_hardware(gpu)), "kernel", "")
        for name in rows["kernel"].unique():
            assert any(name.endswith(end) for end in MEASURED_KERNELS[kernel]), (gpu, name)
