"""Shared prefixes, eviction, and the report: limits, signs, values by hand, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.inference.estimate import estimate
from perfmodel.inference.kv_report import kv_report
from perfmodel.inference.memory import Memory
from perfmodel.inference.phase import Cost
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.workload import Workload
from tests.inference.kv_case import CACHED, SMALL, TOKEN, case, same, times

NAMES = st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "gemma-3-1b"])


def without_longest(memory: Memory) -> Memory:
    """All but the longest context, which a bounded cache doesn't bound."""
    return replace(memory, max_context=0)


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
