"""Where intervals stop growing, and attention that writes its scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel import Deployment, Workload, estimate
from perfmodel.inference.estimate import device_model
from perfmodel.inference.plan import make_plan
from perfmodel.kernels.kernel_time import KernelTime
from perfmodel.kernels.widening import bounded, is_wide
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.loading import load_model

SPREAD = 1.6


def assumed(seconds):
    return KernelTime(seconds, 0, 0, 0, 0, 0, 0, 0, "assumed")


def test_by_hand():
    # Predicted 2 s, own ends 1.8 and 2.5, widened to 0.1 and 90; assumed shares: 3 s within ×1.6.
    # The upper end: the larger of 2.5 and 1.6 · 3 = 4.8. The lower: the lesser of 1.8 and 2 / 1.6.
    assert bounded(2.0, (0.1, 90.0), (1.8, 2.5), assumed(3.0), SPREAD) == pytest.approx((1.25, 4.8))
    # A set's own residuals count, however far: 8 s above, 0.5 below.
    assert bounded(2.0, (0.1, 90.0), (0.5, 8.0), assumed(2.0), SPREAD) == pytest.approx((0.5, 8.0))
    # What isn't wider stays.
    assert bounded(2.0, (1.5, 2.2), (1.8, 2.1), assumed(3.0), SPREAD) == (1.5, 2.2)
    assert not is_wide(2.0, (1.5, 2.2), SPREAD)
    assert is_wide(2.0, (1.2, 2.2), SPREAD)
    assert is_wide(np.array([2.0, 2.0]), (np.array([1.5, 1.5]), np.array([2.2, 3.3])), SPREAD)


@given(*(st.floats(0.01, 100) for _ in range(2)), *(st.floats(1, 50) for _ in range(4)))
def test_ends_stay_around_the_time_and_inside_what_was_given(time, other, down, up, own, widened):
    ends = (time / down / widened, time * up * widened)
    low, high = bounded(time, ends, (time / own, time * own), assumed(other), SPREAD)
    assert ends[0] <= low <= time <= high <= ends[1]
    assert high <= max(time * own, SPREAD * max(time, other)) * (1 + 1e-12)
    assert low >= min(time / own, min(time, other) / SPREAD) * (1 - 1e-12)


def test_no_operator_of_a_large_model_is_wider_than_knowing_nothing():
    load, deployment = Workload(batch=64, prompt=4096, output=16), Deployment(tp=8)
    told = estimate("deepseek-v3", "h200-sxm", load, deployment)
    low, high = told.interval("tpot_s")
    assert high / low < 3  # it was 24: MLA's decode alone ×91
    bare = estimate(
        "deepseek-v3", "h200-sxm", load, deployment.model_copy(update={"stack": "generic"})
    )
    shares = {row.name: row.cost.time_s for row in bare.decode.cost.operators}
    for row in told.decode.cost.operators:
        cost = row.cost
        if row.source == "fitted":
            known = 1.8 * max(cost.time_s, shares[row.name])  # 1.8: the widest family's spread
            assert cost.high_s <= max(known, np.exp(0.752) * cost.time_s) * 1.01, row.name


def test_the_widest_is_still_wider_than_what_was_measured():
    model, hardware = load_model("deepseek-v3"), load_hardware("h200-sxm")
    plan = make_plan(model, hardware, Workload(), Deployment(tp=8))
    device = device_model(hardware, plan)
    ends = []
    for prompt in (1024, 65_536):  # within the measured tokens of experts, and far beyond
        told = estimate(model, hardware, Workload(prompt=prompt, output=1), plan.deployment)
        rows = [r for r in told.prefill.cost.operators if r.name == "experts.gate_up_proj"]
        ends.append(rows[0].cost.high_s / rows[0].cost.time_s)
    assert 1 < ends[0] < ends[1] <= 1.7 * 1.5
    assert device.choice is not None


@pytest.mark.parametrize("hardware", ["h100-sxm", "a100-sxm-80gb", "mi300x"])
@pytest.mark.parametrize(("batch", "prompt"), [(1, 512), (1, 4096), (8, 2048), (64, 256)])
def test_unfused_attention_is_never_the_better_kernel(hardware, batch, prompt):
    load = Workload(batch=batch, prompt=prompt, output=8)
    fused, unfused = (
        estimate("llama-3.1-8b", hardware, load, Deployment(attention=kind))
        for kind in ("fused", "unfused")
    )
    for phase in ("prefill", "decode"):
        with_it, without = (
            next(r for r in getattr(e, phase).cost.operators if r.name == "attention")
            for e in (fused, unfused)
        )
        # Four passes over 16-bit scores, at the assumed 0.8 of the bandwidth.
        more = without.cost.activation_bytes - with_it.cost.activation_bytes
        traffic = more / (0.8 * fused.hardware.memory_bandwidth)
        assert without.cost.time_s >= with_it.cost.time_s + (
            0.999 * traffic if with_it.source == "fitted" else 0
        )
        assert without.cost.low_s >= with_it.cost.low_s
        assert without.cost.low_s <= without.cost.time_s <= without.cost.high_s
    assert unfused.ttft_s >= fused.ttft_s
    assert unfused.tpot_s >= fused.tpot_s
