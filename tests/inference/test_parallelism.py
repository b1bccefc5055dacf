"""Pipelines against a simulation, hidden exchanges, shared caches, refusals, signs and limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.inference.estimate import Estimate
from perfmodel.inference.memory import memory_use
from perfmodel.inference.pipeline import BUBBLE_ROW, Flight, bubble_share
from perfmodel.inference.plan import make_plan
from perfmodel.inference.step_sets import Part
from perfmodel.inference.steps import decode_step, prefill
from perfmodel.kernels.timing import DeviceModel
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.workload import Workload
from tests.inference.parallel_case import H100, run
from tests.operators.support import model


def simulated(stages: list[float], units: int, in_flight: int) -> float:
    """Finish of the last of ``units`` equal units, of which at most ``in_flight`` are under way."""
    free = [0.0] * len(stages)
    finished: list[float] = []
    for unit in range(units):
        at = finished[unit - in_flight] if unit >= in_flight else 0.0
        for stage, seconds in enumerate(stages):
            at = max(at, free[stage]) + seconds
            free[stage] = at
        finished.append(at)
    return finished[-1]


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=6), st.integers(1, 9), st.integers(1, 6))
def test_prefill_and_decode_rounds_against_a_simulation(stages, groups, chunks):
    """Units in flight as many as micro-batches: each round is one chunk, or one token, of all."""
    every, slowest = sum(stages), max(stages)
    flight = Flight(groups=groups, sequences=1, rounds=chunks, chunks=chunks)
    found = flight.prefill_s(chunks * every, chunks * slowest)
    assert found == pytest.approx(simulated(stages, groups * chunks, groups))
    rounds = [simulated(stages, groups * n, groups) for n in (20, 21)]
    assert flight.decode_s(every, slowest) == pytest.approx(rounds[1] - rounds[0])


@given(st.integers(1, 16), st.integers(1, 64))
def test_bubbles_of_equal_stages(pp, m):
    """(m + p − 1)·t, of which (p − 1)/(m + p − 1) is bubble."""
    seconds = Flight(groups=m, sequences=1, rounds=1, chunks=1).prefill_s(pp * 1.0, 1.0)
    assert seconds == m + pp - 1
    assert (seconds - m) / seconds == pytest.approx((pp - 1) / (m + pp - 1))


def stage_seconds(name: str, load: Workload, sequences: int, phase: Any, **deployment: Any) -> Any:
    plan = make_plan(model(name), H100, load, Deployment(**deployment))
    device = DeviceModel(H100, None)
    return [
        phase(model(name), load, plan, device, part=Part(stage, sequences)).total.time_s
        for stage in range(deployment["pp"])
    ]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v2-lite", "nemotron-nano-9b-v2"])
def test_the_slowest_stage_sets_the_pace(name):
    """Ten sequences in four micro-batches of three (the last of one): Σ t + 3·max t; a round of
    decoding max(Σ t, 4·max t).
    """
    load, layout = Workload(batch=10, prompt=512, output=8), {"pp": 3, "pp_microbatches": 4}
    result = run(name, load, **layout)
    stages = stage_seconds(name, load, 3, prefill, **layout)
    assert len({round(t, 12) for t in stages}) > 1  # their layers, embedding and head differ
    assert result.ttft_s == pytest.approx(sum(stages) + 3 * max(stages))
    stages = stage_seconds(name, load, 3, decode_step, **layout)
    assert result.decode.time_s == pytest.approx(max(sum(stages), 4 * max(stages)))
    total = sum(row.cost.time_s for row in result.prefill.cost.operators)
    assert result.prefill.time_s == pytest.approx(total)
    (bubble,) = (row for row in result.prefill.cost.operators if row.name == BUBBLE_ROW)
    assert bubble.cost.flops == bubble.cost.bytes == 0
    assert bubble_share(result.prefill.cost) == pytest.approx(bubble.cost.time_s / total)


def test_chunks_of_one_prompt_fill_the_stages():
    """One prompt of 8 chunks, four in flight over two stages: no micro-batch waits for another
    sequence, and TTFT comes near half of a chunk after the other through both stages.
    """
    load = Workload(prompt=16_384, output=2, prefill_chunk=2048)
    one, four = (run("llama-3.1-8b", load, pp=2, pp_microbatches=m) for m in (1, 4))
    assert 0.5 < four.ttft_s / one.ttft_s < 0.65
    assert four.tpot_s == pytest.approx(one.tpot_s)  # decode has one sequence only


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([2, 4]), st.integers(0, 3), st.integers(8, 40))
def test_micro_batches_speed_up_a_compute_bound_prefill_and_never_beat_the_stages(pp, power, batch):
    load = Workload(batch=batch, prompt=4096, output=2)
    one = run("llama-3.1-8b", load, pp=pp)
    many = run("llama-3.1-8b", load, pp=pp, pp_microbatches=2**power)
    size = -(-batch // 2**power)
    groups = -(-batch // size)
    assert many.ttft_s <= one.ttft_s * size * groups / batch * 1.001
    assert many.ttft_s >= one.ttft_s / pp


def exchanged(result: Estimate) -> Any:
    """Seconds of a decode step's exchanges, and of the rest."""
    rows = result.decode.cost.operators
    wired = sum(row.cost.time_s for row in rows if np.all(row.cost.wire_bytes > 0))
    return wired, result.decode.time_s - wired


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_hidden_exchanges_by_hand(share):
    """What is hidden: the share of the exchanges, at most as long as the other kernels take."""
    load = Workload(batch=64, output=4)
    comm, rest = exchanged(run("llama-3.1-8b", load, tp=8))
    result = run("llama-3.1-8b", load, tp=8, comm_overlap=share)
    assert result.decode.time_s == pytest.approx(comm + rest - min(share * comm, rest))
    assert result.decode.time_s >= max(comm, rest) * (1 - 1e-12)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([("llama-3.1-8b", {"tp": 4}), ("qwen3-30b-a3b", {"ep": 4, "dp": 4})]),
    st.floats(0, 1), st.floats(0, 1), st.integers(4, 300), st.booleans(),
)  # fmt: skip
def test_more_overlap_is_never_slower(case, a, b, batch, roof):
    name, layout = case
    less, more = (
        run(name, Workload(batch=batch, output=3), roof, comm_overlap=s, **layout)
        for s in sorted((a, b))
    )
    for quantity in ("ttft_s", "tpot_s"):
        assert getattr(more, quantity) <= getattr(less, quantity) * (1 + 1e-12)
        low, high = more.interval(quantity)
        assert low <= getattr(more, quantity) <= high
    assert more.prefill.cost.total.roof_s <= more.ttft_s * (1 + 1e-12)


