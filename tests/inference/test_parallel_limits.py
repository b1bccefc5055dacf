"""Parallel layouts at their limits, over arrays, and refused."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.errors import InputError
from perfmodel.inference.plan import make_plan
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.workload import Workload
from tests.inference.parallel_case import H100, run
from tests.operators.support import model


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_ones_and_zeros_are_the_plain_case(name):
    load = Workload(batch=4, prompt=300, output=5)
    plain = run(name, load, roof=False)
    same = run(
        name, load, roof=False, tp=1, pp=1, ep=1, dp=1, cp=1, dcp=1, pp_microbatches=1,
        expert_skew=0.0, comm_overlap=0.0, gpus_per_node=8, sequence_parallel=True,
    )  # fmt: skip
    assert same.prefill.cost == plain.prefill.cost
    assert same.decode_total == plain.decode_total
    assert same.memory == plain.memory


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("llama-3.1-8b", {"pp": 4, "pp_microbatches": 3, "tp": 2}),
        ("nemotron-nano-9b-v2", {"pp": 3, "pp_microbatches": 2}),
        ("deepseek-v2-lite", {"tp": 2, "cp": 2, "comm_overlap": 0.4, "sequence_parallel": True}),
        ("deepseek-v2-lite", {"tp": 8, "dcp": 4, "gpus_per_node": 4}),
        ("qwen3-30b-a3b", {"tp": 2, "dp": 2, "ep": 4, "expert_skew": 0.7, "comm_overlap": 1.0}),
    ],
)
def test_arrays_are_estimated_as_their_numbers(name, layout):
    batches, prompts = np.array([[6.0], [40.0]]), np.array([64.0, 3000.0])
    together = run(
        name, Workload(batch=batches, prompt=prompts, output=6, prefill_chunk=1000), False, **layout
    )
    for i, batch in enumerate((6, 40)):
        for j, prompt in enumerate((64, 3000)):
            load = Workload(batch=batch, prompt=prompt, output=6, prefill_chunk=1000)
            alone = run(name, load, roof=False, **layout)
            for quantity in ("ttft_s", "tpot_s", "total_s"):
                many = getattr(together, quantity)[i, j]
                assert many == pytest.approx(getattr(alone, quantity), rel=1e-9)
            kv = np.broadcast_to(together.memory.kv_bytes, (2, 2))[i, j]
            assert kv == alone.memory.kv_bytes


@pytest.mark.parametrize(
    ("name", "load", "layout", "named"),
    [
        ("llama-3.1-8b", {}, {"pp_microbatches": 2}, "--pp-microbatches: 2"),
        ("llama-3.1-8b", {"batch": 3}, {"pp": 2, "pp_microbatches": 4}, "use at most 3"),
        ("qwen3-next-80b-a3b", {}, {"cp": 2}, "recurrent"),
        ("deepseek-v3.2", {}, {"cp": 2}, "--cp"),
        ("deepseek-v3.2", {}, {"tp": 8, "dcp": 2}, "--dcp"),
        ("mamba-codestral-7b", {}, {"dcp": 2}, "no KV cache"),
        ("llama-3.1-8b", {}, {"tp": 8, "dcp": 2}, "--dcp may be 1"),
        ("llama-3.1-70b", {}, {"tp": 32, "dcp": 3}, "--dcp may be 1, 2, 4"),
        ("llama-3.1-8b", {"prompt": 3}, {"cp": 4}, "use at most 3"),
        ("llama-3.1-8b", {}, {"expert_skew": 1.0}, "no experts"),
    ],
)
def test_layouts_that_cannot_be(name, load, layout, named):
    with pytest.raises(InputError) as error:
        make_plan(model(name), H100, Workload(**load), Deployment(**layout))
    assert named in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [{"comm_overlap": 1.1}, {"comm_overlap": "x"}, {"expert_skew": -0.1}, {"cp": 0},
     {"gpus_per_node": 0}, {"comm_overlap": float("nan")}, {"sequence_parallel": 1}],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_be(fields):
    with pytest.raises(InputError) as error:
        Deployment(**fields)
    assert "\n" not in str(error.value)
