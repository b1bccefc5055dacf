"""Where the answer goes: full disks, closed pipes, narrow terminals, poor encodings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = "from perfmodel.cli.main import main; main()"
ROOT = Path(__file__).resolve().parents[2]
CASE = ("estimate", "llama-3.1-8b", "-H", "h100-sxm")
ANSWERS = {
    "json": (*CASE, "--json"),
    "csv": (*CASE, "--csv"),
    "text": CASE,
    "check": ("hardware", "check"),
    "help": ("--help",),
    "version": ("--version",),
}


def command(arguments, **options):
    """The command line in a process of its own."""
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-c", CODE, *arguments], cwd=ROOT, env=environment, check=False,
        stderr=subprocess.PIPE, **options,
    )  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("name", ANSWERS)
def test_a_full_disk_is_one_line(name):
    with Path("/dev/full").open("w") as full:
        ran = command(ANSWERS[name], stdout=full)
    assert ran.returncode == 2
    assert ran.stderr.decode() == (
        "perfmodel: can't write the answer: No space left on device\n"
    )  # fmt: skip


@pytest.mark.parametrize("name", ["json", "text", "help"])
def test_a_closed_pipe_ends_quietly(name):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = command(ANSWERS[name], stdout=writer)
    finally:
        os.close(writer)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize("name", ["json", "text", "help"])
def test_an_encoding_without_our_characters(name):
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    ran = command(ANSWERS[name], stdout=subprocess.PIPE, env=poor)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.isascii()
    assert b"?" not in ran.stdout
    if name == "text":
        assert b"on 1 x h100-sxm" in ran.stdout


def test_a_complaint_in_a_poor_encoding():
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = command(("estimate", "é", "-H", "h100-sxm"), stdout=subprocess.PIPE, env=poor)
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["text", "help"])
def test_narrow_terminals_get_sixty_columns(name):
    narrow = {"COLUMNS": "30", "PYTHONIOENCODING": "utf-8"}
    ran = command(ANSWERS[name], stdout=subprocess.PIPE, env=narrow)
    longest = max(len(line) for line in ran.stdout.decode().splitlines())
    assert 50 < longest <= 60
    assert "…" not in ran.stdout.decode()


def test_names_are_no_markup(tmp_path):
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    }  # fmt: skip
    file = tmp_path / "a[bold]b:smile:.json"
    file.write_text(json.dumps(config))
    utf8 = {"PYTHONIOENCODING": "utf-8"}
    ran = command(("estimate", file, "-H", "h100-sxm"), stdout=subprocess.PIPE, env=utf8)
    assert ran.stdout.decode().startswith("a[bold]b:smile: on 1 ×")
