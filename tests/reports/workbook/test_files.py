"""The tables as CSV and Parquet: the sheets' values, whole or not at all."""

import csv
from datetime import datetime

import pyarrow.parquet as pq
import pytest

from perfmodel.errors import InputError
from reports.workbook import files
from reports.workbook.book import book_of
from reports.workbook.cells import Column, Place, Table
from reports.workbook.files import CSV, NAMES, PARQUET, check_tables, write_tables
from tests.reports.workbook.support import TRAFFIC, plan

MADE = datetime(2026, 1, 2, 3, 4)


@pytest.fixture(scope="module")
def book():
    return book_of(plan(traffic=TRAFFIC.model_copy(update={"months": 3})), MADE)


def shown(book, table):
    """A table's columns by what its sheet's cells show; the months beyond the horizon left out."""
    page = next(page for page in book.pages if page.name == table.place.sheet)
    count = 4 if table.name == "months" else len(table.rows)
    return {
        column.key: [page.cells[table.place.spot(r, column.key)].value for r in range(count)]
        for column in table.place.columns
    }


def test_names_are_those_of_the_tables(book):
    assert sorted(table.name for table in book.tables) == sorted(NAMES)


def test_csv_holds_what_sheets_show(book, tmp_path):
    write_tables(book.tables, tmp_path / "out", CSV)
    for table in book.tables:
        with (tmp_path / "out" / f"{table.name}.csv").open(encoding="utf-8", newline="") as file:
            read = list(csv.DictReader(file))
        for key, values in shown(book, table).items() if table.rows else ():
            assert len(read) == len(values)
            for row, value in zip(read, values, strict=True):
                if isinstance(value, int | float):
                    assert float(row[key]) == value, (table.name, key)
                else:
                    assert row[key].removeprefix("'") == (value or ""), (table.name, key)


def nothing(values):
    """Empty text as nothing, as number columns hold it."""
    return [None if value == "" else value for value in values]


def test_parquet_holds_what_sheets_show(book, tmp_path):
    write_tables(book.tables, tmp_path / "out", PARQUET)
    for table in book.tables:
        read = pq.read_table(tmp_path / "out" / f"{table.name}.parquet").to_pydict()
        assert list(read) == list(table.keys)
        for key, values in shown(book, table).items() if table.rows else ():
            assert nothing(read[key]) == nothing(values), (table.name, key)


def test_one_file_holds_a_row_for_each_deployment(book, tmp_path):
    write_tables(book.tables, tmp_path / "plan.csv", CSV)
    with (tmp_path / "plan.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["hardware"] for row in rows] == ["h100-sxm", "l40s", "h100-sxm"]
    assert [path.name for path in tmp_path.iterdir()] == ["plan.csv"]


def made(rows):
    place = Place("S", 0, 0, (Column("name", "N"), Column("usd", "U", "usd2")))
    return Table.of("t", place, rows)


def test_words_for_no_number_are_empty_and_text_isnt_computed():
    table = made([["=1+1", 2.5], ["plain", "no price"], ["--tp 2", None]])
    assert files.csv_text(table) == "name,usd\n'=1+1,2.5\nplain,\n'--tp 2,\n"
    assert files.columns(table) == {"name": ["=1+1", "plain", "--tp 2"], "usd": [2.5, None, None]}


@pytest.mark.parametrize("odd", ["=1+1", "+x", "@y", "-z", "\tx"])
def test_text_that_would_be_computed_is_marked(odd):
    assert files.safe(odd) == f"'{odd}"
    assert files.safe(-1.5) == -1.5


def test_what_is_there_is_kept(book, tmp_path):
    folder = tmp_path / "out"
    write_tables(book.tables, folder, CSV)
    with pytest.raises(InputError, match="--force"):
        check_tables(folder, CSV, force=False)
    check_tables(folder, CSV, force=True)
    check_tables(folder, PARQUET, force=False)
    (folder / "loads.csv").write_text("mine")
    write_tables(book.tables, folder, CSV)
    assert (folder / "loads.csv").read_text() != "mine"


@pytest.mark.parametrize(("name", "what"), [("no/such/folder", "no folder"), ("file", "a file")])
def test_what_cant_be_written_is_said_before(tmp_path, name, what):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=what):
        check_tables(tmp_path / name, CSV, force=False)


def test_a_folder_appears_whole_or_not_at_all(book, tmp_path, monkeypatch):
    written = []

    def breaks(table, path):
        written.append(path)
        if len(written) > 3:
            raise OSError(28, "No space left on device")
        path.write_text("x")

    monkeypatch.setitem(files.WRITERS, CSV, breaks)
    with pytest.raises(InputError, match="No space left"):
        write_tables(book.tables, tmp_path / "out", CSV)
    assert len(written) == 4
    assert list(tmp_path.iterdir()) == []
