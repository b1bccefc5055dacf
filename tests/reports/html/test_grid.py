"""The grid: its stops, and that each setting is what `estimate` says of it alone."""

import numpy as np
import pytest

import perfmodel
from perfmodel.specs.speculation import Speculation
from reports.html.grid import Grid, make_grid
from tests.reports.html.made import case, llama, too_large

MTP = Speculation(method="mtp", tokens=2, acceptance=(0.9, 0.7))
CASES = {
    "one GPU": {},
    "all to all": {
        "model": "deepseek-v3", "hardware": "h200-sxm", "work": {"batch": 16, "prompt": 512},
        "deployment": {"tp": 8, "ep": 8, "speculation": MTP},
    },
    "micro-batches": {
        "model": "mixtral-8x7b", "hardware": "a100-sxm-80gb", "work": {"batch": 8},
        "deployment": {"tp": 2, "pp": 2, "pp_microbatches": 2},
    },
    "cached prefix in chunks, replicas": {
        "work": {"batch": 6, "prompt": 900, "cached_prefix": 300, "prefill_chunk": 256},
        "deployment": {"dp": 2},
    },
    "a batch beyond the engine's limit": {
        "hardware": "a100-sxm-80gb", "work": {"batch": 300, "prompt": 100, "output": 20},
    },
    "stated length": {"deployment": {"kv_layout": "contiguous", "max_model_len": 4096}},
    "the bare roof": {"roofline_only": True},
    "one token": {"work": {"batch": 2, "prompt": 300, "output": 1}},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_setting_is_what_an_estimate_of_it_alone_says(name):
    asked = case(**CASES[name])
    grid = make_grid(asked, asked.estimate())
    rng = np.random.default_rng(0)
    picked = {grid.asked, *rng.choice(grid.size, min(3, grid.size), replace=False).tolist()}
    for setting in picked:
        alone = perfmodel.estimate(
            asked.model, asked.hardware, asked.at(*grid.at(setting)), asked.deployment,
            roofline_only=asked.roofline_only,
        )  # fmt: skip
        _same(grid, setting, alone)


def _same(grid: Grid, setting, alone):
    def of(get):
        return grid.values(get)[setting]

    def near(value):
        return pytest.approx(value, rel=1e-9, nan_ok=True)

    for name in ("ttft_s", "tpot_s", "total_s", "output_tokens_per_s"):
        assert of(lambda e, name=name: getattr(e, name)) == near(float(getattr(alone, name)))
        ends = [end[setting] for end in grid.interval(name)]
        assert ends == [near(float(end)) for end in alone.interval(name)]
    for name in ("weights", "kv", "activation", "reserved", "required"):
        get = f"{name}_bytes"
        assert of(lambda e, get=get: getattr(e.memory, get)) == near(getattr(alone.memory, get))
    assert of(lambda e: e.memory.fits) == alone.memory.fits
    assert of(lambda e: e.memory.max_sequences) == alone.memory.max_sequences
    assert of(lambda e: e.memory.max_context) == alone.memory.max_context
    for phase in ("prefill", "decode"):
        marks = grid.marks(phase)[setting]
        assert sum(m.time_s for m in marks) == near(float(getattr(alone, phase).time_s))


def test_stops_are_powers_of_two_to_what_fits_and_to_the_models_length():
    grid = llama().grid
    # 182 sequences of 2,048 + 256 tokens fit: the first power of two that doesn't is 256.
    assert llama().answer.memory.max_sequences == 182
    assert grid.batches == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    # The model was made for 131,072 tokens, of which 256 are the output's.
    assert grid.prompts == (*(2**power for power in range(7, 17)), 131_072 - 256)
    assert grid.at(grid.asked) == (8, 2048)


def test_what_was_asked_for_is_a_stop_of_its_own():
    asked = case(work={"batch": 5, "prompt": 777})
    grid = make_grid(asked, asked.estimate())
    assert 5 in grid.batches
    assert 777 in grid.prompts
    assert grid.at(grid.asked) == (5, 777)
    assert list(grid.batches) == sorted(set(grid.batches))
    assert list(grid.prompts) == sorted(set(grid.prompts))


def test_prompts_that_no_batch_fits_at_end_the_grid():
    grid = too_large().grid
    assert not grid.fits().any()
    assert grid.prompts[-1] == 2048  # what was asked for


def test_rules_of_the_layout_leave_stops_out():
    asked = case(**CASES["micro-batches"])
    # Two micro-batches need two sequences.
    assert make_grid(asked, asked.estimate()).batches[0] == 2
    asked = case(work={"batch": 4, "prompt": 2000, "cached_prefix": 1000})
    assert make_grid(asked, asked.estimate()).prompts[0] == 1024


def test_lines_run_along_one_axis():
    grid = llama().grid
    over_batch = [grid.at(setting) for setting in grid.line(grid.asked, "batch")]
    assert over_batch == [(batch, 2048) for batch in grid.batches]
    over_prompt = [grid.at(setting) for setting in grid.line(grid.asked, "prompt")]
    assert over_prompt == [(8, prompt) for prompt in grid.prompts]
