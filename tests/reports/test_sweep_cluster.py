"""Parts on a Dask cluster of two worker processes, one of which dies half-way."""

import os
import signal

import pyarrow.dataset
import pytest

from perfmodel.errors import InputError
from perfmodel.planning.sweep.answer import Sweep
from perfmodel.specs.sweep import parse_sweep
from reports.sweep_run import write_sweep

AXES = {
    "model": "llama-3.1-8b", "hardware": "h100-sxm,l40s", "stack": "generic", "tp": "1,2",
    "weights": "bf16,fp8", "batch": "1:64:x2", "context": "1k:8k:x2", "output": "16,64",
    "pareto": "tpot_ms,ttft_ms",
}  # fmt: skip
SIZE = 28
"""448 settings: 16 parts."""


@pytest.fixture
def cluster():
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made


def rows(folder):
    return pyarrow.dataset.dataset(folder).to_table().sort_by("setting").to_pydict()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_changes_nothing(tmp_path, cluster):
    killed = []

    def kill_one(done, total):
        if not killed and done >= total // 2:
            worker = next(iter(cluster.workers.values()))
            killed.append(worker.pid)
            os.kill(worker.pid, signal.SIGKILL)

    sweep = Sweep(parse_sweep(AXES))
    there = write_sweep(
        sweep, tmp_path / "there", part_settings=SIZE, dask=cluster.scheduler_address,
        progress=kill_one,
    )  # fmt: skip
    assert killed
    here = write_sweep(sweep, tmp_path / "here", part_settings=SIZE)
    assert rows(tmp_path / "there") == rows(tmp_path / "here")
    assert there.rows == here.rows == 448
    assert there.pareto.records() == here.pareto.records()


def test_no_scheduler_answers(tmp_path, monkeypatch):
    monkeypatch.setattr("reports.sweep_cluster.ANSWER_S", 0.3)
    with pytest.raises(InputError, match="--dask: no scheduler answers"):
        write_sweep(Sweep(parse_sweep(AXES)), tmp_path / "out", dask="tcp://127.0.0.1:9")
