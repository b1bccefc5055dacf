"""Tabulated step times against the operators they stand for."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import numpy as np
import pytest

from perfmodel.inference.estimate import estimate
from perfmodel.inference.mixed import step_cost
from perfmodel.inference.step_sets import made_step
from perfmodel.serving.lockstep import LockstepSteps, Share
from perfmodel.serving.nodes import grid
from perfmodel.serving.pricing import Pricer
from perfmodel.serving.serve import Served, served
from perfmodel.serving.step_arrays import LockstepArrays, PricedArrays
from perfmodel.serving.step_times import Chunk
from perfmodel.serving.tables import NODES_PER_OCTAVE, SHORT_STRIDE, TabulatedSteps
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.speculation import Speculation
from perfmodel.specs.workload import Workload

MTP = Speculation(method="mtp", tokens=2, acceptance=0.8)
STATED = Speculation(method="ngram", tokens=2, acceptance=0.8, draft_cost=0.1)
LONGEST = 32_768
NODES = grid(LONGEST, NODES_PER_OCTAVE, SHORT_STRIDE)
DEPLOYMENTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dense": ("llama-3.1-8b", "h100-sxm", {}),
    "fp8, tensor parallel": (
        "llama-3.1-70b", "h100-sxm", {"tp": 4, "weights": "fp8", "engine": "trtllm"}
    ),
    "latent attention, experts": (
        "deepseek-r1", "h200-sxm", {"tp": 8, "weights": "fp8", "engine": "sglang"}
    ),
    "as stored": ("deepseek-r1", "h200-sxm", {"tp": 8}),
    "shared latents": ("deepseek-r1", "h200-sxm", {"tp": 8, "dcp": 4}),
    "recurrent layers": ("jamba-v0.1", "h100-sxm", {"tp": 4}),
    "windows": ("gpt-oss-120b", "h100-sxm", {"tp": 2}),
    "host-bound": ("llama-3.1-8b", "h100-sxm", {"engine": "eager-2023"}),
    "drafting": (
        "deepseek-r1", "h200-sxm", {"tp": 8, "weights": "fp8", "speculation": MTP}
    ),
    "stated drafts": ("llama-3.1-8b", "h100-sxm", {"speculation": STATED}),
}  # fmt: skip
ALL = pytest.mark.parametrize("name", DEPLOYMENTS)
SOME = pytest.mark.parametrize(
    "name", ["dense", "fp8, tensor parallel", "windows", "stated drafts"]
)
BEYOND_GRAPHS = 600
"""Sequences: vLLM captures graphs up to 512."""


@cache
def case(name: str) -> Served:
    model, hardware, settings = DEPLOYMENTS[name]
    return served(model, hardware, Deployment(**settings))


@cache
def tables(name: str) -> TabulatedSteps:
    return TabulatedSteps(case(name).pricer, LONGEST)


def decode_s(pricer: Pricer, sequences: int, context: float) -> float:
    """A decode step from the groups as they are defined."""
    n = float(sequences)
    seconds = pricer.fixed(n) + pricer.decoding(n, context / n)
    return float((1 + (pricer.stated_draft or 0)) * max(float(seconds), pricer.floor_s))


def mixed_s(
    pricer: Pricer, sequences: int, context: float, chunks: list[Chunk], ended: int
) -> float:
    """A step with prompts: every chunk's attention as one of so many like it."""
    rows = sequences * pricer.width
    tokens = float(rows + sum(new for new, _ in chunks))
    seconds = float(
        pricer.exposed(*pricer.shared(tokens)) + pricer.serial_s(sequences + len(chunks))
    )
    if rows + ended:
        seconds += float(pricer.head(float(rows + ended)))
    new, cached = chunks[0]
    assert all(chunk == chunks[0] for chunk in chunks)
    seconds += float(pricer.prompts(float(len(chunks)), float(new), float(cached)))
    if sequences:
        seconds += float(pricer.decoding(float(sequences), context / sequences))
    seconds = max(seconds, pricer.floor_s)
    beyond, *issue_s = pricer.issued_ahead()
    if tokens > beyond:
        seconds = max(seconds, issue_s[sequences > 0])
    drafts = decode_s(pricer, sequences, context) if sequences else 0.0
    stated = pricer.stated_draft or 0.0
    return seconds + drafts * stated / (1 + stated)