def kv_per_token(name: str, tokens: int = 200_000, **deployment: Any) -> Any:
    """What one more token of a long sequence takes on a GPU."""
    two = []
    for output in (1, 1 + 1024):
        load = Workload(prompt=tokens, output=output)
        plan = make_plan(model(name), H100, load, Deployment(kv_layout="flat", **deployment))
        two.append(memory_use(model(name), H100, load, plan).kv_bytes)
    return (two[1] - two[0]) / 1024


@pytest.mark.parametrize(
    ("name", "layout", "expected"),
    [
        ("deepseek-v3", {}, 70_272),  # 61·(512 + 64)·2 B
        ("deepseek-v3", {"tp": 8}, 70_272),  # the latent is on every rank
        ("deepseek-v3", {"tp": 8, "dcp": 8}, 8784),  # unless they share it by tokens
        ("deepseek-v3", {"tp": 8, "cp": 4}, 17_568),
        ("gpt-oss-120b", {}, 36_864),  # 18 layers without a window · 2·8·64·2 B
        ("llama-3.1-70b", {"tp": 8}, 40_960),  # 80 · 2·128·2 B, one of 8 heads
        ("llama-3.1-70b", {"tp": 16}, 40_960),  # each head on two ranks
        ("llama-3.1-70b", {"tp": 16, "dcp": 2}, 20_480),
        ("llama-3.1-70b", {"tp": 8, "cp": 2}, 20_480),
    ],
)
def test_bytes_that_a_token_takes_on_each_gpu(name, layout, expected):
    assert kv_per_token(name, **layout) == expected


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "gemma-3-27b"]),
    st.integers(1, 8), st.integers(1, 8), st.integers(64, 20_000), st.integers(1, 64),
    st.sampled_from(["paged", "flat"]),
)  # fmt: skip
def test_context_ranks_never_hold_more_of_the_cache(name, a, b, prompt, batch, layout):
    def kv(cp: int) -> Any:
        load = Workload(batch=batch, prompt=prompt, output=5)
        plan = make_plan(model(name), H100, load, Deployment(cp=cp, kv_layout=layout))
        return memory_use(model(name), H100, load, plan)

    one, some = kv(1), kv(a)
    assert some.kv_bytes <= one.kv_bytes
    assert some.kv_bytes * a >= one.kv_bytes * (1 - 1e-12)
    assert some.weights_bytes == one.weights_bytes
    assert kv(a * b).kv_bytes <= some.kv_bytes


