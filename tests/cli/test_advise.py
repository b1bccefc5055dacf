"""`perfmodel advise` on the command line."""

import csv
import io

import pytest

from perfmodel.cli.parsers import duration
from tests.cli.runner import perfmodel

GENERIC = ("--stack", "generic")  # fast, where any calibration would do
CASE = ("advise", "llama-3.1-8b", "-H", "h100-sxm", "--max-gpus", "2", *GENERIC)
PROFILE = """name: mine
peaks_tflops: {bf16: 300}
memory: {capacity_gb: 48, bandwidth_gb_s: 900}
"""


@pytest.fixture(scope="module")
def record():
    ran = perfmodel(*CASE, "--batch", "4", "--json")
    assert ran.status == 0
    assert ran.err == ""
    return ran.record


def test_json_holds_the_base_case_and_every_option(record):
    base = perfmodel(
        "estimate", "llama-3.1-8b", "-H", "h100-sxm", "--batch", "4", *GENERIC, "--json"
    ).record
    for name in ("ttft_s", "tpot_s", "output_tokens_per_s", "tpot_s_low"):
        assert record["base"][name] == base[name]
    assert record["base"]["memory"] == base["memory"]
    assert record["by"] == "throughput"
    for option in record["options"]:
        ratio = option["gains"]["output_tokens_per_s"]
        assert ratio["ratio_low"] <= ratio["ratio"] <= ratio["ratio_high"]
        assert set(option["next_limit"]) == {"prefill", "decode"}
        assert all(set(c["price"]) == {"accuracy", "memory", "complexity"}
                   for c in option["changes"])  # fmt: skip
    assert {u["lever"] for u in record["unused"]} >= {"CUDA graphs", "continuous batching"}


def test_an_option_is_the_estimate_of_its_flags(record):
    fp8 = next(o for o in record["options"] if o["setting"].startswith("weights fp8"))
    own = perfmodel(
        "estimate",
        "llama-3.1-8b",
        "-H",
        "h100-sxm",
        "--batch",
        "4",
        "--weights",
        "fp8",
        *GENERIC,
        "--json",
    ).record
    assert (fp8["ttft_s"], fp8["tpot_s"]) == (own["ttft_s"], own["tpot_s"])


def test_csv_has_the_rows_of_json(record):
    rows = list(csv.DictReader(io.StringIO(perfmodel(*CASE, "--batch", "4", "--csv").out)))
    kinds = {"single": "options", "pair": "pairs", "triple": "triples"}
    for kind, name in kinds.items():
        mine = [row["setting"] for row in rows if row["kind"] == kind]
        assert mine == [option["setting"] for option in record[name]]


@pytest.mark.parametrize("columns", ["80", "140"])
@pytest.mark.parametrize(
    "case",
    [
        ("llama-3.1-8b", "-H", "h100-sxm", "--prompt", "8192", "--tpot-limit", "8ms"),
        ("llama-3.1-70b", "-H", "h100-sxm", *GENERIC),
    ],
)
def test_tables_keep_to_the_terminal(monkeypatch, columns, case):
    monkeypatch.setenv("COLUMNS", columns)
    ran = perfmodel("advise", *case)
    assert ran.status == 0
    assert max(len(line) for line in ran.out.splitlines()) <= int(columns)
    assert "…" not in ran.out
    assert ran.err == ""


def test_top_bounds_the_ranking():
    few = perfmodel(*CASE, "--top", "2").out
    assert "--top" in few
    assert few.index("No gain in") < perfmodel(*CASE, "--top", "30").out.index("No gain in")


def test_without_a_price_there_is_no_cost(tmp_path):
    (tmp_path / "gpu.yaml").write_text(PROFILE)
    ran = perfmodel("advise", "llama-3.1-8b", "-H", tmp_path / "gpu.yaml")
    assert ran.status == 0
    assert "Cost" not in ran.out
    assert "USD" not in ran.out
    record = perfmodel("advise", "llama-3.1-8b", "-H", tmp_path / "gpu.yaml", "--json").record
    assert all(o["gains"]["usd_per_million_output_tokens"] is None for o in record["options"])
    refused = perfmodel("advise", "llama-3.1-8b", "-H", tmp_path / "gpu.yaml", "--by", "cost")
    assert refused.status == 2
    assert "no price" in refused.err


def test_nothing_makes_it_fit():
    ran = perfmodel("advise", "deepseek-v3", "-H", "l40s", "--max-gpus", "1")
    assert ran.status == 2
    assert len(ran.err.splitlines()) == 1
    assert "nothing that was tried" in ran.err
    assert "Doesn't make it fit" in ran.out


WRONG = {
    "an unknown metric": (("--by", "speed"), "speed"),
    "text for a limit": (("--tpot-limit", "fast"), "'fast' is no time"),
    "no GPU": (("--max-gpus", "0"), "less than 1"),
    "no rows": (("--top", "0"), "less than 1"),
    "two forms": (("--json", "--csv"), "--json"),
    "a layout that can't be": (("--tp", "3"), "--tp"),
    "an unknown flag of the case": (("--weights", "fp7"), "fp7"),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_line_and_status_2(name):
    given, said = WRONG[name]
    ran = perfmodel(*CASE, *given)
    assert ran.status == 2
    assert ran.out == ""
    assert len(ran.err.strip().splitlines()) == 1
    assert said in ran.err


@pytest.mark.parametrize(
    ("text", "seconds"), [("0.5", 0.5), ("500ms", 0.5), ("2s", 2.0), (" 20 ms ", 0.02), (".1", 0.1)]
)
def test_times(text, seconds):
    assert duration(text) == pytest.approx(seconds)
