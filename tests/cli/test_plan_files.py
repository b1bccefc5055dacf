"""The files of `perfmodel plan`: written with the answer, or refused before the work."""

import csv

import openpyxl
import pyarrow.parquet as pq
import pytest

from perfmodel.cli import plan_files
from tests.cli.runner import perfmodel

CASE = (
    "plan", "llama-3.1-8b", "--hardware", "h100-sxm", "--rate", 8, "--prompt", 512, "--output", 64,
    "--tpot", "40ms", "--tp", 1, "--weights", "fp8", "--kv-cache-dtype", "fp8", "--aggregated",
    "--confirm", 1,
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A plan's JSON, and the folder of its files."""
    folder = tmp_path_factory.mktemp("plan")
    files = ("--xlsx", folder / "p.xlsx", "--csv", folder / "tables", "--parquet",
             folder / "p.parquet")  # fmt: skip
    return perfmodel(*CASE, *files, "--json").record, folder


def test_files_say_what_the_answer_says(made):
    record, folder = made
    best = record["choices"][0]
    names = openpyxl.load_workbook(folder / "p.xlsx", data_only=True)
    sheet, _, address = names.defined_names["Chosen_gpus"].attr_text.partition("!")
    assert names[sheet][address.replace("$", "")].value == best["gpus"]
    with (folder / "tables" / "capacity.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for end in ("low", "high"):
        cost = float(rows[0][f"usd_per_hour_{end}"])
        assert cost == pytest.approx(best["usd_per_hour"][end], rel=1e-4)
    table = pq.read_table(folder / "p.parquet").to_pydict()
    assert table["gpus"] == [choice["gpus"] for choice in record["choices"]]


@pytest.mark.parametrize(("flag", "name"), [("--xlsx", "p.xlsx"), ("--csv", "tables"),
                                            ("--parquet", "p.parquet")])  # fmt: skip
def test_what_is_there_is_kept(made, flag, name):
    _, folder = made
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    said = perfmodel(*CASE, flag, folder / name)
    assert (said.status, said.out) == (2, "")
    assert "--force" in said.err
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before


@pytest.mark.parametrize(("flag", "name"), [("--xlsx", "p.csv"), ("--xlsx", "no/p.xlsx"),
                                            ("--csv", "no/such")])  # fmt: skip
def test_a_path_that_wont_do_is_said_before_the_work(tmp_path, flag, name):
    said = perfmodel(*CASE, flag, tmp_path / name)
    assert (said.status, said.out) == (2, "")
    assert name.rpartition("/")[2] in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_named_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_files, "_there", lambda module: module != "pyarrow")
    said = perfmodel(*CASE, "--parquet", tmp_path / "p.parquet")
    assert (said.status, said.out) == (2, "")
    assert "perfmodel[workbook]" in said.err


def test_nothing_is_written_where_nothing_does(tmp_path):
    said = perfmodel(*CASE[:-10], "--tpot", "0.1ms", "--xlsx", tmp_path / "p.xlsx")
    assert said.status == 2
    assert list(tmp_path.iterdir()) == []
