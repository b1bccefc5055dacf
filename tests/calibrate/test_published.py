"""The published reader on a small table, the fit on made-up rows, and the real table's errors."""

import csv

import numpy as np
import pytest

from calibrate.host import fit_host, numbers_in, with_numbers
from calibrate.published.build import build_table, deployment_of
from calibrate.published.cases import Unmapped, case, cases
from calibrate.published.holdout import neutral, predict, preset_seconds
from calibrate.published.reader import Row, read_published
from calibrate.published.report import cells, report, summary
from calibrate.published.room import rooms
from perfmodel import Workload, estimate
from perfmodel.errors import InputError
from perfmodel.specs.engine import load_engine
from tests.data import REASON, data_dir

COLUMNS = [
    "id",
    "source_id",
    "metric",
    "value",
    "unit",
    "model",
    "hf_config_hint",
    "gpu",
    "gpus",
    "tp",
    "pp",
    "ep",
    "dp",
    "weight_dtype",
    "kv_dtype",
    "attention_backend",
    "engine",
    "engine_version",
    "load_mode",
    "batch_or_concurrency",
    "input_len",
    "output_len",
    "spec_decode",
    "request_rate",
    "completeness",
    "notes",
    "source",
    "source_date",
]
GPT_FAST = {
    "id": "gpt-fast-0001", "source_id": "gpt-fast", "metric": "decode_tok_s_per_user",
    "value": "100", "unit": "tok/s", "model": "Llama-2-7B", "gpu": "A100-SXM-80GB(330W)",
    "gpus": "1", "tp": "1", "pp": "1", "weight_dtype": "bf16", "kv_dtype": "bf16",
    "engine": "gpt-fast (torch.compile, static KV cache)", "load_mode": "batch1",
    "batch_or_concurrency": "1", "input_len": "5", "output_len": "200", "completeness": "A",
}  # fmt: skip
TRT = GPT_FAST | {
    "id": "trtllm-static-0001", "source_id": "trtllm-static", "engine": "TensorRT-LLM",
    "metric": "throughput_tok_s_per_gpu", "value": "1000", "gpu": "H100-SXM-80GB", "gpus": "2",
    "tp": "2", "weight_dtype": "fp8", "kv_dtype": "fp8", "load_mode": "static_batch",
    "batch_or_concurrency": "64", "input_len": "128", "output_len": "512",
}  # fmt: skip


@pytest.fixture
def table(tmp_path):
    def write(*records):
        path = tmp_path / "published.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="")
            writer.writeheader()
            writer.writerows(records)
        return path

    return write


def row(table, **changes):
    return read_published(table(GPT_FAST | changes))[0]


def test_a_decode_rate_becomes_a_step_time(table):
    found = case(row(table))
    assert (found.setting.quantity, found.measured_s) == ("tpot", 0.01)
    assert (found.batch, found.prompt, found.output) == (1, 5, 200)
    assert found.regime == "decode, batch 1"


def test_a_throughput_per_gpu_becomes_the_time_of_the_whole_batch(table):
    found = case(read_published(table(TRT))[0])
    # 64 · 512 tokens at 2 · 1,000 tokens/s
    assert found.measured_s == pytest.approx(64 * 512 / 2000)
    assert found.setting.quantity == "total"
    assert deployment_of(found.setting).kv_cache == "fp8"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"completeness": "C"}, "graded C"),
        ({"load_mode": "open_loop_rate"}, "not a static batch"),
        ({"spec_decode": "MTP"}, "speculative"),
        ({"gpu": "Abacus"}, "no hardware profile: Abacus"),
        ({"model": "Eliza"}, "not in the catalogue: Eliza"),
        ({"weight_dtype": "int1"}, "weight format"),
        ({"engine": "other"}, "no engine preset"),
        ({"metric": "speedup_x"}, "metric isn't predicted"),
        ({"batch_or_concurrency": "largest"}, "batch isn't stated"),
        ({"source_id": "jetstream-tpu"}, "continuous batching"),
    ],
)
def test_rows_that_cannot_be_mapped_say_why(table, changes, reason):
    with pytest.raises(Unmapped, match=reason):
        case(row(table, **changes))


def test_every_row_is_mapped_or_counted(table):
    rows = read_published(table(GPT_FAST, TRT, GPT_FAST | {"gpu": "Abacus"}))
    mapped, refused = cases(rows)
    assert len(mapped) == 2
    assert sum(refused.values()) == 1


def test_a_broken_row_is_named(table):
    with pytest.raises(InputError, match="gpt-fast-0001"):
        read_published(table(GPT_FAST | {"value": "fast"}))


