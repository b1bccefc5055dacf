"""Shared prefixes, eviction, offload and swapping: limits, signs, and values by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.inference.estimate import estimate
from perfmodel.inference.kv_report import kv_report
from perfmodel.inference.memory import Memory
from perfmodel.inference.offload import Offload, Transfer
from perfmodel.inference.phase import Cost
from perfmodel.inference.swap import swap, swap_pays
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.workload import Workload
from perfmodel.units import GIB
from tests.inference.kv_case import Case, case

TOKEN = 131_072  # Llama-3.1-8B: 2·32 layers·8 KV heads·128·2 B
NAMES = st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "gemma-3-1b"])
CACHED = st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "qwen3-next-80b-a3b"])


def same(a: Case, b: Case) -> None:
    """Times and memory of two cases are equal to the last bit."""
    assert a.prefill() == b.prefill()
    assert a.decode_all() == b.decode_all()
    assert a.memory() == b.memory()


def without_longest(memory: Memory) -> Memory:
    """All but the longest context, which a bounded cache doesn't bound."""
    return replace(memory, max_context=0)


def times(found: Case) -> tuple[Any, Any]:
    return found.prefill().total.time_s, found.decode_all().time_s


# --- shares of a common prefix -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v2-lite", "qwen3-next-80b-a3b"])
@pytest.mark.parametrize("chunk", [None, 300])
def test_a_share_of_none_or_all_is_the_plain_case(name, chunk):
    fields = {"batch": 4, "prompt": 1000, "output": 8, "prefill_chunk": chunk, "roof": False}
    none, all_ = (
        case(name, cached_prefix=600, prefix_share=share, **fields) for share in (0.0, 1.0)
    )
    same(none, case(name, **fields))
    found = case(name, cached_prefix=600, **fields)
    assert all_.prefill() == found.prefill()
    assert all_.decode_all() == found.decode_all()


def test_expected_work_of_a_share():
    """Llama-3.1-8B, a quarter of the prompts finds 600 of 1,000 tokens: 850 new ones on average,
    and pairs ¼·(400·600 + 400·401/2) + ¾·1,000·1,001/2.
    """
    rows = case("llama-3.1-8b", prompt=1000, cached_prefix=600, prefix_share=0.25).prefill()
    by_name = {row.name: row for row in rows.operators}
    assert by_name["qkv_proj"].shape["m"] == 850
    pairs = 0.25 * (400 * 600 + 400 * 401 / 2) + 0.75 * 1000 * 1001 / 2
    assert by_name["attention"].cost.flops == pytest.approx(4 * 32 * 128 * 32 * pairs)
    assert rows.total.time_s == pytest.approx(sum(row.cost.time_s for row in rows.operators))


def test_shares_may_be_an_array():
    share = np.array([0.0, 0.5, 1.0])
    together = case("gpt-oss-20b", batch=4, prompt=900, cached_prefix=512, prefix_share=share)
    for i, one in enumerate(share):
        alone = case("gpt-oss-20b", batch=4, prompt=900, cached_prefix=512, prefix_share=one)
        time: Any = together.prefill().total.time_s
        kv: Any = together.memory().kv_bytes
        assert time[i] == pytest.approx(alone.prefill().total.time_s, rel=1e-12)
        assert kv[i] == alone.memory().kv_bytes


def test_shared_blocks_are_stored_once():
    """Six sequences of 1,024 tokens, half with 600 in common: 37 blocks of 16 are whole, and the
    second and third that find them don't store them.
    """
    fields = {"batch": 6, "prompt": 1000, "output": 24, "cached_prefix": 600}
    m = case("llama-3.1-8b", prefix_share=0.5, **fields).memory()
    assert m.kv_bytes == (6 * 1024 - 2 * 592) * TOKEN
    flat = case("llama-3.1-8b", prefix_share=0.5, kv_layout="flat", **fields).memory()
    assert flat.kv_bytes == flat.kv_stored_bytes == (6 * 1024 - 2 * 600) * TOKEN
    assert case("llama-3.1-8b", **fields).memory().kv_bytes == 6 * 1024 * TOKEN


