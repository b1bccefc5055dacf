"""No command writes over what it reads, not even with --force."""

import os

import pytest
import yaml

from perfmodel.specs.engine import ENGINES
from perfmodel.specs.hardware import hardware_dir
from perfmodel.whole_file import check_apart, check_free, check_unread
from tests.cli.runner import perfmodel as run

CASE = ("llama-3.1-8b", "-H", "h100-sxm")
SWEEP = "model: llama-3.1-8b\nhardware: h100-sxm\nbatch: [1, 2]\n"
TRACE = "arrival_s,prompt_tokens,output_tokens\n0,100,10\n1,200,20\n"
ENGINE = (ENGINES / "vllm.yaml").read_text()
PROFILE = (hardware_dir() / "h100-sxm.yaml").read_text()
LOADS = (
    "model,gpu,engine,weights,tp,concurrency,isl,osl,ttft_ms,tpot_ms\n"
    "llama-3.1-8b,h100-sxm,vllm,bf16,1,8,1024,128,40,8.5\n"
)
STEPS = "model,hardware,batch,prompt,output,quantity,seconds\nllama-3.1-8b,{},1,512,64,tpot,0.008\n"
COMMANDS = {
    "simulate --csv": (("simulate", *CASE, "--trace", "in", "--csv", "out"), "x.csv", TRACE),
    "simulate --engine": (
        ("simulate", *CASE, "--rate", "1", "--requests", "9", "--engine", "in", "--csv", "out"),
        "x.csv", ENGINE,
    ),
    "simulate --timeline": (
        ("simulate", *CASE, "--trace", "in", "--timeline", "out"), "x.svg", TRACE,
    ),
    "validate serving": (("validate", "serving", "in", "--out", "out"), "x.csv", LOADS),
    "validate kernels": (
        ("validate", "kernels", "in", "-H", "h100-sxm", "--out", "out"), "x.csv",
        "family,m,n,k,dtype,latency_us\ngemm,64,64,64,bf16,9\n",
    ),
    "validate kernels --plot": (
        ("validate", "kernels", "in", "-H", "h100-sxm", "--plot", "out"), "x.svg",
        "family,m,n,k,dtype,latency_us\ngemm,64,64,64,bf16,9\n",
    ),
    "calibrate serving": (("calibrate", "serving", "in", "--out", "out"), "x.yaml", LOADS),
    "calibrate engine": (
        ("calibrate", "engine", "in", "--out", "out"), "x.yaml", STEPS.format("h100-sxm"),
    ),
    "calibrate fit": (("calibrate", "fit", ".", "-H", "in", "--out", "out"), "x.yaml", PROFILE),
    "report": (("report", "llama-3.1-8b", "-H", "in", "--out", "out"), "x.html", PROFILE),
    "roofline": (("roofline", "llama-3.1-8b", "-H", "in", "--out", "out"), "x.svg", PROFILE),
    "plot": (("plot", "memory", "llama-3.1-8b", "-H", "in", "--out", "out"), "x.svg", PROFILE),
    "sweep": (("sweep", "in", "--selection", "out"), "x.csv", SWEEP),
    "plan --csv": (("plan", *CASE, "--traffic", "in", "--csv", "out"), "x.csv", "rate: 1\n"),
    "plan --xlsx": (("plan", *CASE, "--traffic", "in", "--xlsx", "out"), "x.xlsx", "rate: 1\n"),
}  # fmt: skip
LINKS = {"sweep": ".yaml", "plan --csv": ".yaml", "plan --xlsx": ".yaml"}
"""Commands whose input has a suffix of its own, so that only a link makes it the output."""


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_read_is_not_written(name, tmp_path):
    arguments, file, text = COMMANDS[name]
    out = read = tmp_path / file
    if name in LINKS:
        read = out.with_suffix(LINKS[name])
        os.link(_written(read, text), out)
    else:
        _written(read, text)
    if name.startswith("plan"):
        read.write_text("rate: 1\nclasses:\n  - {name: a, prompt: '100', output: '10'}\n")
    before = read.read_bytes()
    given = [{"in": read, "out": out}.get(part, part) for part in arguments]
    ran = run(*given, "--force")
    assert ran.status == 2
    assert str(out) in ran.err
    assert "another file" in ran.err
    assert read.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {read.name, out.name}


