"""Formulas over shapes against the program's own counts, for operators of every kind."""

import math

import pytest

from perfmodel import Deployment, Workload, estimate
from reports.workbook.cells import Formula
from reports.workbook.operator_counts import counted, kind_of

CASES = [
    ("llama-3.1-8b", "h100-sxm", Deployment(weights="fp8")),
    ("llama-3.1-70b", "h100-sxm", Deployment(tp=4, weights="int4")),
    ("mixtral-8x7b", "h100-sxm", Deployment(tp=2)),
    ("deepseek-v3", "h200-sxm", Deployment(tp=8, ep=8)),
    ("gpt-oss-20b", "h100-sxm", Deployment()),
    ("gemma-3-4b", "l40s", Deployment()),
    ("qwen3-next-80b-a3b", "h100-sxm", Deployment(tp=4)),
    ("llama-3.1-8b", "h100-sxm", Deployment(kv_window=512)),
]


def phases(model, hardware, deployment):
    result = estimate(model, hardware, Workload(batch=24, prompt=3000, output=200), deployment)
    return (result.prefill, result.decode)


@pytest.mark.parametrize(("model", "hardware", "deployment"), CASES)
def test_counts_are_the_programs(model, hardware, deployment):
    for phase in phases(model, hardware, deployment):
        for row in phase.cost.operators:
            cells = counted(row, lambda key: key)
            totals = {"gflop": row.cost.flops / 1e9, "weight_mb": row.cost.weight_bytes / 1e6,
                      "cache_mb": row.cost.cache_bytes / 1e6,
                      "activation_mb": row.cost.activation_bytes / 1e6,
                      "wire_mb": row.cost.wire_bytes / 1e6}  # fmt: skip
            for key, total in totals.items():
                cell = cells[key]
                value = cell.value if isinstance(cell, Formula) else cell
                assert math.isclose(value, total, rel_tol=1e-12), (row.name, key)


@pytest.mark.parametrize(("model", "hardware", "deployment"), CASES)
def test_flops_are_formulas(model, hardware, deployment):
    """No operator of these cases falls back to a bare number: their shapes say everything."""
    for phase in phases(model, hardware, deployment):
        for row in phase.cost.operators:
            if row.cost.flops:
                assert isinstance(counted(row, lambda key: key)["gflop"], Formula), row.name
            if kind_of(row) in {"GEMM", "experts"}:
                assert isinstance(counted(row, lambda key: key)["weight_mb"], Formula), row.name


def test_gemm_by_hand():
    """Qkv of Llama-3.1-8B on 24·3000 rows: 2·72,000·6,144·4,096 FLOPs in each of 32 layers."""
    row = next(r for r in phases(*CASES[0])[0].cost.operators if r.name == "qkv_proj")
    cells = counted(row, lambda key: key)
    assert cells["gflop"].text == "2*count*m*n*k/1000000000"
    assert (cells["m"], cells["n"], cells["k"]) == (72_000, 6144, 4096)
    assert cells["gflop"].value == pytest.approx(32 * 2 * 72_000 * 6144 * 4096 / 1e9, rel=1e-15)


def test_windowed_pairs_are_a_formula():
    """gemma-3's local layers: a window of 1,024 in prompts of 3,000."""
    found = [r for r in phases(*CASES[5])[0].cost.operators if r.shape.get("window")]
    assert found
    for row in found:
        assert "window" in counted(row, lambda key: key)["pairs"].text


def test_several_steps_stay_the_programs_count():
    """A chunked prefill's attention differs from step to step: no shape of one step gives it."""
    work = Workload(batch=1, prompt=3000, output=10, prefill_chunk=1024)
    result = estimate("llama-3.1-8b", "h100-sxm", work)
    row = next(r for r in result.prefill.cost.operators if r.name == "attention")
    cells = counted(row, lambda key: key)
    assert not isinstance(cells["gflop"], Formula)
    assert cells["gflop"] == pytest.approx(row.cost.flops / 1e9, rel=1e-15)
