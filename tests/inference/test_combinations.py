"""Levers of different topics together: figures by hand, and what any draw of them must keep to."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.errors import InputError
from perfmodel.inference.kv_report import kv_report
from perfmodel.specs.speculation import Speculation
from tests.inference.combination_case import run

TOKEN = 131_072
"""Bytes of a token of Llama-3.1-8B in bf16: 2 · 32 layers · 8 heads · 128 · 2."""


def rows(phase: Any) -> dict[str, Any]:
    return {row.name: row.cost for row in phase.cost.operators}


def ngram(tokens: int) -> Speculation:
    return Speculation(method="ngram", tokens=tokens, acceptance=0.7)


def draft(model: str = "llama-3.2-1b", tokens: int = 3) -> Speculation:
    return Speculation(method="draft", draft_model=model, tokens=tokens, acceptance=0.7)


def test_kivi_under_a_budget_with_drafted_tokens():
    """Llama-3.1-70B at TP 8: one KV head a GPU, 128 keys and 128 values.

    KIVI's 4 bits with 16-bit scale and zero per 32: 5 bits, 160 B a token and layer; the newest
    128 tokens 512 B. A budget of 1,024 and four drafted tokens: 1,028 slots; a step reads the
    1,023 earlier ones and its five.
    """
    found = run(
        "llama-3.1-70b",
        load={"batch": 32, "prompt": 4000, "output": 500},
        tp=8, kv_cache="kivi4", kv_budget=1024, kv_layout="flat", speculation=ngram(4),
    )  # fmt: skip
    held = 32 * 80 * (1028 * 160 + 128 * 352)
    assert found.memory.kv_bytes == held
    attention = rows(found.decode)["attention"]
    assert attention.cache_bytes == held
    pairs = sum(1023 + d + 1 for d in range(5))
    assert attention.flops == 32 * 80 * 2 * 8 * 256 * pairs


def test_drafted_tokens_have_slots_beside_a_window():
    """Gemma-3-27B: 10 full layers, 52 with a window of 1,024; 16 heads of 128 are 8,192 B."""
    found = run(
        "gemma-3-27b", load={"prompt": 4000, "output": 100}, kv_layout="flat", speculation=ngram(3)
    )
    assert found.memory.kv_bytes == 8192 * (10 * 4103 + 52 * 1027)


def test_drafted_tokens_have_slots_beside_a_reserved_length():
    load = {"batch": 2, "prompt": 100, "output": 28}
    found = run(load=load, kv_layout="contiguous", max_model_len=128, speculation=ngram(3))
    assert found.memory.kv_bytes == 2 * 131 * TOKEN
    assert found.memory.kv_stored_bytes == found.memory.kv_bytes


def test_a_draft_forgets_what_the_target_forgets():
    """The first pass takes four tokens after 255 earlier ones, the other two one each after 255."""
    found = run(load={"prompt": 8000, "output": 10}, kv_budget=256, speculation=draft())
    passes = [r.shape for r in found.decode.cost.operators if r.name == "draft.attention"]
    assert [shape["keys"] for shape in passes] == [259, 256]


def test_the_newest_tokens_are_shared_with_the_cache():
    """Two ranks that share MLA's latents hold 64 of KIVI's 128 newest tokens each."""
    load = {"batch": 4, "prompt": 2000, "output": 100}
    one, two = (
        run("deepseek-v2-lite", load=load, tp=4, dcp=dcp, kv_cache="kivi4", kv_layout="flat")
        for dcp in (1, 2)
    )
    assert two.memory.kv_bytes == one.memory.kv_bytes / 2
    assert rows(two.decode)["attention"].cache_bytes == pytest.approx(
        rows(one.decode)["attention"].cache_bytes / 2
    )


def test_kivi_has_no_pages():
    with pytest.raises(InputError, match=r"--kv-manager hybrid: .*kivi4.*--kv-manager ideal"):
        run(kv_manager="hybrid", kv_cache="kivi4")
    assert kv_report(run(kv_cache="kivi4")).pools == ()


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_logits_travel_in_16_bits(sequence_parallel):
    """7/8 of 4 rows of 128,256 logits in 16 bits, whatever hidden states travel in."""
    found = run(load={"batch": 4}, tp=8, communication="fp8", sequence_parallel=sequence_parallel)
    for phase in (found.prefill, found.decode):
        names = [name for name in rows(phase) if name.startswith("lm_head")]
        assert names == ["lm_head", "lm_head.all_gather"]
        assert rows(phase)["lm_head.all_gather"].wire_bytes == 7 / 8 * 4 * 128_256 * 2


def test_a_draft_exchanges_in_the_deployments_format():
    """Half of a 2,048-wide fp8 row twice, for 16 layers in each of 2 later passes."""
    found = run(tp=2, communication="fp8", speculation=draft())
    passes = [r for r in found.decode.cost.operators if r.name == "draft.mixer.all_reduce"]
    assert passes[1].cost.wire_bytes == 2 * 16 * 2 * 0.5 * 2048


def test_a_draft_needs_copies_of_its_heads_too():
    """At TP 16 Llama-2-70B has two copies of each KV head, Llama-2-7B's 32 heads have none."""
    with pytest.raises(InputError, match=r"--dcp: 2, but 1 of .*llama-2-7b; --dcp may be 1"):
        run("llama-2-70b", tp=16, dcp=2, speculation=draft("llama-2-7b"))