def test_a_window_leaves_less_to_share():
    """gpt-oss-20b, 2,048 B a layer and token, two sequences of 612 tokens after 600 in common: the
    last 128 hold 116 of the prefix, 7 whole blocks; full attention 37.
    """
    fields = {"batch": 2, "prompt": 608, "output": 4, "cached_prefix": 600, "prefix_share": 1.0}
    m = case("gpt-oss-20b", **fields).memory()
    assert m.kv_bytes == 2048 * 12 * (2 * 624 - 592 + 2 * 128 - 112)


@settings(max_examples=12, deadline=None)
@given(CACHED, st.floats(0.01, 1), st.integers(2, 400), st.integers(16, 3000))
def test_largest_batch_with_a_shared_prefix(name, share, extra, prefix):
    fields = {"prompt": prefix + extra, "output": 8, "cached_prefix": prefix,
              "prefix_share": share, "weights": "fp8"}  # fmt: skip

    def at(batch: Any) -> Memory:
        return case(name, on=SMALL, batch=batch, **fields).memory()

    most: Any = at(1).max_sequences
    if most == 0:
        assert not at(1).fits
        return
    assert at(most).fits
    assert not at(most + 1).fits
    assert at(most + 1).max_sequences == most


def profile(gib: float, **more: Any) -> Hardware:
    return Hardware.parse(
        {
            "schema": 1,
            "name": "made-up",
            "peaks_tflops": {"bf16": 100.0, "fp8": 200.0},
            "memory": {"capacity_gb": 1.0, "usable_gib": gib, "bandwidth_gb_s": 1000.0},
            **more,
        },
        "made-up",
    )


SMALL = profile(150)


@settings(max_examples=12, deadline=None)
@given(CACHED, st.integers(2, 3000), st.data())
def test_more_prefix_is_never_slower_nor_larger(name, prompt, data):
    first, second = sorted(data.draw(st.integers(1, prompt - 1)) for _ in range(2))
    low, high = sorted(data.draw(st.floats(0, 1)) for _ in range(2))
    fields = {"batch": 5, "prompt": prompt, "output": 2}
    runs = [case(name, cached_prefix=c, prefix_share=high, **fields) for c in (first, second)]
    less = case(name, cached_prefix=second, prefix_share=low, **fields)
    for worse, better in ((runs[0], runs[1]), (less, runs[1])):
        assert times(better)[0] <= times(worse)[0] * (1 + 1e-12)
        assert better.memory().kv_bytes <= worse.memory().kv_bytes
        assert better.memory().max_sequences >= worse.memory().max_sequences


# --- eviction ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b"])
@pytest.mark.parametrize(
    "policy", [{"kv_window": 1012}, {"kv_window": 1016, "kv_sinks": 0}, {"kv_budget": 1016}]
)
def test_room_for_the_whole_context_is_the_plain_case(name, policy):
    fields = {"batch": 3, "prompt": 1000, "output": 16, "roof": False}
    kept, plain = case(name, **policy, **fields), case(name, **fields)
    assert kept.prefill() == plain.prefill()
    assert kept.decode_all() == plain.decode_all()
    assert without_longest(kept.memory()) == without_longest(plain.memory())
    assert kept.memory().max_context == np.inf


def test_streaming_reads_sinks_and_window():
    """Llama-3.1-8B at 2,000 tokens, 4 sinks and 508 more: a decode step reads 512 keys in each of
    32 layers; the prompt's one pass attends to all of it.
    """
    found = case("llama-3.1-8b", prompt=2000, output=2, kv_window=508)
    assert found.decode().total.cache_bytes == 512 * TOKEN
    assert found.memory().kv_bytes == 512 * TOKEN
    assert found.prefill() == case("llama-3.1-8b", prompt=2000, output=2).prefill()
    chunks = case("llama-3.1-8b", prompt=2000, output=2, kv_window=508, prefill_chunk=1000)
    attended = [r.cost.flops for r in chunks.prefill().operators if r.name == "attention"]
    pairs = 1000 * 1001 / 2 + (1000 * 511 + 1000 * 1001 / 2)
    assert attended == [pytest.approx(4 * 32 * 128 * 32 * pairs)]


