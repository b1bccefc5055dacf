"""Fusion levels: bytes and launches by hand, and their order over random models."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.kernels.calibration import load_calibration
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.context import Step
from perfmodel.operators.format_bytes import Formats, Product
from perfmodel.operators.step import step_operators
from perfmodel.specs.formats import FORMATS
from perfmodel.specs.hardware import load_hardware
from tests.operators.strategies import models
from tests.operators.support import model

FP8 = Product(FORMATS["fp8"], FORMATS["fp8"], "fp8")
QUANTISED = Formats(roles={"linear": FP8, "expert": FP8})
LEVELS = ("full", "engine", "none")
DEVICE = DeviceModel(load_hardware("h100-sxm"), load_calibration())


def rows(name, level, formats=QUANTISED, new=1):
    step = Step("decode", 1, new, 100)
    operators = step_operators(model(name), step, formats, fusion=level)
    return {operator.name: operator for operator in operators}


def moved(operator):
    return operator.activation_bytes


def test_passes_of_llama_by_hand():
    """Llama-3.1-8B: hidden 4,096, 32 query and 8 KV heads of 128, feed-forward 14,336.

    Bytes of one token; bf16 rows are 8,192 B, queries 8,192, keys or values 2,048.
    """
    none, engine, full = (rows("llama-3.1-8b", level) for level in ("none", "engine", "full"))
    assert moved(engine["norm_residual"]) == 4 * 8192
    assert (moved(none["residual"]), moved(none["norm"])) == (3 * 8192, 2 * 8192)
    assert "residual" not in engine
    assert moved(engine["ffn.activation"]) == 3 * 28_672
    assert moved(none["ffn.activation.function"]) == 2 * 28_672
    # quantised in the same pass: 14,336 B out, and no pass of its own
    assert moved(full["ffn.activation"]) == 2 * 28_672 + 14_336
    assert moved(engine["ffn.down_proj.quantise"]) == 28_672 + 14_336
    assert "ffn.down_proj.quantise" not in full
    # the norm's kernel quantises too; attention's output is read again
    assert moved(full["qkv_proj.quantise"]) == 4096
    assert full["qkv_proj.quantise"].part_of == "joined"
    assert moved(full["o_proj.quantise"]) == moved(engine["o_proj.quantise"]) == 8192 + 4096
    # rotary: queries and keys in and out; joined, keys go to the cache
    assert moved(engine["rotary"]) == 2 * (8192 + 2048)
    assert moved(engine["kv_write"]) == 4096 + 4096
    assert moved(full["rotary"]) == 8192 + 2048 + 8192
    assert moved(full["kv_write"]) == 2048 + 4096
    assert full["kv_write"].part_of == "joined"


def test_norms_of_queries_and_keys_are_in_the_one_kernel():
    """Qwen3-8B: queries 8,192 B, keys and values 2,048 B each."""
    full = rows("qwen3-8b", "full", Formats())
    assert "rotary" not in full
    assert moved(full["qk_norm"]) == 8192 + 2048 + 8192
    assert moved(full["kv_write"]) == 2048 + 4096


@settings(deadline=None, max_examples=60)
@given(models(), st.booleans(), st.integers(1, 64), st.sampled_from(["prefill", "decode"]))
def test_levels_are_ordered_in_bytes_and_time_and_equal_in_flops(drawn, quantised, new, phase):
    step = Step(phase, 2, new if phase == "prefill" else 1, 30)
    formats = QUANTISED if quantised else Formats()
    bytes_, flops, launches, times = [], [], [], []
    for level in LEVELS:
        operators = step_operators(drawn, step, formats, fusion=level)
        kernels = [(op.count, DEVICE.time(op)) for op in operators]
        bytes_.append(sum(op.count * op.bytes for op in operators))
        flops.append(sum(op.count * op.flops for op in operators))
        launches.append(sum(count * kernel.launches for count, kernel in kernels))
        times.append(sum(count * kernel.time_s for count, kernel in kernels))
    assert flops[0] == pytest.approx(flops[1], rel=1e-12)
    assert flops[1] == pytest.approx(flops[2], rel=1e-12)
    for values in (bytes_, launches, times):
        assert values[0] <= values[1] * (1 + 1e-12)
        assert values[1] <= values[2] * (1 + 1e-12)
