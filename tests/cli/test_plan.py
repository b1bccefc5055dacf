"""`perfmodel plan` from the command line: names, widths, exit statuses, what is refused."""

import json
import re

import pytest

import perfmodel as api
from tests.cli.runner import perfmodel

FIXED = ("--tp", 1, "--weights", "bf16", "--kv-cache-dtype", "bf16", "--confirm", 1, "--aggregated")
CASE = ("plan", "qwen2.5-0.5b", "-H", "l4")
ASKED = ("--rate", 60, "--prompt", 600, "--output", 80, "--ttft", "300ms", "--tpot", "30ms")
SMALL = (*CASE, *ASKED, *FIXED)
NAMES = {
    "model", "traffic", "terms", "choices", "front", "rejected", "nearest", "considered",
    "definitions", "notes",
}  # fmt: skip
OF_A_CHOICE = {
    "hardware", "label", "settings", "deployment", "serving", "gpus_per_replica", "replicas",
    "gpus", "utilisation", "utilisation_degraded", "usd_per_hour",
    "usd_per_million_prompt_tokens", "usd_per_million_output_tokens", "energy",
    "rate_per_replica", "load_limit", "prefill_share", "busiest", "levels", "months", "front",
    "risks", "calibration",
}  # fmt: skip


@pytest.fixture(scope="module")
def record():
    ran = perfmodel(*SMALL, "--json", "--growth", "10%", "--months", 2)
    assert ran.status == 0
    assert ran.err == ""
    return ran.record


def test_json_has_the_names_that_scripts_rely_on(record):
    assert set(record) == NAMES
    (choice,) = record["choices"]
    assert set(choice) == OF_A_CHOICE
    assert choice["gpus"] == choice["replicas"] * choice["gpus_per_replica"]
    assert choice["deployment"]["tp"] == 1
    assert {"low", "high"} == set(choice["usd_per_hour"])
    assert choice["energy"]["watts"]["low"] < choice["energy"]["watts"]["high"]
    assert [m["month"] for m in choice["months"]] == [0, 1, 2]
    assert choice["busiest"]["seen"][0]["ttft_s"] <= 0.3
    assert record["traffic"]["growth"] == 0.1
    assert record["traffic"]["classes"][0]["level"]["tpot_s"] == 0.03
    assert record["front"][0]["usd_per_hour"] > 0
    assert record["nearest"] is None


def test_python_gives_the_same(record):
    level = api.ServiceLevel(ttft_s=0.3, tpot_s=0.03)
    traffic = api.Traffic(
        rate=60, growth=0.1, months=2,
        classes=(api.RequestClass(prompt="600", output="80", level=level),),
    )  # fmt: skip
    plan = api.plan(
        "qwen2.5-0.5b", ["l4"], traffic,
        api.Deployment(tp=1, weights="bf16", kv_cache="bf16"),
        api.Rules(confirm=1, disaggregated=False),
    )  # fmt: skip
    assert json.loads(json.dumps(api.plan_record(plan))) == record