def test_windows_of_the_model_stay_what_they_are():
    """gpt-oss-20b: 12 layers keep 128 tokens, 12 the budget's 256 of 1,000."""
    found = case("gpt-oss-20b", batch=2, prompt=1000, output=2, kv_budget=256)
    assert found.memory().kv_bytes == 2 * 12 * 2048 * (256 + 128)
    assert found.decode().total.cache_bytes == 2 * 12 * 2048 * (256 + 128)
    assert found.prefill() == case("gpt-oss-20b", batch=2, prompt=1000, output=2).prefill()


@settings(max_examples=12, deadline=None)
@given(NAMES, st.integers(2, 5000), st.integers(1, 6000), st.integers(1, 6000), st.booleans())
def test_a_smaller_budget_is_never_larger_nor_slower(name, prompt, one, other, streams):
    flag = "kv_window" if streams else "kv_budget"
    small, large = (
        case(name, batch=8, prompt=prompt, output=4, **{flag: size})
        for size in sorted((one, other))
    )
    assert times(small)[1] <= times(large)[1] * (1 + 1e-12)
    assert small.memory().kv_bytes <= large.memory().kv_bytes
    assert small.memory().max_sequences >= large.memory().max_sequences


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


# --- the report --------------------------------------------------------------------------------


def test_the_report_repeats_the_parts():
    workload = Workload(batch=4, prompt=1000, output=24, prefill_chunk=250)
    result = estimate("gpt-oss-20b", "h100-sxm", workload)
    report = kv_report(result)
    assert report.ideal_bytes_per_sequence == 2048 * 12 * (1024 + 128)
    paged = next(use for use in report.layouts if use.layout == "paged")
    assert paged.bytes == result.memory.kv_bytes
    assert {pool.manager for pool in report.pools} == {"hybrid", "uniform"}
    chunking = report.chunking
    assert chunking is not None
    assert chunking.time_s == result.ttft_s
    assert chunking.chunks == 4
    assert chunking.mixed_step_s > chunking.decode_step_s
    # Full attention reads 250 + 500 + 750 keys again; windows of 128 their last 127, thrice.
    assert chunking.reread_bytes == 4 * 2048 * 12 * (1500 + 3 * 127)


@pytest.mark.parametrize("manager", ["hybrid", "uniform"])
def test_a_manager_decides_what_is_set_aside(manager):
    found = case("gemma-3-27b", batch=3, prompt=20_000, output=100, kv_manager=manager)
    report = kv_report(
        estimate("gemma-3-27b", "h100-sxm", found.workload, Deployment(kv_manager=manager))
    )
    pool = next(p for p in report.pools if p.manager == manager)
    assert found.memory().kv_bytes == 3 * pool.bytes_per_sequence
    ideal = case("gemma-3-27b", batch=3, prompt=20_000, output=100).memory()
    assert found.memory().kv_stored_bytes == ideal.kv_stored_bytes
    assert found.memory().kv_bytes > ideal.kv_bytes