def test_nothing_cached_is_gathered_in_no_time():
    load = {"batch": 4, "prompt": 2000, "output": 100}
    gather = rows(run("deepseek-v2-lite", load=load, tp=4, dcp=4).prefill)
    assert gather["cached_keys.all_gather"].time_s == 0
    assert gather["cached_keys.all_gather"].launches == 0
    found = rows(run("deepseek-v2-lite", load=load | {"cached_prefix": 16}, tp=4, dcp=4).prefill)
    assert found["cached_keys.all_gather"].time_s > 0
    # of four chunks the first finds nothing
    chunked = run("deepseek-v2-lite", load=load | {"prefill_chunk": 500}, tp=4, dcp=4).prefill
    layers = 27
    assert rows(chunked)["cached_keys.all_gather"].launches == 3 * layers


def test_graphs_save_what_eager_adds_where_exchanges_are_hidden():
    load = {"batch": 8, "prompt": 1000, "output": 50}
    graph, eager = (
        run(load=load, tp=2, comm_overlap=0.5, execution=execution)
        for execution in ("graph", "eager")
    )
    assert graph.decode.graphs_save_s == pytest.approx(eager.decode.time_s - graph.decode.time_s)


def test_graphs_that_count_tokens_count_drafted_ones():
    """vLLM captures 512 tokens: 300 sequences, or 128 with four tokens each, not 129."""
    load = {"prompt": 100, "output": 20}
    assert run(load=load | {"batch": 300}).decode.started == "graph"
    for batch, started in ((128, "graph"), (129, "eager")):
        found = run(load=load | {"batch": batch}, speculation=ngram(3))
        assert found.decode.started == started
        assert any("tokens are beyond" in note for note in found.warnings) == (started == "eager")
    sequences = run(load=load | {"batch": 129}, speculation=ngram(3), engine="sglang")
    assert sequences.decode.started == "graph"


def test_a_shared_prefix_is_stored_once_outside_too():
    """1,600 of 2,100 tokens in common to eight: 7 · 1,600 tokens less on either side."""
    load = {"batch": 8, "prompt": 2000, "output": 100, "cached_prefix": 1600}
    own, shared = (
        run(load=load | {"prefix_share": share}, kv_offload=0.5).memory for share in (None, 1.0)
    )
    assert own.kv_outside_bytes - shared.kv_outside_bytes == 7 * 1600 * TOKEN / 2


def test_a_block_that_ranks_share_is_shared_whole():
    """Blocks of 16 on two ranks span 32 tokens: of a prefix of 48 one is whole, 16 a rank."""
    load = {"batch": 8, "prompt": 2000, "output": 100, "cached_prefix": 48}
    own, shared = (run(load=load | {"prefix_share": s}, cp=2).memory for s in (None, 1.0))
    assert own.kv_bytes - shared.kv_bytes == 7 * 16 * TOKEN


