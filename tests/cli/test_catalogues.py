"""`models` and `hardware`: lists, single entries, the lint."""

import pytest

from tests.cli.runner import perfmodel


def test_models_list_names_the_catalogue():
    models = perfmodel("models", "list", "--json").record["models"]
    names = {model["name"] for model in models}
    assert len(names) >= 95
    assert {"llama-3.1-8b", "kimi-k2-instruct", "gpt-oss-120b", "deepseek-v3"} <= names


def test_models_show_has_the_public_names():
    record = perfmodel("models", "show", "deepseek-v3", "--json").record
    # cases.md 6 and 9; MTP: one more layer of 11.6 B
    assert record["parameters"] == 671_026_419_200
    assert record["text_parameters"] == 671_026_419_200
    assert record["active_parameters"] == 37_552_297_472
    assert record["mtp_parameters"] == 11_610_068_224
    assert record["kv_bytes_per_token"] == 70_272
    assert record["kv_bytes_per_token_beyond_window"] == 70_272
    assert record["state_bytes_per_sequence"] == 0
    assert record["weight_bytes"] == 2 * 671_026_419_200
    assert record["architecture"] == "deepseek_v3"


def test_hardware_list_and_show():
    names = {h["name"] for h in perfmodel("hardware", "list", "--json").record["hardware"]}
    assert len(names) >= 30
    assert {"h100-sxm", "h100-pcie", "h200-sxm", "a100-sxm-80gb", "b200-sxm", "l40s"} <= names
    record = perfmodel("hardware", "show", "a100-sxm-80gb", "--json").record
    assert record["si"]["peak_flops"]["bf16"] == 312e12
    assert record["si"]["ridge_point"] == pytest.approx(153.0, abs=0.1)  # 312e12 / 2.039e12


@pytest.mark.parametrize("columns", ["80", "140"])
@pytest.mark.parametrize(
    "arguments",
    [("models", "list"), ("models", "show", "gpt-oss-120b"), ("hardware", "list"),
     ("hardware", "show", "h100-sxm"), ("--help",), ("estimate", "--help")],
)  # fmt: skip
def test_text_keeps_to_the_terminal(monkeypatch, columns, arguments):
    monkeypatch.setenv("COLUMNS", columns)
    ran = perfmodel(*arguments)
    assert ran.status == 0
    assert max(len(line) for line in ran.out.splitlines()) <= int(columns)


def test_hardware_check_passes_on_what_is_shipped():
    ran = perfmodel("hardware", "check")
    assert ran.status == 0, ran.out


def test_hardware_check_finds_a_sparse_peak(tmp_path):
    file = tmp_path / "gpu.yaml"
    file.write_text(
        'name: mine\ncompute_capability: "9.0"\npeaks_tflops: {bf16: 1979, fp8: 3958}\n'
        "memory: {type: HBM3, capacity_gb: 80, bandwidth_gb_s: 3350}\n"
        "compute: {sm_count: 132, boost_mhz: 1830}\n"
    )
    ran = perfmodel("hardware", "check", file, "--json")
    assert ran.status == 1
    assert "sparse-peaks" in {finding["check"] for finding in ran.record["findings"]}
