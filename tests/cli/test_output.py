"""What the tables say of layouts, windows, states, chunks and units."""

import re

import pytest

from tests.cli.runner import perfmodel


@pytest.fixture(autouse=True)
def _columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")


def text(*arguments):
    """What a command prints, which has no padding at the ends of lines."""
    ran = perfmodel(*arguments)
    assert ran.status == 0, ran.err
    assert not re.search(r" $", ran.out, re.M)
    return ran.out


def test_the_head_states_the_layout():
    mixtral = ("estimate", "mixtral-8x7b", "-H", "h200-sxm", "-b", "8")
    out = text(*mixtral, "--tp", "2", "--pp", "2", "--ep", "4", "--dp", "2")
    assert out.startswith("mixtral-8x7b-v0.1 on 8 × h200-sxm (tp 2, pp 2, ep 4, dp 2)\n")
    assert "(" not in text("estimate", "llama-3.1-8b", "-H", "h100-sxm").splitlines()[0]


def test_replicas_say_what_one_gpu_holds():
    out = text("estimate", "llama-3.1-8b", "-H", "h100-sxm", "-b", "5", "--dp", "2")
    assert "KV cache (3 of 5 × 1,280 tokens)" in out


def test_a_model_without_a_cache_has_a_state():
    out = text("estimate", "mamba-codestral-7b", "-H", "h100-sxm", "--explain", "memory")
    assert "State (1 sequence)" in out
    assert "KV cache" not in out
    assert re.search(r"Longest context at this batch +any", out)
    hybrid = text("estimate", "qwen3-next-80b-a3b", "-H", "h200-sxm", "--tp", "2")
    assert "KV cache, state (1 × 1,280 tokens)" in hybrid


def test_windows_are_explained():
    out = text("estimate", "gemma-3-27b", "-H", "h100-sxm", "--explain", "memory")
    # 10 layers of 62 keep everything: 10 × 2 × 16 heads × 128 × 2 bytes = 80 KiB
    words = " ".join(out.split())
    assert "52 of 62 layers keep the last 1,024 tokens only: 80.00 KiB for each" in words


def test_the_models_own_maximum_stands_beside_a_longer_context():
    assert re.search(
        r"421,200 tokens +\(the model was made for 131,072\)",
        text("estimate", "llama-3.1-8b", "-H", "h100-sxm"),
    )


def test_chunks_are_the_first_of_several():
    case = ("estimate", "llama-3.1-8b", "-H", "h100-sxm", "-p", "5000", "--prefill-chunk", "2048")
    assert "Prefill in 3 chunks: count and shape of the first" in text(
        *case, "--explain", "operators"
    )
    rows = {row["name"]: row for row in perfmodel(*case, "--json").record["prefill"]["operators"]}
    assert (rows["qkv_proj"]["count"], rows["qkv_proj"]["steps"]) == (32, 3)
    assert rows["qkv_proj"]["shape"]["m"] == 2048
    assert (rows["lm_head"]["count"], rows["lm_head"]["steps"]) == (1, 1)


def test_bytes_per_token_is_an_integer():
    out = perfmodel("estimate", "llama-3.1-8b", "-H", "h100-sxm", "--json").out
    assert '"kv_bytes_per_token": 131072,' in out


def test_a_roof_has_no_interval():
    case = ("estimate", "llama-3.1-8b", "-H", "h100-sxm")
    assert "interval" in text(*case)
    assert "interval" not in text(*case, "--roofline-only")


def test_a_profile_is_shown_with_units():
    out = text("hardware", "show", "h100-sxm")
    assert re.search(r"^memory bandwidth +3,350 GB/s$", out, re.M)
    assert re.search(r"^peaks fp8 +1,979 TFLOP/s$", out, re.M)
    assert re.search(r"^price low +2 USD/h$", out, re.M)
    assert re.search(r"^year +2022  recalled$", out, re.M)
    assert not re.search(r"\d\.0\b(?! )", out.split("Sources:")[0].replace(" 9.0\n", "\n"))


def test_zeros_and_rounding():
    shown = text("models", "show", "mamba-codestral-7b")
    assert re.search(r"^KV cache per token in bf16 +0 B$", shown, re.M)
    assert re.search(r"gemma-3-1b +gemma3_text +1\.00 B", text("models", "list"))


def test_a_folder_does_not_stand_in_the_way_of_the_catalogue(tmp_path, monkeypatch):
    (tmp_path / "qwen3-8b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "qwen3-8b" in text("models", "list")


def test_architectures_are_listed():
    assert "llama" in text("models", "list", "--architectures").splitlines()
    record = perfmodel("models", "list", "--architectures", "--json").record
    assert "deepseek_v3" in record["architectures"]


def test_help_shows_whole_names_and_values(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = text("estimate", "--help")
    assert "…" not in out
    for part in ("--gpu-memory-utilization", "--max-num-batched-tokens", "--kv-cache-dtype",
                 "paged, contiguous or flat"):  # fmt: skip
        assert part in out
    assert "fp8" in out.split("--kv-cache-dtype")[1].split("Engine")[0]
