"""FlashAttention by name: tiles by direct count, shares by hand, and where it is refused."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.kernels.calibration import load_calibration
from perfmodel.kernels.choice import choose_calibration
from perfmodel.kernels.flash import (
    PUBLISHED,
    check_flash,
    missed_share,
    read_again_bytes,
    reread_bytes,
    streamed_keys,
)
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.record import Attention
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.loading import load_model


def prefill(new, cached=0, heads=32, kv_heads=8, sequences=1, **changes):
    pairs = new * cached + new * (new + 1) / 2
    op = Attention(
        name="attention", phase="prefill", sequences=sequences, queries=new, keys=new + cached,
        pairs=pairs, context=new + cached, heads=heads, kv_heads=kv_heads, qk_dim=128,
        value_dim=128, key_bytes=kv_heads * 512.0,
    )  # fmt: skip
    return dataclasses.replace(op, **changes)


def device(name, attention=None, calibrated=True):
    hardware = load_hardware(name)
    choice = choose_calibration(hardware) if calibrated else None
    return DeviceModel(hardware, load_calibration(), "graph", choice, attention)


@given(st.integers(1, 3000), st.integers(0, 3000), st.sampled_from([64, 128, 192]))
def test_streamed_keys_are_those_of_a_loop_over_the_tiles(new, cached, tile):
    tiles = math.ceil(new / tile)
    loop = sum(min(cached + (t + 1) * tile, cached + new) for t in range(tiles))
    assert streamed_keys(new, cached, tile, None) == loop


def test_reads_by_hand_and_as_the_paper_scales():
    """1,024 tokens, 32 heads on 8: flash2's 8 tiles of 128 stream 128 + … + 1,024 = 4,608 keys of
    512 B in each query head; flash3 packs 4 heads, 32 tiles of 32 queries: 32·33/2·32 = 16,896
    keys in each KV head. Keys and values once are 1,024 · 8 · 512 B.
    """
    op, h100 = prefill(1024), load_hardware("h100-sxm")
    once = 1024 * 8 * 512
    assert read_again_bytes(op, "flash2", h100) == 32 * 4608 * 512 - once
    assert read_again_bytes(op, "flash3", h100) == 8 * 16_896 * 512 - once
    # Θ(N²): four times the reads for twice the tokens
    ratio = read_again_bytes(prefill(2**16), "flash2", h100) / read_again_bytes(
        prefill(2**15), "flash2", h100
    )
    assert ratio == pytest.approx(4, rel=0.01)


def test_l2_serves_what_it_holds():
    """H100, 50 MB: at 8,192 tokens a KV head is 4.2 MB, and 256 blocks fill 132 SMs: one in flight.

    At 2¹⁷ tokens it is 67.1 MB, of which L2 misses 1 − 50/67.1.
    """
    h100 = load_hardware("h100-sxm")
    assert missed_share(prefill(8192), "flash2", h100) == 0
    assert reread_bytes(prefill(8192), "flash2", h100) == 0
    long = prefill(2**17)
    assert missed_share(long, "flash2", h100) == pytest.approx(1 - 50e6 / (2**17 * 512))
    assert reread_bytes(long, "flash2", h100) > 0
    assert reread_bytes(dataclasses.replace(long, phase="decode"), "flash2", h100) == 0


def test_the_measured_kernel_is_what_its_name_gives():
    for name, kernel in (("h100-sxm", "flash3"), ("a100-sxm-80gb", "flash2")):
        ours, fused = device(name, kernel).time(prefill(4096)), device(name).time(prefill(4096))
        assert ours.time_s == fused.time_s
        assert ours.source == "fitted"


def test_the_other_kernel_takes_the_ratio_of_published_shares_longer():
    fused = device("h100-sxm").time(prefill(8192))
    older = device("h100-sxm", "flash2").time(prefill(8192))
    ratio = PUBLISHED["flash3", "9.0"].share / PUBLISHED["flash2", "9.0"].share
    assert older.time_s == pytest.approx(ratio * fused.time_s)
    assert "published" in older.source
    assert older.high_s / older.time_s > fused.high_s / fused.time_s
    decode = dataclasses.replace(prefill(1, 4096), phase="decode")
    assert (
        device("h100-sxm", "flash2").time(decode).time_s == device("h100-sxm").time(decode).time_s
    )


def test_a_published_share_prices_what_wasnt_measured():
    """4·32·128 FLOPs a pair at 0.73 of 312 TFLOP/s, and the launch in a graph."""
    op = prefill(8192)
    time = device("a100-sxm-80gb", "flash2", calibrated=False).time(op)
    assert time.time_s == pytest.approx(op.flops / (0.73 * 312e12) + 1.5e-6)
    assert time.source == "published share"
    assert device("rtx-3090", "flash2").time(op).source == "assumed"


def test_all_kernels_compute_the_same_and_unfused_moves_the_scores_too():
    """Four passes of 2 B over 32 heads · 1,024 queries · 1,024 keys."""
    fused, unfused = prefill(1024), prefill(1024, fused=False)
    assert fused.flops == unfused.flops
    assert unfused.bytes - fused.bytes == 4 * 2 * 32 * 1024 * 1024


def test_arrays_give_what_numbers_give():
    many = device("h100-sxm", "flash2").time(
        prefill(np.array([1024.0, 8192.0]), sequences=np.array([1.0, 4.0]))
    )
    for index, (new, sequences) in enumerate(((1024, 1), (8192, 4))):
        one = device("h100-sxm", "flash2").time(prefill(new, sequences=sequences))
        assert np.asarray(many.time_s)[index] == pytest.approx(one.time_s)


@pytest.mark.parametrize(
    ("kernel", "hardware", "says"),
    [
        ("flash3", "a100-sxm-80gb", "Hopper"),
        ("flash3", "b200-sxm", "Hopper"),
        ("flash3", "t4", "fused would do"),
        ("flash2", "v100-sxm-32gb", "8.0"),
        ("flash2", "m1-max", "no CUDA device"),
    ],
)
def test_refused_where_it_doesnt_run(kernel, hardware, says):
    with pytest.raises(InputError, match=says) as caught:
        check_flash(load_model("llama-2-7b"), load_hardware(hardware), kernel)
    assert f"--attention {kernel}" in str(caught.value)


def test_runs_where_it_should():
    for kernel, name in (("flash3", "h200-sxm"), ("flash2", "mi300x"), ("flash2", "l4")):
        check_flash(load_model("llama-2-7b"), load_hardware(name), kernel)


def test_wide_heads_are_refused():
    wide = load_model("llama-2-7b")
    mixer = wide.layers[0].mixer.model_copy(update={"head_dim": 512})
    layer = wide.layers[0].model_copy(update={"mixer": mixer})
    changed = wide.model_copy(update={"layers": (layer,)})
    h100 = load_hardware("h100-sxm")
    with pytest.raises(InputError, match="256"):
        check_flash(changed, h100, "flash2")