def test_arrays_pass_through_every_lever():
    batch, prompt = np.array([[1], [8]]), np.array([900, 3000, 5000])
    levers: dict[str, Any] = {"cached_prefix": 500, "prefix_share": 0.4, "kv_offload": 0.3,
                              "offload_overlap": 0.5, "kv_manager": "hybrid",
                              "cpu_offload_gb": 2.0}  # fmt: skip
    together = case("gpt-oss-20b", batch=batch, prompt=prompt, output=5, **levers)
    total: Any = together.decode_all().time_s
    kv: Any = together.memory().kv_bytes
    most: Any = np.broadcast_to(together.memory().max_sequences, (2, 3))
    for i, j in np.ndindex(2, 3):
        one = case("gpt-oss-20b", batch=int(batch[i, 0]), prompt=int(prompt[j]), output=5, **levers)
        assert total[i, j] == pytest.approx(one.decode_all().time_s, rel=1e-12)
        assert kv[i, j] == pytest.approx(one.memory().kv_bytes, rel=1e-12)
        assert most[i, j] == one.memory().max_sequences


# --- what doesn't go together ------------------------------------------------------------------

REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "sinks alone": ("llama-3.1-8b", {"kv_sinks": 4}, "--kv-window"),
    "two policies": ("llama-3.1-8b", {"kv_window": 64, "kv_budget": 64}, "one policy"),
    "latents": ("deepseek-v3", {"kv_window": 64, "tp": 16}, "MLA"),
    "states": ("qwen3-next-80b-a3b", {"kv_budget": 64, "tp": 2}, "recurrent"),
    "a prefix of evicted tokens": (
        "llama-3.1-8b", {"kv_window": 64, "cached_prefix": 100}, "--cached-prefix"
    ),
    "a budget in chunks": (
        "llama-3.1-8b", {"kv_budget": 64, "prefill_chunk": 100}, "--prefill-chunk"
    ),
    "a pool that isn't paged": (
        "gpt-oss-20b", {"kv_manager": "hybrid", "kv_layout": "flat"}, "--kv-layout paged"
    ),
    "a pool that keeps all": (
        "gpt-oss-20b", {"kv_manager": "hybrid", "kv_window": 64}, "--kv-manager ideal"
    ),
    "one pool for states and keys": (
        "qwen3-next-80b-a3b", {"kv_manager": "uniform", "tp": 2}, "--kv-manager hybrid"
    ),
    "a shared contiguous cache": (
        "llama-3.1-8b",
        {"kv_layout": "contiguous", "cached_prefix": 100, "prefix_share": 0.5},
        "--kv-layout paged",
    ),
    "an SSD of unknown speed": (
        "llama-3.1-8b", {"kv_offload": 0.5, "kv_offload_to": "ssd"}, "--ssd-gb-s"
    ),
    "an SSD without use": ("llama-3.1-8b", {"ssd_gb_s": 4.0}, "--kv-offload-to ssd"),
    "no keys to offload": ("mamba-codestral-7b", {"kv_offload": 0.5}, "--kv-offload 0.5"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_combinations_that_are_refused(name):
    model_name, fields, named = REFUSED[name]
    with pytest.raises(InputError) as error:
        case(model_name, **fields)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_a_device_without_a_way_to_the_host():
    for fields in ({"kv_offload": 0.5}, {"cpu_offload_gb": 1.0}):
        with pytest.raises(InputError, match="pcie"):
            case("llama-3.1-8b", on=SMALL, **fields)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), "x", True])
def test_a_share_is_between_none_and_all(share):
    with pytest.raises(InputError, match="prefix_share"):
        Workload(cached_prefix=10, prefix_share=share)
    with pytest.raises(InputError):
        Deployment(kv_offload=share)


def test_a_share_needs_a_prefix():
    with pytest.raises(InputError, match="prefix_share"):
        Workload(prefix_share=0.5)


def test_costs_stay_finite():
    """Nothing of a blend or a transfer is NaN."""
    found = case("qwen3-next-80b-a3b", tp=2, batch=np.array([1, 4]), prompt=700,
                 cached_prefix=np.array([0, 300]), prefix_share=0.5, kv_offload=1.0)  # fmt: skip
    for total in (found.prefill().total, found.decode_all()):
        for name in Cost.__dataclass_fields__:
            assert np.all(np.isfinite(getattr(total, name))), name