def test_the_table_agrees_with_estimate(table):
    rows = read_published(table(GPT_FAST, TRT, TRT | {"metric": "ttft_ms", "output_len": "1"}))
    mapped, _ = cases(rows)
    ours = preset_seconds(build_table(mapped), mapped)
    for item, seconds in zip(mapped, ours, strict=True):
        workload = Workload(batch=item.batch, prompt=item.prompt, output=item.output)
        full = estimate(
            item.setting.model, item.setting.hardware, workload, deployment_of(item.setting)
        )
        quantity = {"ttft": full.ttft_s, "tpot": full.tpot_s, "total": full.total_s}
        # The table takes the decode step at the mean context; measured attention kernels are not
        # quite linear in it.
        assert seconds == pytest.approx(quantity[item.setting.quantity], rel=1.5e-2)


def made_up(count):
    """Rows of one source over models, batches and lengths."""
    models = ("Llama-2-7B", "Llama-2-70B", "Llama-3-8B", "Llama-2-13B")
    for i in range(count):
        yield TRT | {
            "id": f"trtllm-static-{i + 200:04d}", "model": models[i % 4],
            "batch_or_concurrency": str(2 ** (i % 7)), "tp": str(2 ** (i % 3)),
            "output_len": str(64 * (1 + i % 5)), "gpus": "1", "weight_dtype": "fp16",
        }  # fmt: skip


def test_a_fit_finds_the_numbers_that_made_the_rows(table):
    mapped, _ = cases(read_published(table(*made_up(48))))
    steps = build_table(mapped)
    prior = neutral(load_engine("trtllm"))
    truth = with_numbers(
        prior, {"host.step_us": 2000.0, "host.sequence_us": 60.0, "kernels.gemm.memory": 1.3}
    )
    fitted = fit_host(steps, steps.seconds(truth), prior).engine
    assert steps.seconds(fitted) == pytest.approx(steps.seconds(truth), rel=0.02)
    assert numbers_in(fitted)["host.step_us"] == pytest.approx(2000, rel=0.2)
    assert numbers_in(fitted)["host.sequence_us"] == pytest.approx(60, rel=0.2)
    assert numbers_in(fitted)["kernels.gemm.memory"] == pytest.approx(1.3, rel=0.05)


def test_a_fit_of_few_rows_stays_near_its_prior_and_shrugs_off_an_outlier(table):
    mapped, _ = cases(read_published(table(*made_up(10))))
    steps = build_table(mapped)
    prior = neutral(load_engine("trtllm"))
    measured = steps.seconds(prior)
    measured[3] *= 5
    fitted = fit_host(steps, measured, prior).engine
    rest = np.arange(10) != 3
    assert steps.seconds(fitted)[rest] == pytest.approx(measured[rest], rel=0.08)


def test_fits_refuse_times_that_are_none(table):
    mapped, _ = cases(read_published(table(*made_up(4))))
    with pytest.raises(ValueError, match="positive"):
        fit_host(build_table(mapped), np.array([1.0, -1, 1, 1]), load_engine("trtllm"))


@pytest.fixture(scope="module")
def real():
    folder = data_dir()
    if folder is None or not (folder / "published.csv").is_file():
        pytest.skip(REASON)
    rows = read_published(folder / "published.csv")
    mapped, refused = cases(rows)
    return rows, mapped, refused, predict(build_table(mapped), mapped)


def test_real_table_is_mapped_as_stated(real):
    rows, mapped, refused, _ = real
    assert len(rows) == len(mapped) + sum(refused.values())
    assert len(mapped) >= 1_750
    assert len({c.source for c in mapped}) >= 20
    assert all(isinstance(r, Row) for r in rows[:1])


def test_real_errors_stay_within_stated_figures(real):
    _, mapped, _, found = real
    named = summary(mapped, found, {"compiled", "gguf", "python"})
    limits = {
        ("decode", "preset"): 10, ("prefill", "preset"): 15, ("end to end", "preset"): 9,
        ("decode", "unseen"): 16, ("prefill", "unseen"): 22, ("end to end", "unseen"): 12,
        ("decode", "ten_rows"): 12, ("prefill", "ten_rows"): 14, ("end to end", "ten_rows"): 10,
    }  # fmt: skip
    for key, limit in limits.items():
        assert named[key][0] <= limit, key
    roof = summary(mapped, found, {"compiled", "gguf", "python"})["decode", "roof"][0]
    assert roof > 3 * named["decode", "unseen"][0] - 10


def test_memory_of_known_settings(real):
    found = rooms(real[0])
    assert len(found) == 14
    for room in found:
        if room.what == "KV room" and room.setup != "gpt-oss-120b, TP1":
            assert abs(room.error) <= 0.5, room
        if room.what == "weights":
            assert abs(room.error) <= 1.0, room


def test_the_page_is_whole(real):
    rows, mapped, refused, found = real
    page = report(mapped, refused, found, rooms(rows), "test")
    assert f"{len(mapped):,} of {len(rows):,}" in page
    for regime, source in cells(mapped):
        assert f"| {regime} | {source} |" in page
    assert "nan" not in page