@pytest.mark.parametrize("columns", [80, 140])
def test_the_answer_comes_first_and_lines_fit(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = perfmodel(*SMALL, "--months", 2, "--growth", 0.1)
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert max(len(line) for line in lines) <= columns
    words = [line.split() for line in lines if line.strip()]
    place = next(i for i, w in enumerate(words) if w[1:3] == ["×", "l4:"])
    assert place <= 2
    text = ran.out
    order = ("Answer", "Choices", "Month", "Speed against cost", "Not offered", "Rent:")
    assert [text.index(word) for word in order] == sorted(text.index(word) for word in order)


def test_flags_of_the_deployment_fix_what_they_say(record):
    assert "--quantization bf16" in record["choices"][0]["settings"]
    ran = perfmodel(*SMALL, "--max-num-seqs", 16, "--json")
    assert ran.record["choices"][0]["deployment"]["max_num_seqs"] == 16
    assert "--max-num-seqs 16" in ran.record["choices"][0]["settings"]


def test_a_price_and_terms_are_taken():
    ran = perfmodel(*SMALL, "--price", "l4=2", "--spare", 0, "--utilisation", 0.5, "--json")
    (choice,) = ran.record["choices"]
    assert choice["usd_per_hour"] == {"low": 2 * choice["gpus"], "high": 2 * choice["gpus"]}
    assert choice["utilisation"] == choice["utilisation_degraded"] <= 0.5
    assert ran.record["terms"]["price_source"]["l4"] == "as stated"


@pytest.fixture
def classes(tmp_path):
    path = tmp_path / "traffic.yaml"
    path.write_text(
        "rate: 20\nclasses:\n"
        "  - {name: chat, share: 3, prompt: 300, output: 60, level: {tpot_s: 0.05}}\n"
        "  - {name: report, share: 1, prompt: 2000, output: 100, level: {e2e_s: 20}}\n",
        encoding="utf-8",
    )
    return path


def test_a_traffic_file_gives_the_classes_and_flags_its_rate(classes, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = perfmodel(*CASE, "--traffic", classes, *FIXED, "--rate", 30, "--json")
    assert ran.status == 0, ran.err
    assert [c["name"] for c in ran.record["traffic"]["classes"]] == ["chat", "report"]
    assert ran.record["traffic"]["rate"] == 30
    assert len(ran.record["choices"][0]["busiest"]["seen"]) == 2
    printed = perfmodel(*CASE, "--traffic", classes, *FIXED).out
    assert "chat (75 %)" in printed
    assert "report sees" in printed
    assert max(len(line) for line in printed.splitlines()) <= 80


INFEASIBLE = {
    "a level": (*CASE, "--rate", 5, "--ttft", "1ms", *FIXED),
    "memory": ("plan", "llama-3.1-70b", "-H", "l4", "--rate", 1, "--tp", 1),
    "GPUs": (*SMALL, "--max-gpus", 1),
}


@pytest.mark.parametrize("name", INFEASIBLE)
@pytest.mark.parametrize("how", [(), ("--json",)])
def test_what_nothing_does_is_one_line_and_status_2(name, how):
    ran = perfmodel(*INFEASIBLE[name], *how)
    assert ran.status == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert "l4" in ran.err
    assert "would do" in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("--rate", "--traffic")),
        (("--rate", 0), ("--rate", "0")),
        (("--rate", "nan"), ("--rate",)),
        (("--rate", 5, "--ttft", "5x"), ("--ttft", "5x", "500ms")),
        (("--rate", 5, "--tpot", "-40ms"), ("--tpot",)),
        (("--rate", 5, "--e2e", 0), ("--e2e",)),
        (("--rate", 5, "--percentile", 100), ("--percentile", "100")),
        (("--rate", 5, "--prompt", "lots"), ("--prompt", "lots")),
        (("--rate", 5, "--output", "uniform:9:3"), ("--output", "swap")),
        (("--rate", 5, "--prompt", 100, "--prefix-tokens", 200), ("--prefix-tokens", "200")),
        (("--rate", 5, "--growth", "much"), ("--growth", "10%")),
        (("--rate", 5, "--months", -1), ("--months",)),
        (("--rate", 5, "--peak", 0.5), ("--peak",)),
        (("--rate", 5, "--utilisation", 1.5), ("--utilisation", "1.5")),
        (("--rate", 5, "--spare", -1), ("--spare", "-1")),
        (("--rate", 5, "--max-gpus", 0), ("--max-gpus",)),
        (("--rate", 5, "--price", "l4"), ("--price", "h100-sxm=2.5")),
        (("--rate", 5, "--price", "l4=0"), ("--price",)),
        (("--rate", 5, "--price", "h100=2"), ("--price", "h100")),
        (("--rate", 5, "--price", "l4=1", "--price", "l4=2"), ("--price", "two")),
        (("--rate", 5, "-H", "l4"), ("--hardware", "twice")),
        (("--rate", 5, "--weight-formats", "fp9"), ("--weight-formats", "fp9")),
        (("--rate", 5, "--tp", 0), ("--tp",)),
        (("--rate", 5, "--acceptance", 0.7), ("--acceptance", "--speculative-method")),
        (("--traffic", "nowhere.yaml"), ("nowhere.yaml",)),
    ],
)
def test_nonsense_is_refused_on_one_line(arguments, words):
    ran = perfmodel(*CASE, *arguments)
    assert ran.status == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert all(word in ran.err for word in words), ran.err


@pytest.mark.parametrize("flag", [("--prompt", 5), ("--ttft", 1), ("--prefix-tokens", 3)])
def test_a_file_of_classes_excludes_what_describes_one(flag, classes):
    ran = perfmodel(*CASE, "--traffic", classes, *flag)
    assert ran.status == 2
    assert flag[0] in ran.err
    assert "--traffic" in ran.err


def test_bad_yaml_names_file_and_field(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("rate: 5\nclasses:\n  - {name: a, level: {tpot_s: 40ms}}\n", encoding="utf-8")
    ran = perfmodel(*CASE, "--traffic", path)
    assert ran.status == 2
    assert "bad.yaml: classes.0.level.tpot_s" in ran.err
    assert "seconds" in ran.err


def test_the_help_says_what_is_searched():
    words = re.sub(r"[│\s]+", " ", perfmodel("plan", "--help").out)
    assert words.count("[default: (searched)]") >= 8
