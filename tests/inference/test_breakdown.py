import numpy as np
import pytest

import perfmodel
from perfmodel.inference.breakdown import GROUPS, breakdown, group_of, largest_within


def estimate(model="llama-3.1-8b", hardware="h100-sxm", deployment=None, **sizes):
    load = perfmodel.Workload(**{"batch": 8, "prompt": 1024} | sizes)
    return perfmodel.estimate(model, hardware, load, deployment)


@pytest.mark.parametrize(
    ("model", "tp"), [("llama-3.1-8b", 1), ("deepseek-v3", 8), ("qwen3-next-80b-a3b", 4)]
)
def test_groups_sum_to_the_phase(model, tp):
    deployment = perfmodel.Deployment(tp=tp, weights="auto")
    result = estimate(model, "h200-sxm", deployment, batch=np.array([1, 16]))
    for phase in (result.prefill, result.decode):
        parts = breakdown(result, phase)
        assert sum(times for _, times in parts.groups) == pytest.approx(parts.total_s)
        assert parts.total_s == pytest.approx(np.broadcast_to(phase.time_s, 2))
        assert (parts.low_s <= parts.total_s).all()
        assert (parts.total_s <= parts.high_s).all()
        names = [name for name, _ in parts.groups]
        assert names == [name for name in GROUPS if name in names]


def test_each_operator_is_where_a_reader_looks_for_it():
    deployment = perfmodel.Deployment(tp=8, weights="auto")
    result = estimate("deepseek-v3", "h200-sxm", deployment)
    groups = {row.name: group_of(row) for row in result.decode.cost.operators}
    expected = {
        "qkv_a_proj": "projections", "absorb_q": "projections", "o_proj": "projections",
        "attention": "attention", "ffn.gate_up_proj": "feed-forward",
        "experts.down_proj": "experts", "router": "experts",
        "shared_expert.gate_up_proj": "experts", "mixer.all_reduce": "exchanges",
        "norm_residual": "norms and other passes", "lm_head": "LM head",
        "engine.host": "host, transfers, waiting",
    }  # fmt: skip
    assert {name: groups[name] for name in expected} == expected


def test_a_draft_stands_by_itself():
    speculation = perfmodel.Speculation(method="mtp", tokens=1, acceptance=0.8)
    deployment = perfmodel.Deployment(tp=8, weights="auto", speculation=speculation)
    result = estimate("deepseek-v3", "h200-sxm", deployment)
    parts = dict(breakdown(result, result.decode).groups)
    rows = [r for r in result.decode.cost.operators if r.name.startswith("draft.")]
    assert rows
    assert parts["draft"][0] == pytest.approx(sum(row.cost.time_s for row in rows))


def test_the_largest_batch_within_a_promise_is_the_last_that_keeps_it():
    batches = np.arange(1, 200)
    result = estimate(batch=batches, prompt=2048, output=256)
    found = largest_within(result, 0.02)
    tpot = np.ravel(result.tpot_s)
    assert tpot[found - 1] <= 0.02 < tpot[found]
    assert largest_within(result, 1e-6) is None
    # Everything that fits keeps a promise of a minute.
    assert largest_within(result, 60.0) == batches[result.memory.fits].max()
