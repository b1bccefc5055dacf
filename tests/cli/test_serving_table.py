"""`perfmodel validate serving` and `perfmodel calibrate serving`."""

import csv

import pytest
import yaml

from perfmodel.specs.engine import ENGINES
from tests.calibrate.test_serving_table import HEAD, PLAIN, table
from tests.cli.runner import perfmodel as run


def test_a_table_is_predicted_and_written(tmp_path):
    path = table(tmp_path, PLAIN, PLAIN.replace("h100-sxm", "no-gpu"))
    out = tmp_path / "predictions.csv"
    ran = run("validate", "serving", path, "--out", out, "--json")
    assert ran.status == 0, ran.err
    assert (ran.record["rows"], ran.record["predicted"]) == (2, 1)
    with out.open(newline="") as file:
        first, second = csv.DictReader(file)
    assert list(first)[: len(HEAD.split(","))] == HEAD.split(",")
    assert float(first["predicted_tpot_ms"]) > 0
    assert (second["predicted_ttft_ms"], "no-gpu" in second["reason"]) == ("", True)
    again = run("validate", "serving", path, "--out", out)
    assert again.status == 2
    shown = run("validate", "serving", path)
    assert "1 of 2 rows predicted" in shown.out


def test_errors_are_drawn(tmp_path):
    rows = (PLAIN, PLAIN.replace("vllm", "sglang"), PLAIN.replace("h100-sxm", "no-gpu"))
    path, plot = table(tmp_path, *rows), tmp_path / "errors.svg"
    ran = run("validate", "serving", path, "--plot", plot)
    assert ran.status == 0, ran.err
    drawn = plot.read_text()
    for text in ("TPOT: 2 rows", "TTFT: 2 rows", "vllm", "sglang", "predicted (ms)"):
        assert f">{text}<" in drawn
    assert ">scored apart<" not in drawn
    plot.write_text("mine")
    assert run("validate", "serving", path, "--plot", plot).status == 2
    assert run("validate", "serving", path, "--plot", tmp_path / "errors.gif").status == 2
    assert plot.read_text() == "mine"
    flagged = table(tmp_path, rows[0], rows[0])  # the second repeats the first
    assert run("validate", "serving", flagged, "--plot", plot, "--force").status == 0
    assert ">scored apart<" in plot.read_text()
    nowhere = table(tmp_path, rows[2])
    assert run("validate", "serving", nowhere, "--plot", plot, "--force").status == 0
    assert "no row could be predicted" in plot.read_text()


def test_a_wrong_table_is_one_line_and_status_2(tmp_path):
    out = tmp_path / "out.csv"
    path = table(tmp_path, PLAIN.replace(",8.5", ",fast"))
    ran = run("validate", "serving", path, "--out", out)
    assert (ran.status, out.exists()) == (2, False)
    assert "row 1: tpot_ms" in ran.err
    out = tmp_path / "out.yaml"
    ran = run("calibrate", "serving", path, "--out", out)
    assert (ran.status, out.exists()) == (2, False)
    assert "row 1: tpot_ms" in ran.err


def test_what_is_wrong_for_all_rows_is_said_before_the_work(tmp_path):
    path = table(tmp_path, PLAIN)
    ran = run("validate", "serving", path, "--engine", "nope")
    assert (ran.status, "nope" in ran.err) == (2, True)
    for out, said in (("mine.csv", ".yaml"), ("no/mine.yaml", "no folder")):
        ran = run("calibrate", "serving", path, "--out", tmp_path / out)
        assert (ran.status, said in ran.err) == (2, True)


def test_the_prior_is_the_preset_of_the_rows_engine(tmp_path):
    rows = [PLAIN.replace("vllm", name) for name in ("vllm", "sglang", "nope")]
    out = tmp_path / "mine.yaml"
    for chosen, said in ((rows[:2], "one of them"), (rows[2:], "unknown engine 'nope'")):
        ran = run("calibrate", "serving", table(tmp_path, *chosen), "--out", out)
        assert (ran.status, out.exists()) == (2, False)
        assert said in ran.err
    ran = run("calibrate", "serving", table(tmp_path, rows[1]), "--out", out, "--json")
    assert ran.status == 0, ran.err
    host = yaml.safe_load((ENGINES / "sglang.yaml").read_text())["host"]
    assert ran.record["prior"] == {
        "reads": 1.0, "compute": 1.0, "sequence_us": host["sequence_us"]
    }  # fmt: skip
    assert (ran.record["carried"], ran.record["with_ttft"]) == (None, 0)


