"""``--graph-batch``: the largest decode batch that is captured, in place of the engine's."""

import pytest

from perfmodel import Deployment, Workload, estimate
from perfmodel.errors import InputError
from perfmodel.inference.plan import make_plan
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.loading import load_model


def plan(engine, **settings):
    model, device = load_model("llama-3.1-8b"), load_hardware("h100-sxm")
    work = Workload(batch=8, prompt=128, output=8)
    return make_plan(model, device, work, Deployment(engine=engine, **settings))


def test_the_engines_own_stands_where_none_is_asked_for():
    assert plan("trtllm-2025").graph_batch == 128
    assert plan("trtllm-2025", graph_batch=8192).graph_batch == 8192


def test_a_batch_beyond_what_is_captured_is_launched():
    def tpot(**settings):
        work = Workload(batch=200, prompt=128, output=8)
        deployment = Deployment(engine="trtllm-2025", **settings)
        return float(estimate("llama-3.2-1b", "h100-sxm", work, deployment).tpot_s)

    # 200 sequences are more than the 128 that are captured by default.
    assert tpot(graph_batch=256) < tpot()
    assert tpot(graph_batch=64) == tpot()


def test_sglang_keeps_memory_for_what_it_captures():
    # Its static share shrinks with the largest captured batch.
    small, large = (plan("sglang", graph_batch=size).own_utilisation for size in (8, 512))
    assert large < small


def test_an_engine_without_graphs_refuses():
    with pytest.raises(InputError, match="--graph-batch: lmdeploy captures no graphs"):
        plan("lmdeploy", graph_batch=8)
