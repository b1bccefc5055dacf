"""Every row is predicted as it was measured or says why not, and errors are counted right."""

import numpy as np
import pandas as pd
import pytest

from calibrate.predict_rows import sets_of
from calibrate.predictions_file import write_predictions
from calibrate.schema import SCHEMAS
from calibrate.sets.experts import calibrate_experts
from calibrate.table_work import operators_of, set_name, shapes_of
from calibrate.tables import read_table
from calibrate.validate import regimes, validate_table
from perfmodel.errors import InputError
from perfmodel.kernels.choice import TRANSFER_WIDENS
from perfmodel.specs.hardware import load_hardware
from tests.calibrate.tables import DEVICE, WIDTH, choice, decode_shapes, gemm_shapes, timed
from tests.data import REASON, data_dir


def table_of(tmp_path, frame):
    path = tmp_path / "t.parquet"
    frame.to_parquet(path, index=False)
    return read_table(path, DEVICE)


def scores(validation, dtype="bfloat16"):
    return {s.regime: s.score for s in validation.scores if s.dtype == dtype}


@pytest.mark.parametrize(
    ("family", "shapes"), [("gemm", gemm_shapes()), ("attention_decode", decode_shapes())]
)
def test_rows_are_predicted_as_they_were_measured(tmp_path, family, shapes):
    table = table_of(tmp_path, timed(family, shapes))
    validation = validate_table(table, DEVICE, choice())
    out = validation.predictions
    np.testing.assert_allclose(out["predicted_us"], table.rows["latency_us"], rtol=1e-9)
    np.testing.assert_allclose(np.log(out["upper_us"] / out["predicted_us"]), WIDTH)
    np.testing.assert_allclose(np.log(out["lower_us"] / out["predicted_us"]), -WIDTH)
    assert set(out["source"]) == {"fitted (vllm 0.24.0)"}
    assert validation.unpredicted == {}
    assert scores(validation)["all"].median == pytest.approx(0, abs=1e-6)