def _written(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("way", ["symbolic", "hard", "dotted", "relative"])
def test_by_whatever_way_it_is_named(way, tmp_path, monkeypatch):
    trace, out = _written(tmp_path / "t.csv", TRACE), tmp_path / "u.csv"
    monkeypatch.chdir(tmp_path)
    if way == "symbolic":
        out.symlink_to(trace)
    elif way == "hard":
        os.link(trace, out)
    else:
        (tmp_path / "sub").mkdir()
        out = tmp_path / "sub" / ".." / "t.csv" if way == "dotted" else "t.csv"
    ran = run("simulate", *CASE, "--trace", trace, "--csv", out, "--force")
    assert (ran.status, trace.read_text()) == (2, TRACE)


def test_files_that_a_table_names(tmp_path):
    profile = _written(tmp_path / "own.yaml", PROFILE)
    points = _written(tmp_path / "points.csv", STEPS.format(profile))
    ran = run("calibrate", "engine", points, "--out", profile, "--force")
    assert (ran.status, profile.read_text()) == (2, PROFILE)
    assert str(profile) in ran.err
    engine = _written(tmp_path / "engine.yaml", ENGINE)
    loads = _written(tmp_path / "loads.csv", LOADS.replace("vllm", str(engine)))
    ran = run("calibrate", "serving", loads, "--out", engine, "--force")
    assert (ran.status, engine.read_text()) == (2, ENGINE)


def test_the_preset_that_is_the_prior(tmp_path):
    engine = _written(tmp_path / "mine.yaml", ENGINE)
    points = _written(tmp_path / "points.csv", STEPS.format("h100-sxm"))
    ran = run("calibrate", "engine", points, "--engine", engine, "--out", engine, "--force")
    assert (ran.status, engine.read_text()) == (2, ENGINE)


def test_another_file_is_overwritten_all_the_same(tmp_path):
    trace = _written(tmp_path / "t.csv", TRACE)
    out = _written(tmp_path / "out.csv", "before")
    ran = run("simulate", *CASE, "--trace", trace, "--csv", out, "--force")
    assert ran.status == 0, ran.err
    assert out.read_text().count("\n") == 3
    (tmp_path / "copy.yaml").write_text("name: before\n")
    ran = run("engines", "copy", "vllm", tmp_path / "copy.yaml", "--force")
    assert yaml.safe_load((tmp_path / "copy.yaml").read_text())["name"] == "copy"


def test_two_results_in_one_place(tmp_path):
    traffic = ("--rate", "1", "--ttft", "2", "--prompt", "99", "--output", "9")
    ran = run(
        "plan", *CASE, *traffic, "--plot", tmp_path / "x.svg", "--csv", tmp_path / "x.svg"
    )  # fmt: skip
    assert (ran.status, list(tmp_path.iterdir())) == (2, [])
    out = tmp_path / "parts"
    out.mkdir()
    spec = _written(tmp_path / "s.yaml", SWEEP)
    part = out / "part-000000.parquet"
    ran = run("sweep", spec, "--out", out, "--selection", part)
    assert (ran.status, list(out.iterdir())) == (2, [])


def test_names_that_are_no_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("", "a\0b", "x" * 5000, "nowhere/at/all", None):
        check_free(tmp_path / "x.csv", (".csv",), force=False, reads=[name])
        check_unread(tmp_path / "x.csv", [name])
    check_apart(tmp_path / "x.csv", None, tmp_path / "y.csv")


def test_a_folder_in_the_way_is_called_one(tmp_path):
    (tmp_path / "x.csv").mkdir()
    for force in ((), ("--force",)):
        ran = run(
            "simulate", *CASE, "--rate", "1", "--requests", "9", "--csv", tmp_path / "x.csv", *force
        )
        assert (ran.status, "is a folder" in ran.err) == (2, True)
