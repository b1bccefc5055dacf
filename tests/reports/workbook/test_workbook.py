"""Whole workbooks, recalculated by LibreOffice: as written, edited, and where nothing does."""

import re
from dataclasses import replace
from datetime import datetime
from zipfile import ZipFile

import openpyxl
import pytest

from perfmodel import Deployment
from perfmodel.planning.capacity.answer import Range
from perfmodel.planning.capacity.front import DEAREST, front_points
from perfmodel.planning.capacity.question import needs_of
from perfmodel.planning.capacity.sizing import best_level, size_fleet
from perfmodel.serving.serve import Serving
from perfmodel.specs.traffic import RequestClass, ServiceLevel, Traffic
from reports.workbook.book import book_of, write_workbook
from reports.workbook.cells import Formula
from reports.workbook.fleet_rows import UNMET
from tests.reports.workbook import office
from tests.reports.workbook.support import BATCH, CHAT, PRICES, TRAFFIC, plan

MADE = datetime(2026, 1, 2, 3, 4)
ODD = ("=1+1", "+x", "@y", "-z")

BASE = plan()
# The edits, as a plan of its own: rate doubled, one price changed, chat's TPOT 40 → 25 ms.
TIGHT = CHAT.model_copy(update={"level": ServiceLevel(ttft_s=0.5, tpot_s=0.025)})
EDITED = replace(
    BASE,
    traffic=TRAFFIC.model_copy(update={"rate": 40, "classes": (TIGHT, BATCH), "months": 5}),
    terms=replace(
        BASE.terms,
        usd_per_gpu_hour=PRICES | {"h100-sxm": Range(2.5, 3.0)},
        spare=2,
        utilisation_target=0.6,
    ),
)
NOTHING = TRAFFIC.model_copy(
    update={"classes": (CHAT.model_copy(update={"level": ServiceLevel(tpot_s=0.001)}), BATCH)}
)
# Experts (30,000 tokens underflow the chance that one is missed), windows, exchanges, pools; and
# classes whose names a spreadsheet would compute.
ODD_TRAFFIC = TRAFFIC.model_copy(
    update={
        "classes": tuple(
            RequestClass(name=name, prompt=30_000, output=120, level=ServiceLevel(tpot_s=0.05))
            for name in ODD
        )
    }
)
EXPERTS = plan(
    "gpt-oss-120b",
    ODD_TRAFFIC,
    (
        ("h100-sxm", Deployment(tp=4), 1.0, 0.4, Serving(disaggregate=(1, 2))),
        ("h100-sxm", Deployment(tp=2, weights="fp8"), 0.8),
    ),
    prices={},
)
# One choice, one class, nothing promised, one token: no TPOT anywhere.
BARE = plan(
    traffic=Traffic(rate=3, classes=(RequestClass(prompt=900, output=1),)),
    choices=(("l40s", Deployment(), 1.0),),
)
NAMES = ["base", "bare", "edited", "experts", "nothing"]


@pytest.fixture(scope="module")
def books():
    """The sheets of each plan, with the values that our functions give."""
    plans = (BASE, BARE, EDITED, EXPERTS, plan(traffic=NOTHING))
    return {name: book_of(made, MADE) for name, made in zip(NAMES, plans, strict=True)}


def table(book, name):
    """A table of a book by its name."""
    return next(each for each in book.tables if each.name == name)


def spot(book, name, record, key):
    """Row and column of a table's cell, from 1 as openpyxl counts."""
    row, column = table(book, name).place.spot(record, key)
    return row + 1, column + 1


def edit(path, book, out, named, placed):
    """Type into cells, by name or by table; what is saved holds no values of formulas."""
    file = openpyxl.load_workbook(path)
    sheet = file["Inputs"]
    for name, value in named.items():
        sheet[file.defined_names[name].attr_text.partition("!")[2].replace("$", "")] = value
    for (name, record, key), value in placed.items():
        sheet.cell(*spot(book, name, record, key)).value = value
    file.save(out)


@pytest.fixture(scope="module")
def written(books, tmp_path_factory):
    """Every book as a file."""
    folder = tmp_path_factory.mktemp("written")
    for name, book in books.items():
        write_workbook(book, folder / f"{name}.xlsx")
    return folder