def drawn(seed: int) -> tuple[int, float, int, int, int, int]:
    """Sequences, their context in all, and prompts: count, tokens, cached tokens, ends."""
    rng = random.Random(seed)  # noqa: S311
    sequences = rng.choice([1, 7, rng.randint(1, 256), BEYOND_GRAPHS])
    each = math.exp(rng.uniform(math.log(20), math.log(30_000)))
    count = rng.choice([1, 1, 2, 5])
    new = rng.randint(16, 4096 // count)
    cached = rng.choice([0, 0, int(math.exp(rng.uniform(3, 10)))])
    return sequences, each * sequences, count, new, cached, rng.randint(0, count)


@ALL
def test_interpolation_stays_within_a_hundredth(name):
    times, pricer = tables(name), case(name).pricer
    for seed in range(5):
        sequences, context, count, new, cached, ended = drawn(seed)
        expected = decode_s(pricer, sequences, context)
        assert times.decode(sequences, context) == pytest.approx(expected, rel=0.01)
        chunks = [(new, cached)] * count
        for beside in (0, sequences):
            told = times.mixed(beside, context if beside else 0.0, chunks, ended)
            expected = mixed_s(pricer, beside, context, chunks, ended)
            assert told == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("model", "hardware", "settings", "window"),
    [
        ("mistral-7b-v0.1", "h100-sxm", {"tp": 2}, 4096),
        ("llama-4-scout-17b-16e", "b200-sxm",
         {"tp": 4, "weights": "int8", "engine": "vllm-2024"}, 8192),
    ],
)  # fmt: skip
def test_nothing_is_drawn_across_a_switch_of_kernels(model, hardware, settings, window):
    """A window that begins to cut, and a chunk of positions that begins, change the kernel."""
    pricer = served(model, hardware, Deployment(**settings)).pricer
    times, arrays = TabulatedSteps(pricer, LONGEST), PricedArrays(pricer, LONGEST)
    chunked = any(getattr(layer.mixer, "chunked", False) for layer in pricer.model.layers)
    at = [window * turn for turn in ((1, 2, 3) if chunked else (1,))]
    steps = []
    for cached in [value + by for value in at for by in (-60, -1, 0, 60)]:
        steps.append(times.decode(64, 64.0 * cached))
        assert steps[-1] == pytest.approx(decode_s(pricer, 64, 64.0 * cached), rel=0.005)
        told = arrays.decode(np.array([64.0]), np.array([float(cached)]))
        assert told[0] == pytest.approx(steps[-1], rel=1e-12)
        chunk = (100, cached - 100)  # its last token is the first that the window cuts
        expected = mixed_s(pricer, 0, 0.0, [chunk], 1)
        assert times.mixed(0, 0.0, [chunk], 1) == pytest.approx(expected, rel=0.005)
    assert abs(steps[2] / steps[1] - 1) > 0.05  # so that the test can fail


def test_stairs_of_key_blocks_are_followed():
    """FlashAttention-2 on an A100: a call over 513 keys takes a tenth more than over 512."""
    deployment = Deployment(tp=4, engine="trtllm-2025")
    pricer = served("gemma-2-9b", "a100-sxm-80gb", deployment).pricer
    times = TabulatedSteps(pricer, LONGEST)
    steps = [times.decode(2, 2.0 * each) for each in (500, 511, 512, 515)]
    expected = [decode_s(pricer, 2, 2.0 * each) for each in (500, 511, 512, 515)]
    assert steps == pytest.approx(expected, rel=0.005)
    assert steps[2] / steps[1] > 1.01  # so that the test can fail
    for cached in (184, 191, 192, 200):
        expected_s = mixed_s(pricer, 0, 0.0, [(1, cached)] * 5, 2)
        assert times.mixed(0, 0.0, [(1, cached)] * 5, 2) == pytest.approx(expected_s, rel=0.008)


def test_contexts_beyond_what_a_model_was_made_for_are_evaluated():
    pricer = case("dense").pricer
    times = TabulatedSteps(pricer, 2048, 65_536)
    for each in (3000.0, 60_000.0):
        assert times.decode(8, 8 * each) == pytest.approx(decode_s(pricer, 8, 8 * each), rel=0.01)


def test_a_step_of_prompts_alone_launches_fewer_kernels():
    """gpt-2 issued ahead: beside decoding sequences each layer has one attention kernel more."""
    made = served("gpt-2", "mi300x", Deployment(weights="int8", engine="sglang"))
    _, alone, beside = made.pricer.issued_ahead()
    issue_s = made.pricer.device.issue_s("eager")
    assert (beside - alone) / issue_s == pytest.approx(12)
    whole = estimate(made.model, made.hardware, Workload(prompt=33), made.plan.deployment)
    assert float(whole.ttft_s) == pytest.approx(alone)  # the kernels themselves are quicker
    assert made.engine.times.mixed(0, 0.0, [(33, 0)], 1) == pytest.approx(alone)


@SOME
def test_nodes_are_exact(name):
    times, pricer = tables(name), case(name).pricer
    for sequences in (3, BEYOND_GRAPHS):
        for each in NODES[[3, 90]].tolist():
            expected = decode_s(pricer, sequences, each * sequences)
            assert times.decode(sequences, each * sequences) == pytest.approx(expected, rel=1e-12)


