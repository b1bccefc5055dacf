"""Tabulated step times against direct evaluation of the same operators."""

import numpy as np
import pytest

from perfmodel.serving.serve import Serving, served
from perfmodel.specs.deployment import Deployment

CASES = {
    "dense": ("llama-3-8b", "h100-sxm", {}),
    "mla": ("deepseek-v3", "h200-sxm", {"tp": 8, "weights": "fp8"}),
    "windows": ("gpt-oss-120b", "b200-sxm", {}),
}


def direct(pricer, n, context, chunks):
    """A step of equal chunks, from its groups, as `Pricer` says that they add up."""
    count, (size, before) = len(chunks), chunks[0]
    shared, _ = pricer.shared(float(n + count * size))
    seconds = shared + pricer.head(float(n + count)) + pricer.serial_s(float(n + count))
    seconds += pricer.prompts(float(count), float(size), float(before))
    if n:
        seconds += pricer.decoding(float(n), float(context))
    return float(seconds)


@pytest.mark.parametrize("case", CASES)
def test_a_mixed_step_is_within_a_hundredth(case):
    model, hardware, layout = CASES[case]
    times = served(model, hardware, Deployment(**layout), Serving()).engine.times
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(25):
        n, count = int(rng.integers(0, 200)), int(rng.integers(1, 5))
        size = int(np.exp(rng.uniform(0, np.log(8000 / count))))
        before = int(rng.choice([0, np.exp(rng.uniform(0, np.log(20_000)))]))
        context = int(np.exp(rng.uniform(0, np.log(20_000))))
        exact = direct(times._pricer, n, context, [(size, before)] * count)
        if n + count * size > times._issued_from:
            exact = max(exact, times._issue_s)
        exact = max(exact, times.floor_s)
        told = times.mixed(n, n * context, [(size, before)] * count, count)
        worst = max(worst, abs(told / exact - 1))
    assert worst < 0.01


def test_between_nodes_of_a_row_decode_steps_are_linear():
    times = served("llama-3-8b", "h100-sxm", Deployment(), Serving()).engine.times
    reach = times.linear_up_to(8, 8 * 1000)
    assert 8 * 1000 < reach < 8 * 1200
    low, high = times.decode(8, 8 * 1000), times.decode(8, reach)
    assert times.decode(8, (8 * 1000 + reach) / 2) == pytest.approx((low + high) / 2)
