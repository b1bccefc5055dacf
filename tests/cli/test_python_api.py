"""The same objects from Python: paths, numpy's numbers, equality, and one-line complaints."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfmodel
from perfmodel import Deployment, InputError, Workload

ROOT = Path(__file__).resolve().parents[2]


def test_paths_are_taken(tmp_path):
    shutil.copy(ROOT / "perfmodel" / "catalog" / "qwen3-8b.json", tmp_path / "mine.json")
    model, profile = tmp_path / "mine.json", ROOT / "hardware" / "h100-sxm.yaml"
    assert perfmodel.load_model(model).name == "mine"
    assert perfmodel.load_hardware(profile).name == "h100-sxm"
    assert perfmodel.estimate(model, profile).model.name == "mine"


def test_numbers_of_numpy():
    assert Deployment(tp=np.int64(2)).tp == 2
    assert Deployment(gpu_memory_utilization=np.float32(0.5)).gpu_memory_utilization == 0.5
    assert Workload(batch=np.int32(3), prefill_chunk=np.int64(64)) == Workload(
        batch=3, prefill_chunk=64
    )


def test_workloads_are_compared():
    one, same, other = (Workload(batch=np.array(b)) for b in ([1, 2], [1, 2], [1, 3]))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != Workload()
    assert Workload() == Workload()
    assert Workload() != "workload"


api: Any = perfmodel  # what a checker would refuse
WRONG = {
    "batch: out of range": lambda: api.Workload(batch=0),
    "batch: out of range: from 1": lambda: api.Workload(batch=10**6000),
    "batch: a whole number is needed": lambda: api.Workload(batch=1.5),
    "batch: a whole number is needed (got nan)": lambda: api.Workload(batch=float("nan")),
    "batch: a whole number is needed, or": lambda: api.Workload(batch=[[1], [1, 2]]),
    "prefill_chunk: a whole number": lambda: api.Workload(prefill_chunk=[1, 2]),
    "cached_prefix: must be shorter": lambda: api.Workload(prompt=5, cached_prefix=5),
    "the arrays of batch, prompt": lambda: api.Workload(batch=[1, 2], prompt=[1, 2, 3]),
    "bacth: no field of a Workload; known: batch": lambda: api.Workload(bacth=1),
    "tp: out of range": lambda: api.Deployment(tp=0),
    "tp: a whole number is needed": lambda: api.Deployment(tp=True),
    "weights: unknown number format 'x'": lambda: api.Deployment(weights="x"),
    "execution: must be 'graph' or 'eager'": lambda: api.Deployment(execution="lazy"),
    "workload: a perfmodel.Workload is needed": lambda: api.estimate(
        "llama-3.1-8b", "h100-sxm", {"batch": 1}
    ),
    "deployment: a perfmodel.Deployment is needed": lambda: api.estimate(
        "llama-3.1-8b", "h100-sxm", api.Workload(), {"tp": 1}
    ),
    "model: a name or a path": lambda: api.estimate(7, "h100-sxm"),
    "hardware: a name or a path": lambda: api.estimate("llama-3.1-8b", 7),
    "no interval is called 'foo'; known: ttft_s": lambda: api.estimate(
        "llama-3.1-8b", "h100-sxm"
    ).interval("foo"),
}


@pytest.mark.parametrize("said", WRONG)
def test_one_line(said):
    with pytest.raises(InputError) as caught:
        WRONG[said]()
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
