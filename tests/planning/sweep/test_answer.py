"""Sweeps from Python: parts add up, columns are tidy, files and axes say the same."""

import numpy as np
import pandas as pd
import pytest

import perfmodel
from perfmodel import Deployment, InputError, Workload, estimate

AXES = {
    "model": "llama-3.1-8b", "hardware": "h100-sxm,l40s", "stack": "generic", "tp": "1,2",
    "weights": "auto,fp8", "batch": "1:64:x4", "context": "512,4k,64k", "output": "64,600",
}  # fmt: skip


def same(one, other):
    assert list(one) == list(other)
    for name in one:
        assert np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f"), name


def test_rows_are_estimates_of_their_own_axes():
    result = perfmodel.sweep(AXES)
    # 2 hardware × 2 tp × 2 formats × 4 batches × 3 contexts × 2 outputs = 192; a context of 512
    # has no room for 600 tokens of output: 192/6 = 32 of them.
    assert result.settings == 192
    assert [each.settings for each in result.refused] == [32]
    assert result.rows == 160
    frame = pd.DataFrame(result.columns)
    assert len(frame) == 160
    assert (frame.prompt + frame.output == frame.context).all()
    assert set(frame.weights) == {"bf16", "fp8"}  # as understood
    for row in frame.sample(4, random_state=0).to_dict("records"):
        exact = estimate(
            row["model"], row["hardware"],
            Workload(batch=row["batch"], prompt=row["prompt"], output=row["output"]),
            Deployment(tp=row["tp"], weights=row["weights"], stack="generic"),
        )  # fmt: skip
        assert row["ttft_ms"] == pytest.approx(1e3 * exact.ttft_s, rel=5e-3)
        assert row["tpot_ms"] == pytest.approx(1e3 * exact.tpot_s, rel=5e-3)
        assert row["total_s"] == pytest.approx(exact.total_s, rel=5e-3)
        assert row["gpus"] == exact.plan.parallel.gpus
        rate = exact.output_tokens_per_s / row["gpus"]
        assert row["output_tokens_per_s_per_gpu"] == pytest.approx(rate, rel=5e-3)
        assert row["tokens_per_s_per_user"] == pytest.approx(1e3 / row["tpot_ms"])
        assert row["fits"] == exact.memory.fits
        assert row["required_bytes"] == pytest.approx(exact.memory.required_bytes, abs=1)
        assert row["calibration"] == exact.calibration


@pytest.mark.parametrize("size", [1, 7, 48, 1000])
def test_parts_of_any_size_are_the_same_table(size):
    few = AXES | {"tp": 1, "weights": "auto", "pareto": "ttft_ms,tpot_ms", "best_by": "total_s",
                  "per": "hardware", "top": 2, "where": "fits and batch > 1"}  # fmt: skip
    whole = perfmodel.sweep(few)
    parts = list(perfmodel.sweep_parts(few, part_settings=size))
    assert sum(part.settings for part in parts) == whole.settings
    assert sum(part.fits for part in parts) == whole.fits
    columns = [part.columns for part in parts]
    same({name: np.concatenate([c[name] for c in columns]) for name in columns[0]}, whole.columns)


def test_filters_and_selections():
    every = pd.DataFrame(perfmodel.sweep(AXES).columns)
    result = perfmodel.sweep(
        AXES, where="fits and ttft_ms < 500", best_by="output_tokens_per_s_per_gpu", top=3,
        per="hardware", pareto="tokens_per_s_per_user,output_tokens_per_s_per_gpu",
    )  # fmt: skip
    kept = every[every.fits & (every.ttft_ms < 500)]
    assert result.columns["setting"].tolist() == kept.setting.tolist()
    assert result.fits == int(every.fits.sum())
    ranked = kept.sort_values(["output_tokens_per_s_per_gpu", "setting"], ascending=[False, True])
    best = {h: rows.setting.tolist()[:3] for h, rows in ranked.groupby("hardware")}
    found = pd.DataFrame(result.best.records())
    assert {h: rows.setting.tolist() for h, rows in found.groupby("hardware")} == best
    front = pd.DataFrame(result.pareto.records())
    assert front.tokens_per_s_per_user.is_monotonic_decreasing
    assert front.output_tokens_per_s_per_gpu.is_monotonic_increasing


def test_what_does_not_fit_is_never_selected():
    result = perfmodel.sweep(
        model="llama-3.1-70b", hardware="l40s", batch="1,2", best_by="tpot_ms", pareto="tpot_ms",
        stack="generic",
    )  # fmt: skip
    assert result.fits == 0
    assert not result.columns["fits"].any()
    assert result.best.rows == result.pareto.rows == 0


def test_a_file_says_the_same(tmp_path):
    file = tmp_path / "sweep.yaml"
    lines = [f"{name}: {value!r}" for name, value in AXES.items()]
    file.write_text("\n".join(lines) + "\n")
    same(perfmodel.sweep(file, batch=4).columns, perfmodel.sweep(AXES | {"batch": [4]}).columns)


def test_a_speculation_is_a_word_and_none_another():
    result = perfmodel.sweep(
        model="llama-3.1-8b", hardware="h100-sxm", stack="generic", batch="1,4",
        speculation=[None, {"method": "ngram", "tokens": 2, "acceptance": 0.5}],
        where="speculation == 'none' or batch == 4",
    )  # fmt: skip
    assert result.columns["speculation"].tolist()[:2] == ["none", "none"]
    assert "ngram" in result.columns["speculation"][2]


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"best_by": "tpot"}, "did you mean"),
        ({"best_by": "hardware"}, "numbers"),
        ({"pareto": "ttft_ms,fits"}, "numbers"),
        ({"per": "nothing"}, "per: "),
        ({"model": "llama-9"}, "llama-9"),
        ({"hardware": "h100-sxm,h999"}, "h999"),
        ({"engine": "vllm,none-such"}, "none-such"),
        ({"batch": "1:1000000", "prompt": "1:1000000", "context": None}, "settings"),
    ],
)
def test_faults_are_said_before_the_work(axes, said):
    given = {k: v for k, v in (AXES | axes).items() if v is not None}
    with pytest.raises(InputError, match=said):
        perfmodel.sweep(given)
