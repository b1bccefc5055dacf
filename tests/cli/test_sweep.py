"""`perfmodel sweep`: flags, files, the summary on screen and as JSON."""

import csv

import pytest

from tests.cli.runner import perfmodel

CASE = ("llama-3.1-8b", "--hardware", "h100-sxm,h200-sxm", "--stack", "generic", "--batch",
        "1:64:x4", "--context", "1k:64k:x8", "--tp", "1,2", "--weights", "bf16,fp8")  # fmt: skip
# 2 hardware × 2 tp × 2 formats × 4 batches × 3 contexts
SETTINGS = 96


def sweep(*more):
    return perfmodel("sweep", *CASE, *more)


def test_the_record():
    record = sweep(
        "--where", "fits and tpot_ms < 40", "--best-by", "tpot_ms", "--top", "2",
        "--pareto", "output_tokens_per_s_per_gpu,tokens_per_s_per_user", "--json",
    ).record  # fmt: skip
    assert record["settings"] == SETTINGS
    assert record["refused"] == []
    assert 0 < record["rows"] <= record["fits"] <= SETTINGS
    assert record["sweep"]["context"] == [1024, 8192, 65536]
    assert [row["tpot_ms"] for row in record["best"]] == sorted(
        row["tpot_ms"] for row in record["best"]
    )
    assert len(record["best"]) == 2
    assert set(record["best"][0]) == set(record["columns"])
    assert any("one pass" in note for note in record["warnings"])
    assert all(row["fits"] and row["tpot_ms"] < 40 for row in record["pareto"])


def test_a_setting_is_an_estimate():
    row = perfmodel("sweep", "llama-3.1-8b", "-H", "h100-sxm", "--batch", "8", "--json").record
    exact = perfmodel("estimate", "llama-3.1-8b", "-H", "h100-sxm", "--batch", "8", "--json").record
    found = row["best"][0]
    assert found["ttft_ms"] == pytest.approx(1e3 * exact["ttft_s"], rel=5e-3)
    assert found["tpot_ms"] == pytest.approx(1e3 * exact["tpot_s"], rel=5e-3)
    assert found["required_bytes"] == pytest.approx(exact["memory"]["required_bytes"], abs=1)


def test_files_are_written_resumed_and_kept(tmp_path):
    out = tmp_path / "out"
    first = sweep("--out", out, "--part-settings", "40", "--json")
    assert first.status == 0
    assert len(list(out.glob("part-*.parquet"))) == 3
    again = sweep("--out", out, "--part-settings", "40", "--json")
    assert again.record == first.record
    other = sweep("--out", out, "--part-settings", "40", "--output", "9")
    assert other.status == 2
    assert "output" in other.err
    assert len(other.err.splitlines()) == 1
    forced = sweep("--out", out, "--output", "9", "--force", "--format", "csv", "--json")
    assert forced.record["rows"] == SETTINGS
    (part,) = out.glob("part-*")
    with part.open() as file:
        assert len(list(csv.DictReader(file))) == SETTINGS


def test_the_selection(tmp_path):
    file = tmp_path / "best.csv"
    assert sweep("--best-by", "ttft_ms", "--top", "3", "--selection", file).status == 0
    with file.open() as opened:
        assert [row["selection"] for row in csv.DictReader(opened)] == ["best"] * 3
    ran = sweep("--selection", file)
    assert ran.status == 2
    assert "--force" in ran.err


def test_a_file_and_flags_that_replace_it(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "model: llama-3.1-8b\nhardware: h100-sxm\nstack: generic\nbatch: 1:4:x2\ntop: 2\n"
        "where: batch > 1\n"
    )
    record = perfmodel("sweep", file, "--json").record
    assert record["settings"] == 3
    assert record["rows"] == 2
    record = perfmodel("sweep", file, "--batch", "16,32", "--top", "1", "--json").record
    assert [row["batch"] for row in record["best"]] == [32]


@pytest.mark.parametrize("columns", ["80", "140"])
def test_text_keeps_to_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for ran in (
        perfmodel("sweep", "--help"),
        sweep("--dp", "1,4", "--pareto", "output_tokens_per_s_per_gpu,tokens_per_s_per_user",
              "--best-by", "ttft_ms", "--per", "hardware,tp"),
    ):  # fmt: skip
        assert ran.status == 0
        assert max(len(line) for line in ran.out.splitlines()) <= int(columns)


def test_the_summary_names_what_was_refused_and_what_fits():
    out = sweep("--dp", "1,4").out
    assert "All combinations" in out
    assert "--dp: 4 replicas for a batch of 1" in " ".join(out.split())
    nothing = perfmodel(
        "sweep", "llama-3.1-70b", "-H", "l40s", "--stack", "generic", "--batch", "1,2"
    )
    assert nothing.status == 0
    assert "Nothing fits" in nothing.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--where", "tpot_m < 4"), "did you mean tpot_ms"),
        (("--batch", "1:8:2"), "--batch"),
        (("--best-by", "speed"), "--best-by"),
        (("--pareto", "speed"), "--pareto"),
        (("--hardware", "h999"), "h999"),
        (("--weights", "fp88"), "--weights"),
        (("--dask", "tcp://127.0.0.1:1"), "--out"),
        (("--selection", "rows.txt"), "rows.txt"),
        (("--prompt", "1"), "context"),
        (("--out", "no/such/folder"), "no/such"),
    ],
)
def test_faults_are_one_line_with_the_flag(arguments, said):
    ran = sweep(*arguments)
    assert ran.status == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""


def test_lengths_beyond_a_models_are_said():
    # llama-3.1-8b was made for 131,072 tokens
    for context, beyond in (("128k", False), ("129k", True)):
        ran = perfmodel("sweep", "llama-3.1-8b", "-H", "h100-sxm", "--stack", "generic",
                        "--context", context, "--prefill-chunk", "none,2k", "--json")  # fmt: skip
        notes = ran.record["warnings"]
        assert [("132,096" in note) for note in notes] == [True] * beyond


def test_nothing_named():
    ran = perfmodel("sweep", "--hardware", "h100-sxm")
    assert ran.status == 2
    assert "model" in ran.err


def test_bytes_are_shown_in_gib(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    out = perfmodel("sweep", "llama-3.1-8b", "-H", "h100-sxm", "--batch", "1,2", "--json").record
    shown = perfmodel("sweep", "llama-3.1-8b", "-H", "h100-sxm", "--batch", "1,2").out
    used = out["best"][0]["required_bytes"] / 2**30
    assert f" {used:.1f} " in shown