def test_attention_replicas_split_a_latent_cache_and_share_the_experts():
    """DeepSeek-V3 on eight GPUs: at TP 8 each holds the latents of 64 sequences, as eight attention
    replicas those of its own 8; experts are spread over all eight either way.
    """
    load = Workload(batch=64, prompt=4000, output=96)

    def memory(**layout: Any) -> Any:
        plan = make_plan(model("deepseek-v3"), H100, load, Deployment(**layout))
        return memory_use(model("deepseek-v3"), H100, load, plan)

    tensor, replicas = memory(tp=8, ep=8), memory(dp=8, ep=8)
    assert replicas.kv_bytes == tensor.kv_bytes / 8
    # attention, dense layers, shared experts and tables are whole on a replica
    assert tensor.weights_bytes < replicas.weights_bytes < 1.25 * tensor.weights_bytes
    wire = {
        row.name: row.cost.wire_bytes
        for row in run("deepseek-v3", load, dp=8, ep=8).decode.cost.operators
        if row.cost.wire_bytes
    }
    assert set(wire) == {"experts.dispatch", "experts.combine"}  # no all-reduce at tp 1
    # 58 layers, 8 tokens a rank, 8·(1 − (7/8)^8) ranks each, 7168 elements in 2 B, 7/8 cross
    assert wire["experts.combine"] == pytest.approx(58 * 8 * 8 * (1 - 0.875**8) * 7168 * 2 * 0.875)


def test_a_long_prompt_is_prefilled_sooner_on_more_ranks():
    load = Workload(prompt=131_072, output=2)
    one, two, four = (run("llama-3.1-8b", load, cp=cp).ttft_s for cp in (1, 2, 4))
    assert 0.5 <= two / one < 0.55
    assert 0.25 <= four / one < 0.32
    assert run("llama-3.1-8b", load, cp=4).plan.parallel.gpus == 4


@settings(max_examples=12, deadline=None)
@given(st.floats(0, 2), st.floats(0, 2), st.integers(1, 4))
def test_skew_slows_a_step_whose_experts_are_all_busy(a, b, scale):
    """Prefill of many tokens, limited by arithmetic and exchanges: the busiest rank sets the pace.

    (A decode step that touches few experts may get quicker: fewer weights are read.)
    """
    load = Workload(batch=32 * scale, prompt=4096, output=2)
    less, more = (
        run("qwen3-30b-a3b", load, ep=8, dp=8, expert_skew=s).ttft_s for s in sorted((a, b))
    )
    assert more >= less * 0.999


def test_fewer_experts_are_read_where_few_are_popular():
    load = Workload(batch=16, output=2)
    even, skewed = (
        run("qwen3-30b-a3b", load, expert_skew=s).decode.cost.total.weight_bytes for s in (0, 1.0)
    )
    assert skewed < even
    fitted = [run("qwen3-30b-a3b", load, roof=False, ep=4, dp=4, expert_skew=s) for s in (0, 1.0)]
    rows = [
        {o.name: o for o in result.decode.cost.operators if o.source.startswith("fitted")}
        for result in fitted
    ]
    assert "experts.down_proj" in rows[1]  # the measured kernel prices the busiest rank's load
    names = ("experts.gate_up_proj", "experts.down_proj")
    assert all(rows[1][n].cost.time_s < rows[0][n].cost.time_s for n in names)
