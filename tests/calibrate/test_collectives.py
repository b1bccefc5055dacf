"""Collectives really run between two processes on this machine, by torchrun over gloo."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from calibrate.collectives import COLUMNS, OPS, bus_bytes
from calibrate.results import result_columns
from calibrate.rows import read_rows

ROOT = Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def torchrun(out, sizes):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
        "--master-addr", "127.0.0.1", "--master-port", str(free_port()),
        "-m", "calibrate.collectives", "--out", str(out), "--sizes", sizes,
        "--budget", "0.02", "--tolerance", "0.5",
    ]  # fmt: skip
    here = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=here, timeout=120, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_two_processes_write_and_resume_rows(tmp_path):
    done = torchrun(tmp_path, "1024,65536,1026")
    assert done.returncode == 0, done.stderr[-2000:]
    rows = read_rows(tmp_path / "collective.csv")
    assert [(row["op"], row["message_bytes"]) for row in rows] == [
        (op, message) for op in OPS for message in ("1024", "65536", "1026")
    ]
    for row in rows:
        assert list(row) == result_columns(COLUMNS)
        assert row["num_gpus"] == "2"
        if row["message_bytes"] == "1026":  # 513 elements don't halve
            assert row["reason"] == "1026 bytes don't split over 2 ranks"
        else:
            assert row["status"] == "ok", row["reason"]
            assert float(row["latency_us"]) > 0


def test_bus_bytes_by_hand():
    # 2(n−1)/n of an all-reduce's message, (n−1)/n of the others'
    assert [bus_bytes(op, 1024, 4) for op in OPS] == [1536, 768, 768, 768]