@ALL
def test_steps_that_decode_are_linear_up_to_the_next_node(name):
    times = tables(name)
    for sequences, each in ((3, 30.0), (200, 1500.0), (BEYOND_GRAPHS, 9000.0)):
        start = sequences * each
        end = times.linear_up_to(sequences, start)
        assert end > start
        first, last = times.decode(sequences, start), times.decode(sequences, end)
        if first > times._stated * times.floor_s:  # the host's least time bends it
            middle = times.decode(sequences, (start + end) / 2)
            assert middle == pytest.approx((first + last) / 2, rel=1e-9)


@ALL
def test_longer_contexts_take_longer(name):
    """But for kernels that switch: a step of a longer context is never 2 % shorter."""
    times = tables(name)
    for sequences in (2, 200):
        steps = [times.decode(sequences, sequences * each) for each in NODES[16:].tolist()]
        longest = np.maximum.accumulate(steps)
        assert np.all(np.asarray(steps) >= 0.98 * longest)
        assert steps[-1] >= steps[0]


@pytest.mark.parametrize(
    "name", [name for name in DEPLOYMENTS if name not in {"drafting", "stated drafts"}]
)
def test_groups_add_up_to_the_whole_step(name):
    """`inference.mixed` prices a product over all rows as no faster than over a part of them."""
    made = case(name)
    times, plan, pricer = tables(name), made.plan, made.pricer
    for seed in range(3):
        sequences, context, _, new, cached, _ = drawn(seed)
        each = float(round(context / sequences))
        parts = [made_step(plan, "decode", float(sequences), 1, each)]
        whole = step_cost(pricer.model, plan, pricer.device, pricer.host, parts)
        told = times.decode(sequences, sequences * each)
        assert told == pytest.approx(float(whole.total.time_s), rel=0.01)
        parts.append(made_step(plan, "prefill", 1.0, float(new), float(cached)))
        whole = step_cost(pricer.model, plan, pricer.device, pricer.host, parts)
        told = times.mixed(sequences, sequences * each, [(new, cached)], 1)
        expected = float(whole.total.time_s)
        assert 0.93 * expected < told < 1.01 * expected


@SOME
def test_arrays_are_the_tables(name):
    times, arrays = tables(name), PricedArrays(case(name).pricer, LONGEST)
    counts = np.array([1.0, 5.0, 64.0, BEYOND_GRAPHS])
    each = np.array([100.0, 3000.0, 700.0, 2048.0])
    new, cached = np.array([512.0, 200.0, 1000.0, 40.0]), NODES[[0, 70, 80, 0]]
    one = np.ones(4)
    decodes = arrays.decode(counts, each)
    mixes = arrays.mixed(counts, each, new, arrays.attention(one, new, cached), one)
    for i, n in enumerate(counts.astype(int).tolist()):
        assert decodes[i] == pytest.approx(times.decode(n, n * each[i]), rel=1e-12)
        told = times.mixed(n, n * each[i], [(int(new[i]), int(cached[i]))], 1)
        assert mixes[i] == pytest.approx(told, rel=0.01)  # tables round lengths up, arrays don't
    assert np.all(arrays.mixed(counts, each, 0 * new, 0 * new, 0 * one) == decodes)
    # Between whole numbers of sequences, between their times.
    between = arrays.decode(np.array([5.25]), each[1:2])
    ends = arrays.decode(np.array([5.0, 6.0]), each[[1, 1]])
    assert between[0] == pytest.approx(0.75 * ends[0] + 0.25 * ends[1], rel=1e-12)


def test_one_replica_in_lockstep_is_alone():
    times = tables("dense")
    one = LockstepSteps(times, 1)
    chunks = [(300, 0), (900, 128)]
    for sequences in (1, 17, 200):
        context = 1000.0 * sequences
        share = Share(sequences, context, tuple(chunks), 1)
        assert one.decode([share]) == times.decode(sequences, context)
        steps, _, last = one.stretch([share], 10**6)
        reach = times.linear_up_to(sequences, context)
        assert context + (steps - 1) * sequences <= reach < context + steps * sequences
        assert last == times.decode(sequences, context + (steps - 1) * sequences)
        told = one.mixed([share])
        assert told == pytest.approx(times.mixed(sequences, context, chunks, 1), rel=1e-12)


def test_two_in_lockstep_are_the_fuller_one():
    times, pricer = tables("dense"), case("dense").pricer
    two, arrays = LockstepSteps(times, 2), LockstepArrays(PricedArrays(pricer, LONGEST), 2)
    # 5 sequences: 3 on one rank, each of 800 tokens.
    assert two.decode([Share(2, 1600.0), Share(3, 2400.0)]) == times.decode(3, 2400.0)
    told = arrays.decode(np.array([5.0]), np.array([800.0]))
    assert told[0] == pytest.approx(times.decode(3, 2400.0), rel=1e-12)