def test_outputs_of_one_token_teach_nothing(tmp_path):
    path = table(tmp_path, PLAIN.replace("1024,128", "1024,1"))
    ran = run("calibrate", "serving", path, "--out", tmp_path / "mine.yaml")
    assert (ran.status, "row 1: osl" in ran.err) == (2, True)


def test_of_several_deployments_what_holds_across_them_is_fitted(tmp_path):
    other = PLAIN.replace("llama-3.1-8b", "qwen3-8b")
    points = table(tmp_path, PLAIN.replace(",8.5", ",20"), other.replace(",8.5", ",4.5"))
    out = tmp_path / "mine.yaml"
    ran = run("calibrate", "serving", points, "--out", out, "--json")
    assert ran.status == 0, ran.err
    # One model is slower than the preset, the other faster: neither says anything of the other.
    assert ran.record["carried"] == {"share": 0.0, "fields": ["model"]}
    assert ran.record["fitted"] == ran.record["prior"]
    shown = run("calibrate", "serving", points, "--out", out, "--force")
    assert "nothing holds across deployments" in shown.out


def test_a_slower_server_is_learned_from_four_points(tmp_path):
    slow = yaml.safe_load((ENGINES / "vllm.yaml").read_text())
    slow["host"] |= {"step_us": 900.0, "sequence_us": 60.0, "source": "made up: a slow host"}
    true = tmp_path / "slow.yaml"
    true.write_text(yaml.safe_dump(slow))
    rows = [PLAIN.replace(",8.0,1024,128", f",{c}.0,256,48") for c in (1, 8, 24, 64)]
    ideal = tmp_path / "ideal.csv"
    run("validate", "serving", table(tmp_path, *rows), "--engine", true, "--out", ideal)
    with ideal.open(newline="") as file:
        tpots = [row["predicted_tpot_ms"] for row in csv.DictReader(file)]
    points = table(
        tmp_path, *(r.replace(",8.5", f",{t}") for r, t in zip(rows, tpots, strict=True))
    )
    mine = tmp_path / "mine.yaml"
    ran = run("calibrate", "serving", points, "--engine", "vllm", "--out", mine, "--json")
    assert ran.status == 0, ran.err
    errors = ran.record["median_error"]
    assert errors["after"] < 4
    assert errors["before"] > 10
    assert errors["left_out"] < errors["before"]
    assert yaml.safe_load(mine.read_text())["name"] == "mine"
    again = run("validate", "serving", points, "--engine", mine, "--json").record
    assert again["scores"][0]["tpot"]["median"] == pytest.approx(errors["after"], abs=0.1)
    assert run("calibrate", "serving", points, "--out", mine).status == 2  # there already


def test_an_engine_that_is_none_is_named_by_its_row(tmp_path):
    for name in ("", str(tmp_path)):
        path = table(tmp_path, PLAIN.replace("vllm", name))
        ran = run("calibrate", "serving", path, "--out", tmp_path / "mine.yaml")
        assert (ran.status, "row 1: engine" in ran.err) == (2, True)
        assert not (tmp_path / "mine.yaml").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        (HEAD.replace(",", ";") + "\n", "commas"),
        (HEAD.replace(",", "\t") + "\n", "commas"),
        (f'{HEAD}\n"open,\n', "line 2"),
        (f"{HEAD}\n{PLAIN},9\n", "row 1"),
        (f"{HEAD}\n", "0 rows"),
        (f"{HEAD},tp\n{PLAIN},1\n", "twice"),
    ],
)
def test_what_is_no_table(text, said, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(text)
    for command in (("validate", "serving"), ("calibrate", "serving"), ("calibrate", "engine")):
        out = () if command[0] == "validate" else ("--out", tmp_path / "mine.yaml")
        ran = run(*command, path, *out)
        assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
        if command[1] == "serving":
            assert said in ran.err
    assert [file.name for file in tmp_path.iterdir()] == ["table.csv"]


def test_a_byte_order_mark_and_windows_lines_are_no_fault(tmp_path):
    path = table(tmp_path, PLAIN)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    ran = run("validate", "serving", path, "--json")
    assert (ran.status, ran.record["predicted"]) == (0, 1)