def test_errors_bias_and_coverage_are_counted_right(tmp_path):
    shapes = gemm_shapes()
    # Three of four rows inside the interval; the last slower than predicted by e^0.5.
    noise = np.tile([0.0, 0.1, -0.1, 0.5], len(shapes) // 4)
    validation = validate_table(table_of(tmp_path, timed("gemm", shapes, noise)), DEVICE, choice())
    every = scores(validation)["all"]
    errors = 100 * np.abs(np.exp(-noise) - 1)
    assert every.rows == len(shapes)
    assert every.coverage == pytest.approx(75)
    assert every.median == pytest.approx(np.median(errors))
    assert every.mean == pytest.approx(errors.mean())
    assert every.p90 == pytest.approx(np.percentile(errors, 90))
    assert every.bias == pytest.approx(np.median(100 * (np.exp(-noise) - 1)))


def test_regimes_hold_the_rows_that_they_say(tmp_path):
    validation = validate_table(table_of(tmp_path, timed("gemm", gemm_shapes())), DEVICE, choice())
    found = scores(validation)
    small = (gemm_shapes()["m"] <= 64).sum()
    assert (found["m ≤ 64"].rows, found["m > 64"].rows) == (small, len(gemm_shapes()) - small)
    slow = (validation.table.rows["latency_us"] > 10).sum()
    assert found["over 10 µs"].rows == slow > 0
    table = table_of(tmp_path, timed("attention_decode", decode_shapes()))
    found = scores(validate_table(table, DEVICE, choice()))
    rows = decode_shapes()
    cut = ((rows["window"] > 0) & (rows["window"] < rows["kv_len"])).sum()
    assert (found["windowed"].rows, found["not windowed"].rows) == (cut, len(rows) - cut)


def test_rows_without_a_prediction_are_counted_by_reason(tmp_path):
    frame = timed("gemm", gemm_shapes())
    frame.loc[0, "dtype"] = "fp7"
    frame.loc[[1, 2], "gpu"] = "l40s"
    frame.loc[3, "gpu"] = "some box"
    validation = validate_table(table_of(tmp_path, frame), DEVICE, choice())
    assert validation.unpredicted == {
        "measured on l40s, not h100-sxm": 2,
        "unknown dtype 'fp7'": 1,
        "unknown hardware 'some box'": 1,
    }
    out = validation.output
    assert len(out) == len(frame)
    assert out["predicted_us"].isna().sum() == 4
    assert (out.loc[4:, "reason"] == "").all()
    assert scores(validation)["all"].rows == len(frame) - 4


def test_a_table_of_one_unnamed_device_is_the_device_given(tmp_path):
    frame = timed("gemm", gemm_shapes()).assign(gpu="nvidia-h100-80gb-hbm3")
    validation = validate_table(table_of(tmp_path, frame), DEVICE, choice())
    assert validation.unpredicted == {}


def test_what_has_no_set_takes_the_share_of_the_roof_and_says_so(tmp_path):
    frame = timed("gemm", gemm_shapes()).assign(dtype="fp8")
    validation = validate_table(table_of(tmp_path, frame), DEVICE, choice())
    assert validation.predicted.all()
    assert list(validation.sources) == ["no set: assumed share of the roof"]
    out = validation.predictions
    assert (out["lower_us"] <= out["predicted_us"]).all()
    assert (out["predicted_us"] <= out["upper_us"]).all()
    bare = validate_table(table_of(tmp_path, timed("gemm", gemm_shapes())), DEVICE, None)
    assert list(bare.sources) == ["no set: assumed share of the roof"]


def test_a_format_that_the_device_lacks_is_a_reason(tmp_path):
    a100 = load_hardware("a100-sxm-80gb")
    frame = timed("gemm", gemm_shapes()).assign(dtype="fp8", gpu="a100-sxm-80gb")
    validation = validate_table(table_of(tmp_path, frame), a100, choice("transferred"))
    (reason,) = validation.unpredicted
    assert "no peak for fp8" in reason
    assert validation.scores == ()


def test_transferred_sets_are_wider_and_labelled(tmp_path):
    h200 = load_hardware("h200-sxm")
    frame = timed("gemm", gemm_shapes()).assign(gpu="h200-sxm")
    table = table_of(tmp_path, frame)
    own = validate_table(table, h200, choice()).predictions
    moved = validate_table(table, h200, choice("transferred")).predictions
    assert set(moved["source"]) == {"transferred from h100-sxm (vllm 0.24.0)"}
    np.testing.assert_allclose(moved["predicted_us"], own["predicted_us"])
    wide = np.log(moved["upper_us"] / moved["predicted_us"])
    narrow = np.log(own["upper_us"] / own["predicted_us"])
    np.testing.assert_allclose(wide, TRANSFER_WIDENS * narrow)


def test_a_column_of_predictions_is_not_taken_for_a_measurement(tmp_path):
    frame = timed("gemm", gemm_shapes()).assign(predicted_us=1.0)
    with pytest.raises(InputError, match="predicted_us"):
        validate_table(table_of(tmp_path, frame), DEVICE, choice())


ROWS = {
    "gemm": {"dtype": "bfloat16", "m": 128, "n": 4096, "k": 4096},
    "attention_prefill": {
        "kv_dtype": "bfloat16", "batch": 2, "q_len": 1024, "prefix_len": 512, "heads": 32,
        "kv_heads": 8, "head_dim": 128, "window": 0,
    },
    "attention_decode": {
        "kv_dtype": "fp8", "batch": 8, "kv_len": 4096, "heads": 32, "kv_heads": 8,
        "head_dim": 128, "window": 1024,
    },
    "mla_prefill": {
        "kv_dtype": "bfloat16", "batch": 1, "heads": 16, "q_len": 2048, "prefix_len": 0
    },
    "mla_decode": {"kv_dtype": "bfloat16", "batch": 32, "heads": 128, "kv_len": 4096},
    "moe": {
        "dtype": "bfloat16", "distribution": "balanced", "tokens": 256, "hidden": 4096,
        "inter": 1536, "topk": 8, "experts": 128, "moe_tp": 1, "moe_ep": 4,
    },
    "collective": {
        "op": "all_reduce", "dtype": "half", "num_gpus": 8, "message_bytes": 2**24
    },
}  # fmt: skip


@pytest.mark.parametrize("law", ["power_law_x", "power_law_1e9", "power_law_-1"])
def test_a_law_that_no_router_follows_is_refused(law):
    rows = pd.DataFrame([ROWS["moe"] | {"distribution": law, "gpu": "h100-sxm"}] * 3)
    with pytest.raises(InputError, match=law):
        calibrate_experts(rows.assign(kernel="triton", latency_us=9.0), DEVICE)


@pytest.mark.parametrize("family", SCHEMAS)
def test_every_family_has_an_operator_a_set_and_regimes(tmp_path, family):
    frame = pd.DataFrame([ROWS[family] | {"gpu": "h100-sxm", "latency_us": 150.0}] * 3)
    table = table_of(tmp_path, frame)
    assert table.family == family
    ((here, operator),) = operators_of(family, table.rows)
    assert list(here) == [0, 1, 2]
    assert (np.asarray(operator.bytes) > 0).all()
    validation = validate_table(table, DEVICE, choice() if family != "gemm" else None)
    assert validation.predicted.all()
    assert regimes(family, table.rows)["all"].all()
    assert validation.predictions["predicted_us"].between(1, 2000).all()


def test_operators_count_what_the_shapes_say(tmp_path):
    def operator(family):
        (found,) = operators_of(family, pd.DataFrame([ROWS[family]]))
        return found[1]

    def only(value):
        return float(np.asarray(value).item())

    assert only(operator("gemm").flops) == 2 * 128 * 4096 * 4096
    pairs = 1024 * 512 + 1024 * 1025 / 2
    assert only(operator("attention_prefill").flops) == 4 * 2 * 32 * 128 * pairs
    decode = operator("attention_decode")
    assert only(decode.pairs) == 1024
    assert only(decode.cache_bytes) == 8 * 1024 * 2 * 8 * 128
    assert only(operator("mla_decode").cache_bytes) == 32 * 4096 * 576 * 2
    moe = operator("moe")
    assert only(moe.flops) == 2 * (256 * 8 / 4) * 3 * 1536 * 4096
    assert only(moe.weight_bytes) == 32 * 3 * 1536 * 4096 * 2


def test_windows_cap_the_pairs_of_a_prefill():
    row = ROWS["attention_prefill"] | {"q_len": 6, "prefix_len": 3, "window": 5}
    ((_, operator),) = operators_of("attention_prefill", pd.DataFrame([row]))
    assert float(np.asarray(operator.pairs).item()) == sum(min(5, 3 + i) for i in range(1, 7))


def test_a_row_takes_the_set_of_its_kernel():
    rows = gemm_shapes().iloc[:5].assign(
        m=[64, 64, 8, 64, 64], n=[512, 512, 512, 32, 512],
        kernel=["DeepGemmFp8BlockScaledMMKernel", "CutlassFp8BlockScaledMMKernel", "", "", ""],
    )  # fmt: skip
    made = choice().calibrated.sets["gemm.bf16"]
    names = [f"gemm.fp8_block.{kernel}" for kernel in ("cutlass", "deepgemm", "flashinfer")]
    sets = dict.fromkeys(names, made)
    found = sets_of("gemm.fp8_block", rows, DEVICE, sets)
    assert [name.rsplit(".", 1)[1] for name in found] == [
        "deepgemm", "cutlass", "flashinfer", "cutlass", "deepgemm"
    ]  # fmt: skip
    assert set(sets_of("gemm.fp8", rows, DEVICE, sets)) == {""}
    assert set(sets_of("gemm.bf16", rows, DEVICE, {"gemm.bf16": made})) == {"gemm.bf16"}
    assert set(sets_of("mla_prefill.fp8", rows, DEVICE, {"mla_prefill.bf16": made})) == {
        "mla_prefill.bf16"
    }
    names = ["experts.bf16.vllm_moe", "experts.bf16.vllm_moe_trtllm"]
    rows = rows.assign(kernel=["vllm_moe_trtllm", "vllm_moe", "vllm_moe", "other", "vllm_moe"])
    found = sets_of("experts.bf16", rows, DEVICE, dict.fromkeys(names, made))
    assert [name.removeprefix("experts.bf16.") for name in found] == [
        "vllm_moe_trtllm", "vllm_moe", "vllm_moe", "vllm_moe", "vllm_moe"
    ]  # fmt: skip


def test_what_rows_leave_unsaid_of_experts_and_collectives():
    rows = pd.DataFrame([ROWS["moe"] | {"framework_version": "0.24.0"}] * 3)
    rows.loc[1, ["inter", "topk"]] = [1856, 6]
    rows.loc[2, ["inter", "topk", "framework_version"]] = [1856, 6, "0.14.0"]
    shapes = shapes_of("moe", rows)
    assert list(shapes["gated"]) == [1, 0, 1]
    assert list(shapes["rows"]) == [512, 384, 384]
    shapes = shapes_of("collective", pd.DataFrame([ROWS["collective"]]))
    assert (shapes["ranks"][0], shapes["element_bytes"][0]) == (8, 2)


def test_names_of_sets():
    assert set_name("gemm", "bfloat16") == "gemm.bf16"
    assert set_name("gemm", "fp8_block") == "gemm.fp8_block"
    assert set_name("moe", "w4a16_mxfp4") == "experts.w4a16_mxfp4"
    assert set_name("mla_decode", "fp8") == "mla_decode.fp8"
    assert set_name("collective", "alltoall") == "collective.all_to_all"
    assert set_name("gemm", "fp7") is None


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_file_of_predictions_is_whole_and_overwrites_nothing(tmp_path, suffix):
    validation = validate_table(table_of(tmp_path, timed("gemm", gemm_shapes())), DEVICE, choice())
    path = tmp_path / f"out{suffix}"
    write_predictions(validation.output, path)
    back = pd.read_parquet(path) if suffix == ".parquet" else pd.read_csv(path)
    assert list(back.columns[-5:]) == ["predicted_us", "lower_us", "upper_us", "source", "reason"]
    np.testing.assert_allclose(back["latency_us"], validation.table.rows["latency_us"])
    with pytest.raises(InputError, match="--force"):
        write_predictions(validation.output, path)
    write_predictions(validation.output.head(2), path, force=True)

    class Torn:
        def to_csv(self, part, index):
            part.write_text("half a")
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="No space left"):
        write_predictions(Torn(), tmp_path / "torn.csv")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["t.parquet", path.name])


@pytest.mark.skipif(data_dir() is None, reason=REASON)
@pytest.mark.parametrize("family", [f for f in SCHEMAS if f != "moe"])
def test_rows_of_the_shared_tables_are_predicted(tmp_path, family):
    frame = pd.read_parquet(data_dir() / "measurements" / f"{family}.parquet")
    frame = frame[frame["gpu"] == "h100-sxm"].sample(200, random_state=0)
    validation = validate_table(table_of(tmp_path, frame), DEVICE, None)
    assert validation.predicted.all()
    assert all(np.isfinite(s.score.median) for s in validation.scores)