def test_states_in_a_pool_stay_on_the_device():
    """Qwen3.5-27B: with all keys offloaded, the pool's state pages and two layers in flight."""
    load = {"batch": 2, "prompt": 5000, "output": 24}
    whole = run("qwen3.5-27b", load=load, kv_manager="hybrid")
    found = run("qwen3.5-27b", load=load, kv_manager="hybrid", kv_offload=1.0).memory
    keys = found.kv_outside_bytes
    assert 0 < keys < whole.memory.kv_bytes
    assert found.kv_bytes == pytest.approx(whole.memory.kv_bytes - keys + 2 / 16 * keys)
    assert found.kv_stored_bytes <= found.kv_bytes


def test_a_pool_has_a_state_for_each_drafted_token():
    """Three drafted tokens: three times the state pages more, and no block at these lengths."""
    load = {"batch": 2, "prompt": 5000, "output": 24}
    plain, found = (
        run("qwen3.5-27b", load=load, kv_manager="hybrid", speculation=s).memory
        for s in (None, ngram(3))
    )
    pool = kv_report(run("qwen3.5-27b", load=load)).pools[0]
    states = 48 // pool.group_layers  # groups of the 48 recurrent layers
    page = pool.bytes_per_sequence / (states + -(-5024 // pool.block_tokens))
    assert found.kv_bytes - plain.kv_bytes == 2 * 3 * states * page
    assert found.kv_stored_bytes <= found.kv_bytes


def test_a_contiguous_cache_holds_the_sequence():
    load = {"prompt": 3000, "output": 100}
    with pytest.raises(InputError, match=r"2048.*3100; say so with --max-model-len 3100"):
        run("falcon-7b", load=load, kv_layout="contiguous")
    found = run("falcon-7b", load=load, kv_layout="contiguous", max_model_len=3100).memory
    assert found.fits
    assert found.max_context == 3100
    assert found.kv_bytes == found.kv_stored_bytes


def test_the_report_has_the_drafts_cache_and_each_ranks_share():
    load = {"batch": 4, "prompt": 2000, "output": 100}
    mtp = Speculation(method="mtp", tokens=1, acceptance=0.9)
    found = run("deepseek-v3", "h200-sxm", load, tp=8, dcp=4, speculation=mtp)
    report = kv_report(found)
    paged = next(use for use in report.layouts if use.layout == "paged")
    assert paged.bytes == found.memory.kv_bytes
    assert report.ideal_bytes_per_sequence == 2100 / 4 * 62 * 1152
    assert report.swap is not None
    assert report.swap.bytes == 2100 / 4 * 61 * 1152
    assert report.pools == ()  # as the manager is refused
    assert found.speculation is not None
    assert found.speculation.draft_kv_bytes_per_token == 1152 / 4


def test_chunks_beside_a_draft():
    """Both prefills are of target and draft; a round with a chunk beside it waits for the chunk."""
    load = {"batch": 4, "prompt": 2048, "output": 100}
    whole = run(load=load, speculation=draft())
    found = run(load=load | {"prefill_chunk": 512}, speculation=draft())
    chunking = kv_report(found).chunking
    assert chunking is not None
    assert chunking.whole_s == pytest.approx(whole.ttft_s)
    # 4 sequences · 512 · (1 + 2 + 3) tokens again, of 32 and of 16 layers
    assert chunking.reread_bytes == 4 * 512 * 6 * (TOKEN + 16 * 2 * 8 * 64 * 2)
    assert chunking.decode_step_s == found.decode.time_s
    assert chunking.mixed_step_s > found.decode.time_s


def test_chunks_beside_micro_batches():
    load = {"batch": 4, "prompt": 2048, "output": 100}
    fields: dict[str, Any] = {"pp": 2, "pp_microbatches": 2}
    chunking = kv_report(run(load=load | {"prefill_chunk": 512}, **fields)).chunking
    assert chunking is not None
    assert chunking.whole_s == pytest.approx(run(load=load, **fields).ttft_s)
    assert chunking.mixed_step_s is None
