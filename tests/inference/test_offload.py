"""What lies outside the device: bytes and time of a step, memory, and swapping a sequence."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.inference.offload import Offload, Transfer
from perfmodel.inference.swap import swap, swap_pays
from perfmodel.units import GIB
from tests.inference.kv_case import CACHED, SMALL, TOKEN, case, profile, same, times

# --- offload -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v2-lite", "qwen3-next-80b-a3b"])
def test_nothing_offloaded_is_the_plain_case(name):
    fields = {"batch": 3, "prompt": 500, "output": 4, "roof": False}
    offloaded = case(name, kv_offload=0.0, cpu_offload_gb=0.0, offload_overlap=0.7, **fields)
    same(offloaded, case(name, **fields))


def test_bytes_and_time_of_an_offloaded_step():
    """Llama-3.1-8B, 8 sequences at 1,000 tokens, half their cache over 64 GB/s: in
    8·1,000·65,536 B, out 8·65,536 B at once, so 8.192 ms beside the step's own time.
    """
    plain = case("llama-3.1-8b", batch=8, prompt=1000, output=2)
    moved = 8 * 1000 * TOKEN / 2
    seconds = moved / 64e9
    for overlap, added in ((0.0, seconds), (0.25, None), (1.0, None)):
        found = case("llama-3.1-8b", batch=8, prompt=1000, output=2, kv_offload=0.5,
                     offload_overlap=overlap)  # fmt: skip
        step, own = found.decode().total, plain.decode().total
        assert step.wire_bytes == moved + 8 * TOKEN / 2
        hidden = overlap * min(seconds, own.time_s)
        assert step.time_s == pytest.approx(own.time_s + seconds - hidden)
        if added is not None:
            assert step.time_s == pytest.approx(own.time_s + added)
    both = case("llama-3.1-8b", batch=8, prompt=1000, output=2, kv_offload=0.5, offload_overlap=1.0)
    longer = max(seconds, plain.decode().total.time_s)
    assert both.decode().total.time_s == pytest.approx(longer)


def test_an_ssd_is_as_fast_as_stated_and_no_faster_than_the_link():
    fields: dict[str, Any] = {"batch": 8, "prompt": 1000, "output": 2, "kv_offload": 1.0}
    plain = case("llama-3.1-8b", batch=8, prompt=1000, output=2).decode().total.time_s
    for stated, rate in ((8.0, 8e9), (640.0, 64e9)):
        found = case("llama-3.1-8b", kv_offload_to="ssd", ssd_gb_s=stated, **fields)
        added: Any = found.decode().total.time_s - plain
        assert added == pytest.approx(8 * 1000 * TOKEN / rate)


def test_memory_of_an_offloaded_cache():
    """Half of 8·1,008 tokens stays, and of the other half two layers of 32 are in flight."""
    m = case("llama-3.1-8b", batch=8, prompt=1000, output=8, kv_offload=0.5).memory()
    whole = 8 * 1008 * TOKEN
    assert m.kv_bytes == whole * (0.5 + 0.5 * 2 / 32)
    assert m.kv_outside_bytes == whole / 2


def test_offloaded_weights_are_read_in_each_pass():
    """4 GiB of weights: off the device, and 4 GiB / 64 GB/s in each of four chunks and a step."""
    fields = {"prompt": 1000, "output": 2, "prefill_chunk": 250}
    plain, away = (case("llama-3.1-8b", cpu_offload_gb=gib, **fields) for gib in (0.0, 4.0))
    assert plain.memory().weights_bytes - away.memory().weights_bytes == 4 * GIB
    assert away.memory().weights_outside_bytes == 4 * GIB
    once = 4 * GIB / 64e9
    for before, after, passes in (
        (plain.prefill().total, away.prefill().total, 4),
        (plain.decode().total, away.decode().total, 1),
    ):
        assert after.time_s - before.time_s == pytest.approx(passes * once)
    everything = case("llama-3.1-8b", cpu_offload_gb=1000.0).memory()
    assert everything.weights_bytes == 0
    assert everything.weights_outside_bytes == 2 * 8_030_261_248


def test_offload_makes_a_long_context_fit():
    fields = {"batch": 4, "prompt": 120_000, "output": 100}
    assert not case("llama-3.1-8b", **fields).memory().fits
    assert case("llama-3.1-8b", kv_offload=0.5, **fields).memory().fits


@settings(max_examples=12, deadline=None)
@given(
    CACHED, st.integers(1, 64), st.integers(1, 4000), st.floats(0, 1), st.floats(0, 1),
    st.floats(0, 20), st.floats(0, 1), st.integers(1, 2),
)  # fmt: skip
def test_offload_is_never_faster_and_never_larger(name, batch, prompt, a, b, gib, overlap, pp):
    fields = {"batch": batch, "prompt": prompt, "output": 3, "offload_overlap": overlap, "pp": pp}
    low, high = sorted((a, b))
    runs = [case(name, kv_offload=share, **fields) for share in (0.0, low, high)]
    runs.append(case(name, kv_offload=high, cpu_offload_gb=gib, **fields))
    for less, more in pairwise(runs):
        for before, after in zip(times(less), times(more), strict=True):
            assert after >= before * (1 - 1e-12)
        assert more.memory().kv_bytes <= less.memory().kv_bytes * (1 + 1e-12)
        assert more.memory().max_sequences >= less.memory().max_sequences


@pytest.mark.parametrize("overlap", [0.0, 0.3, 1.0])
def test_what_a_transfer_adds(overlap):
    """10 B in and 4 out at 2 B/s, 3 of weights at 1 B/s: 8 s, of which a step of 6 hides 6."""
    offload = Offload(kv_share=1.0, kv_rate=2.0, weights_bytes=3.0, weights_rate=1.0,
                      overlap=overlap)  # fmt: skip
    transfer = Transfer(offload, 10.0, 4.0, 3.0)
    assert transfer.time_s == 8
    assert transfer.added_s(6.0) == 8 - overlap * 6


# --- swapping a sequence -----------------------------------------------------------------------


def test_bringing_back_against_computing_again_by_hand():
    """Llama-3.1-8B on 100 TFLOP/s with so much memory bandwidth that little but arithmetic counts.

    n tokens need 13.9586e9·n + 262,144·n(n + 1) FLOPs, and come back over r B/s in 131,072·n/r.
    At r = 0.8e9 that is 163.84 µs a token against 139.586 + 2.62e-3·(n + 1): equal at n = 9,251,
    from where on bringing back is faster; and for a single token, which reads all weights.
    """
    fast = profile(80, memory={"capacity_gb": 80.0, "bandwidth_gb_s": 50_000.0})
    found = case("llama-3.1-8b", on=fast)
    body = 2 * 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14_336)
    n = (131_072 / 0.8e9 * 100e12 - body) / 262_144 - 1
    assert round(n) == 9251
    short, (first, last) = swap_pays(*found.context, 0.8e9, 20_000)
    assert short == (1, 1)
    assert last == 20_000
    # Traffic between the products adds to computing, and moves the crossing to fewer tokens.
    point = swap(*found.context, 0.8e9, first)
    before = swap(*found.context, 0.8e9, first - 1)
    assert point.swap_s <= point.recompute_s
    assert before.swap_s > before.recompute_s
    traffic = before.recompute_s - (body * (first - 1) + 262_144 * (first - 1) * first) / 100e12
    shift = traffic / (first - 1) * 100e12 / 262_144
    assert first == pytest.approx(n - shift, rel=2e-3)
    assert 0 < shift < 0.2 * n


def test_over_a_fast_link_bringing_back_always_pays():
    found = case("llama-3.1-8b", roof=False)
    assert swap_pays(*found.context, 64e9, 100_000) == [(1, 100_000)]
    one = swap(*found.context, 64e9, 5000)
    assert one.bytes == 5000 * TOKEN
    assert one.swap_s == pytest.approx(5000 * TOKEN / 64e9)


def test_states_are_brought_back_too():
    found = case("qwen3-next-80b-a3b", tp=2)
    growth = swap(*found.context, 64e9, 2000).bytes - swap(*found.context, 64e9, 1000).bytes
    state = swap(*found.context, 64e9, 1000).bytes - growth
    assert growth == 1000 * 12 * 2 * 1 * 256 * 2
    assert state == (36 * 16 * 128 * 128 + 36 * 4096 * 3) * 2


def test_a_device_without_a_way_to_the_host():
    for fields in ({"kv_offload": 0.5}, {"cpu_offload_gb": 1.0}):
        with pytest.raises(InputError, match="pcie"):
            case("llama-3.1-8b", on=SMALL, **fields)
