"""`perfmodel report`: the file, what stops it, and the command line that it states."""

import html
import re
import shlex

import pytest

from tests.cli.runner import perfmodel

CASE = ("gpt-2", "--hardware", "t4", "--prompt", "200", "--output", "20")


def test_it_writes_one_page(tmp_path):
    out = tmp_path / "page.html"
    ran = perfmodel("report", *CASE, "--out", out)
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("page.pdf", (), ".html"),
        ("no/page.html", (), "no folder"),
        ("page.html", ("--tp", "0"), "--tp"),
        ("page.html", ("--batch", "4", "--dp", "8"), "--dp"),
    ],
)
def test_what_is_wrong_leaves_nothing_behind(tmp_path, name, more, said):
    ran = perfmodel("report", *CASE, *more, "--out", tmp_path / name)
    assert ran.status == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_kept_unless_forced(tmp_path):
    out = tmp_path / "page.html"
    out.write_text("mine", encoding="utf-8")
    ran = perfmodel("report", *CASE, "--out", out)
    assert ran.status == 2
    assert "--force" in ran.err
    assert out.read_text(encoding="utf-8") == "mine"
    assert perfmodel("report", *CASE, "--out", out, "--force").status == 0
    assert out.read_text(encoding="utf-8") != "mine"


def test_what_does_not_fit_is_a_page_too_and_status_2(tmp_path):
    out = tmp_path / "page.html"
    ran = perfmodel("report", "llama-3.1-70b", "--hardware", "t4", "--out", out)
    assert ran.status == 2
    remedy = ran.err.removeprefix("perfmodel: ").strip()
    text = html.unescape(out.read_text(encoding="utf-8")).replace("\N{NO-BREAK SPACE}", " ")
    assert remedy in text


def stated(page):
    """The command line that a page states, as words."""
    found = re.search(r"<pre><code>(.*?)</code></pre>", page.read_text(encoding="utf-8"), re.S)
    return shlex.split(html.unescape(found[1]))


def test_the_command_line_that_a_page_states_makes_it_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = tmp_path / "first.html"
    flags = (
        "--batch", "3", "--kv-cache-dtype", "fp8", "--engine", "sglang", "--sequence-parallel",
        "--tp", "2", "--speculative-method", "ngram", "--num-speculative-tokens", "2",
        "--acceptance", "0.5,0.25", "--gpus-per-node", "8",
    )  # fmt: skip
    ran = perfmodel("report", "qwen3-0.6b", "-H", "a100-sxm-80gb", *flags, "--out", first)
    assert ran.status == 0, ran.err
    words = stated(first)
    assert words[0] == "perfmodel"
    before = first.read_text(encoding="utf-8")
    assert perfmodel(*words[1:], "--force").status == 0
    assert first.read_text(encoding="utf-8") == before


def test_the_folder_of_the_page_is_nobodys_business(tmp_path):
    out = tmp_path / "page.html"
    perfmodel("report", *CASE, "--out", out)
    assert str(tmp_path) not in out.read_text(encoding="utf-8")


def test_the_bare_roof_has_no_interval(tmp_path):
    out = tmp_path / "page.html"
    assert perfmodel("report", *CASE, "--roofline-only", "--out", out).status == 0
    text = out.read_text(encoding="utf-8")
    assert "90 % interval" not in text
    assert "--roofline-only" in " ".join(stated(out))