@pytest.fixture(scope="module")
def recalculated(books, written, tmp_path_factory):
    """What LibreOffice makes of the files without our values, and after edits of the base."""
    if office.SOFFICE is None:
        pytest.skip("LibreOffice (soffice) isn't installed")
    folder = tmp_path_factory.mktemp("bare")
    for name in books:
        edit(written / f"{name}.xlsx", books[name], folder / f"{name}.xlsx", {}, {})
    base, path = books["base"], written / "base.xlsx"
    edits = {"Mean_rate": 40, "Spare_replicas": 2, "Utilisation_target": 0.6, "Horizon_months": 5}
    tight = {
        ("prices", 0, "usd_per_gpu_hour_low"): 2.5,
        ("prices", 0, "usd_per_gpu_hour_high"): 3.0,
        ("classes", 0, "tpot_limit_ms"): 25,
    }
    edit(path, base, folder / "as-edited.xlsx", edits, tight)
    edit(path, base, folder / "unmet.xlsx", {}, {
        ("classes", 0, "tpot_limit_ms"): 1, ("classes", 0, "ttft_limit_ms"): None,
    })  # fmt: skip
    second = table(base, "capacity").values("label")[1]
    edit(path, base, folder / "second.xlsx", {"Chosen_deployment": second}, {
        ("prices", 1, "usd_per_gpu_hour_low"): None,
    })  # fmt: skip
    files = sorted(folder.glob("*.xlsx"))
    out = office.converted(files, tmp_path_factory.mktemp("office"))
    return {path.stem: office.values(path) for path in out}


def formulas(book):
    """Sheet, address and formula of every cell that computes."""
    for page in book.pages:
        for (row, column), cell in page.cells.items():
            if isinstance(cell.content, Formula):
                address = f"{openpyxl.utils.get_column_letter(column + 1)}{row + 1}"
                yield page.name, address, cell.content


