"""A command that is told to end leaves no half-written file."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = "from perfmodel.cli.main import main; main()"
LONG = (
    "simulate",
    "llama-3.1-8b",
    "-H",
    "h100-sxm",
    "--concurrency",
    "8",
    "--requests",
    "99999999",
)
LIMIT_S = 60.0


def started(out):
    """A simulation that has begun to write, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *LONG, "--csv", str(out), "--force"], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    end = time.monotonic() + LIMIT_S
    while not any(file.stat().st_size for file in out.parent.glob(".x.*")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, "nothing was written"
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("times", [1, 2])
def test_nothing_half_written_stays(tmp_path, number, times):
    out = tmp_path / "x.csv"
    out.write_text("before")
    process = started(out)
    for _ in range(times):
        os.kill(process.pid, number)
    said, complaint = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number
    assert (said, b"Traceback" in complaint) == (b"", False)
    assert [file.name for file in tmp_path.iterdir()] == ["x.csv"]
    assert out.read_text() == "before"


def test_what_was_told_to_be_ignored_stays_ignored():
    code = (
        "import signal; from perfmodel.cli import main; main.run = lambda: 0\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "try: main.main()\n"
        "finally: assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
