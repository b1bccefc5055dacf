"""What counts as a number in a file, and on a command line."""

import pytest

from perfmodel.errors import InputError
from perfmodel.specs.plain_numbers import plain_float, plain_int, typed_float, typed_int
from perfmodel.specs.ranges import numbers
from tests.calibrate.test_serving_table import PLAIN, table
from tests.cli.runner import perfmodel as run

CASE = ("llama-3.1-8b", "-H", "h100-sxm")
SLIPS = ("1_0", "１２", "٣", "1__0", "²")
"""Texts that Python takes for numbers, or for digits."""


@pytest.mark.parametrize("text", [*SLIPS, "_1", "1_", "", "x", "1_0.5", "1_000_00"])
@pytest.mark.parametrize("read", [plain_float, plain_int, typed_float, typed_int])
def test_slips_are_no_numbers(read, text):
    with pytest.raises(ValueError, match=r"plain number|invalid literal|convert string"):
        read(text)


def test_numbers_are():
    assert [plain_int(text) for text in ("7", " +12 ", "-3", "007")] == [7, 12, -3, 7]
    assert [plain_float(text) for text in ("7", "1e3", ".5", "-2.")] == [7, 1000, 0.5, -2]
    assert [typed_int(text) for text in ("1_000", "131_072", "1_000_000", "12")] == [
        1000, 131_072, 1_000_000, 12,
    ]  # fmt: skip
    assert typed_float("12_000.5e1") == 120_005
    with pytest.raises(ValueError, match=r"plain number|invalid literal|convert string"):
        plain_int("1_000")


@pytest.mark.parametrize("text", SLIPS)
@pytest.mark.parametrize("column", range(3))
def test_a_trace_names_line_and_column(column, text, tmp_path):
    values = ["0", "100", "10"]
    values[column] = text
    names = ("arrival_s", "prompt_tokens", "output_tokens")
    trace = tmp_path / "t.csv"
    trace.write_text(f"{','.join(names)}\n0,9,9\n{','.join(values)}\n", encoding="utf-8")
    ran = run("simulate", *CASE, "--trace", trace)
    assert ran.status == 2
    assert f"line 3: {names[column]} is '{text}'" in ran.err


@pytest.mark.parametrize("text", SLIPS)
def test_measured_tables_name_row_and_column(text, tmp_path):
    for place, name in ((6, "tp"), (-1, "tpot_ms")):
        values = PLAIN.split(",")
        values[place] = text
        path = table(tmp_path, ",".join(values))
        ran = run("validate", "serving", path)
        assert (ran.status, f"row 1: {name}" in ran.err) == (2, True)
    points = tmp_path / "points.csv"
    for name, row in (("batch", f"{text},512,64,tpot,0.01"), ("seconds", f"1,512,64,tpot,{text}")):
        points.write_text(
            f"model,hardware,batch,prompt,output,quantity,seconds\nllama-3.1-8b,h100-sxm,{row}\n",
            encoding="utf-8",
        )
        ran = run("calibrate", "engine", points, "--out", tmp_path / "mine.yaml")
        assert (ran.status, f"row 1: {name}" in ran.err) == (2, True)


@pytest.mark.parametrize("text", SLIPS)
def test_flags(text, tmp_path):
    for flags in (
        ("estimate", *CASE, "--batch", f"4,{text}"),
        ("estimate", *CASE, "--gpu-memory-utilization", f"0.{text}"),
        ("simulate", *CASE, "--rate", text),
        ("simulate", *CASE, "--concurrency", "1", "--prompt", text),
        ("simulate", *CASE, "--concurrency", "1", "--prompt", f"exponential:{text}"),
        ("plan", *CASE, "--rate", "1", "--ttft", f"{text}ms"),
        ("plan", *CASE, "--rate", "1", "--growth", f"{text}%"),
        ("plan", *CASE, "--rate", "1", "--price", f"h100-sxm={text}"),
        ("roofline", *CASE, "--out", tmp_path / "x.svg", "--size", f"{text}x5"),
    ):
        ran = run(*flags)
        assert (ran.status, ran.out) == (2, ""), flags
        assert text in ran.err
    with pytest.raises(InputError, match=text):
        numbers(f"1,{text}", "batch", whole=True)


def test_thousands_may_be_separated():
    assert numbers("1_024,2_048:4_096:x2", "prompt", whole=True) == (1024, 2048, 4096)
    assert run("estimate", *CASE, "--prompt", "1_024", "--json").status == 0