def differences(book, shown):
    """Formula cells whose value isn't ours."""
    return [
        (sheet, address, made.text, made.value, shown[sheet].get(address))
        for sheet, address, made in formulas(book)
        if not office.same(made.value, shown[sheet].get(address))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_formula_gives_our_value(books, recalculated, name):
    assert differences(books[name], recalculated[name]) == []


@pytest.mark.parametrize("name", NAMES)
def test_values_are_stored(books, written, name):
    """A reader that doesn't compute, such as a previewer, sees the same."""
    assert differences(books[name], office.values(written / f"{name}.xlsx")) == []


@pytest.mark.slow
def test_edits_give_what_a_plan_of_them_gives(books, recalculated):
    assert differences(books["edited"], recalculated["as-edited"]) == []


@pytest.mark.slow
def test_edits_give_what_the_sizing_functions_give(books, recalculated):
    """The chosen deployment, by `best_level` and `size_fleet` alone."""
    shown, months = recalculated["as-edited"], table(books["base"], "months").place
    choice = BASE.choices[0]
    level = best_level(choice.levels, [c.level for c in EDITED.traffic.classes])
    assert level.rate < choice.level.rate  # the tighter promise costs load
    for month in range(6):
        needs = needs_of(EDITED.traffic, EDITED.terms, 2.75, month)
        fleet = size_fleet(level.rate, choice.gpus_per_replica, choice.prefill_share, needs)
        for key in ("replicas", "gpus", "utilisation", "usd_per_hour",
                    "usd_per_million_prompt_tokens", "usd_per_million_output_tokens"):  # fmt: skip
            cell = shown["Months"][months.at(month, key)]
            assert cell == pytest.approx(getattr(fleet, key), rel=1e-9)
    assert not shown["Months"][months.at(6, "gpus")]


@pytest.mark.slow
def test_another_choice_may_be_chosen(books, recalculated):
    """Months and Inputs follow the second choice; without a low price, nothing is costed."""
    shown, months = recalculated["second"], table(books["base"], "months").place
    choice = BASE.choices[1]
    fleet = size_fleet(choice.level.rate, choice.gpus_per_replica, choice.prefill_share,
                       needs_of(BASE.traffic, BASE.terms, 1.0))  # fmt: skip
    assert shown["Months"][months.at(0, "gpus")] == fleet.gpus
    assert shown["Months"][months.at(0, "usd_per_hour")] == "–"
    capacity = table(books["base"], "capacity").place
    assert shown["Capacity"][capacity.at(0, "usd_per_hour")] > 0
    assert shown["Capacity"][capacity.at(1, "usd_per_hour")] == "–"


@pytest.mark.slow
def test_where_nothing_does_words_stand(books, recalculated):
    shown, capacity = recalculated["unmet"], table(books["base"], "capacity").place
    assert shown["Capacity"][capacity.at(0, "requests_per_s_replica")] == UNMET
    assert shown["Capacity"][capacity.at(0, "gpus")] == "–"
    assert shown["Capacity"][capacity.at(0, "load_limit")] == "TPOT of chat, ms"


@pytest.mark.slow
def test_no_errors_anywhere(recalculated):
    for name, sheets in recalculated.items():
        for sheet, cells in sheets.items():
            wrong = {a: v for a, v in cells.items() if isinstance(v, str) and re.match("#|Err:", v)}
            assert wrong == {}, (name, sheet)


@pytest.mark.slow
def test_names_are_never_computed(books, written, recalculated):
    path = written / "experts.xlsx"
    file = openpyxl.load_workbook(path)
    for record, name in enumerate(ODD):
        cell = file["Inputs"].cell(*spot(books["experts"], "classes", record, "name"))
        assert (cell.value, cell.data_type) == (name, "s")
        assert recalculated["experts"]["Inputs"][cell.coordinate] == name


def test_only_formulas_that_all_know(books):
    """Excel 2016, LibreOffice and Google Sheets; none spills."""
    known = {
        "AND", "CHOOSE", "COLUMN", "COUNT", "IF", "IFERROR", "INDEX", "ISNUMBER", "LARGE", "MATCH",
        "MAX", "MIN", "N", "OR", "ROUNDUP", "ROWS", "SUM", "SUMPRODUCT", "TEXT",
    }  # fmt: skip
    used = set()
    for book in books.values():
        for _, _, made in formulas(book):
            assert len(made.text) < 8192
            used |= set(re.findall(r"([A-Z]+)\(", re.sub(r'"[^"]*"', "", made.text)))
    assert used <= known


def test_front_is_that_of_the_plan(books):
    """Loads' fleets are the points of the plan's front of speed against cost."""
    loads = table(books["base"], "loads")
    rows = zip(*(loads.values(key) for key in (
        "choice", "requests_per_s", "fleet_gpus", "fleet_usd_per_hour", "busiest_tokens_per_s",
        "usable")), strict=True)  # fmt: skip
    usable = [row[:5] for row in rows if row[5] == 1]
    dearest = DEAREST * min(row[3] for row in usable)  # beyond it the plan draws no point
    ours = sorted(row for row in usable if row[3] <= dearest)
    points = sorted(
        (p.choice + 1, p.rate, p.gpus, p.usd_per_hour, p.tokens_per_s) for p in front_points(BASE)
    )
    assert len(ours) == len(points)
    for own, point in zip(ours, points, strict=True):
        assert own == pytest.approx(point, rel=1e-9)


def test_only_inputs_can_be_typed_into(books, written):
    """Inputs are unlocked and guarded; everything else is locked on protected sheets."""
    file = openpyxl.load_workbook(written / "base.xlsx")
    unlocked = {
        (sheet.title, cell.coordinate)
        for sheet in file
        for row in sheet.iter_rows()
        for cell in row
        if not cell.protection.locked
    }
    guarded = {
        (sheet.title, str(area).partition(":")[0])
        for sheet in file
        for rule in sheet.data_validations.dataValidation
        for area in rule.sqref.ranges
    }
    assert unlocked == guarded
    assert all(sheet.protection.sheet for sheet in file)
    # Traffic 4, sizing 3, power 4, deployment 1; three promises to each class; two prices each.
    assert len(unlocked) == 12 + 3 * 2 + 2 * 2


def test_sheets_are_set_up_to_be_read_and_printed(written):
    file = openpyxl.load_workbook(written / "base.xlsx")
    assert file.sheetnames[0] == "Inputs"
    for sheet in file:
        assert sheet.freeze_panes is not None, sheet.title
        assert not sheet.merged_cells.ranges
        fits = sheet.sheet_properties.pageSetUpPr is not None
        assert fits or sheet.page_setup.scale < 100 or sheet.col_breaks.brk, sheet.title
    assert {s.title for s in file if s._charts} == {"Cost", "Latency chart", "Roofline"}


def test_charts_are_native_with_log_axes(written):
    with ZipFile(written / "base.xlsx") as archive:
        charts = [archive.read(n).decode() for n in archive.namelist() if "charts/chart" in n]
    assert len(charts) == 6
    assert sum("c:logBase" in chart for chart in charts) == 3


def test_same_plan_same_file(books, tmp_path):
    first, second = tmp_path / "a.xlsx", tmp_path / "b.xlsx"
    write_workbook(books["base"], first)
    write_workbook(books["base"], second)
    assert first.read_bytes() == second.read_bytes()
