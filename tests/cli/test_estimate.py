"""`perfmodel estimate` as a user and a script see it."""

import csv
import io
import json

import pytest

from tests.cli.runner import perfmodel

CASE = ("estimate", "llama-3.1-8b", "--hardware", "h100-sxm", "--batch", "8", "--prompt", "2048")


def test_json_is_one_object_with_the_public_names():
    ran = perfmodel(*CASE, "--json")
    assert (ran.status, ran.err) == (0, "")
    record = ran.record
    assert record["model"] == "llama-3.1-8b"
    assert record["hardware"] == "h100-sxm"
    assert record["workload"]["batch"] == 8
    for name in ("ttft_s", "tpot_s", "total_s", "output_tokens_per_s"):
        assert 0 < record[f"{name}_low"] <= record[name] <= record[f"{name}_high"]
    for phase in ("prefill", "decode"):
        rows = record[phase]["operators"]
        for total in ("time_s", "flops", "bytes"):
            assert sum(row[total] for row in rows) == pytest.approx(record[phase][total])
        assert {"name", "count", "shape", "flops", "bytes", "time_s", "bound", "source"} <= set(
            rows[0]
        )
        assert record[phase]["bound"] in {"compute", "memory", "network", "launch"}
    memory = record["memory"]
    assert memory["fits"] is True
    parts = ("weights_bytes", "kv_bytes", "activation_bytes", "reserved_bytes")
    assert sum(memory[part] for part in parts) == pytest.approx(memory["required_bytes"])
    assert memory["required_bytes"] <= memory["capacity_bytes"]


def test_json_states_the_deployment_as_understood():
    deployment = perfmodel(*CASE, "--weights", "FP8", "--json").record["deployment"]
    # 8-bit weights bring 8-bit activations on a chip that multiplies them; vLLM's defaults
    assert deployment["weights"] == "fp8"
    assert deployment["activations"] == "fp8"
    assert deployment["kv_cache"] == "bf16"
    assert deployment["block_size"] == 16
    assert deployment["max_num_seqs"] == 1024


def test_flags_are_those_of_vllm():
    long = perfmodel(
        *CASE, "--tensor-parallel-size", "2", "--kv-cache-dtype", "fp8", "--block-size", "32",
        "--gpu-memory-utilization", "0.8", "--max-num-seqs", "64",
        "--max-num-batched-tokens", "4096", "--json",
    )  # fmt: skip
    deployment = long.record["deployment"]
    assert (deployment["tp"], deployment["kv_cache"], deployment["block_size"]) == (2, "fp8", 32)
    assert deployment["gpu_memory_utilization"] == 0.8
    assert (deployment["max_num_seqs"], deployment["max_num_batched_tokens"]) == (64, 4096)


def test_csv_has_the_operators_that_json_has():
    rows = list(
        csv.DictReader(io.StringIO(perfmodel(*CASE, "--explain", "operators", "--csv").out))
    )
    record = perfmodel(*CASE, "--json").record
    for phase in ("prefill", "decode"):
        total = sum(float(row["time_s"]) for row in rows if row["phase"] == phase)
        assert total == pytest.approx(record[phase]["time_s"])


def test_csv_summary_has_the_headline():
    rows = csv.DictReader(io.StringIO(perfmodel(*CASE, "--csv").out))
    values = {row["quantity"]: row["value"] for row in rows}
    record = perfmodel(*CASE, "--json").record
    assert float(values["ttft_s"]) == record["ttft_s"]
    assert int(values["memory.max_sequences"]) == record["memory"]["max_sequences"]


@pytest.mark.parametrize("explain", [(), ("--explain", "operators"), ("--explain", "memory")])
@pytest.mark.parametrize("columns", ["80", "140"])
def test_tables_keep_to_the_terminal(monkeypatch, columns, explain):
    monkeypatch.setenv("COLUMNS", columns)
    ran = perfmodel(
        "estimate", "deepseek-v3", "-H", "h200-sxm", "--tp", "8", "--batch", "64", *explain
    )
    assert ran.status == 0
    assert max(len(line) for line in ran.out.splitlines()) <= int(columns)
    assert "…" not in ran.out  # nothing is cut off


def test_one_output_token_has_no_tpot():
    record = perfmodel(*CASE, "--output", "1", "--json").record
    assert record["tpot_s"] is None
    assert record["total_s"] == record["ttft_s"]


def test_roofline_only_is_never_slower():
    roof = perfmodel(*CASE, "--roofline-only", "--json").record
    real = perfmodel(*CASE, "--json").record
    assert roof["ttft_s"] < real["ttft_s"]
    assert roof["tpot_s"] < real["tpot_s"]
    assert roof["calibration"] == "datasheet roof"
    assert real["prefill"]["roof_s"] == pytest.approx(roof["prefill"]["time_s"])


def test_what_does_not_fit_is_one_line_and_status_2():
    ran = perfmodel(*CASE, "--batch", "100000", "--json")
    assert ran.status == 2
    assert len(ran.err.splitlines()) == 1
    assert "--batch" in ran.err
    memory = ran.record["memory"]  # the answer is whole all the same
    assert memory["fits"] is False
    again = perfmodel(*CASE, "--batch", memory["max_sequences"], "--json")
    assert again.status == 0


def test_a_config_file_and_a_profile_file(tmp_path):
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    }  # fmt: skip
    (tmp_path / "any-name.json").write_text(json.dumps(config))
    (tmp_path / "gpu.yaml").write_text(
        "name: mine\npeaks_tflops: {bf16: 100}\nmemory: {capacity_gb: 24, bandwidth_gb_s: 500}\n"
    )
    ran = perfmodel("estimate", tmp_path / "any-name.json", "-H", tmp_path / "gpu.yaml", "--json")
    assert ran.status == 0, ran.err
    assert ran.record["hardware"] == "mine"
    # 2·(64·(64 + 64 + 64) + 64·64 + 3·64·128 + 2·64) + 2·100·64 + 64 parameters, two bytes each
    parameters = 2 * (64 * 192 + 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * 100 * 64 + 64
    assert ran.record["memory"]["weights_bytes"] == 2 * parameters
