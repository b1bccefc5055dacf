"""The levers of speculation, the KV store, exchanges and engines: when they show, what they set."""

import math
import re

import pytest

from perfmodel import Deployment, Limits, Workload, advise, estimate
from perfmodel.planning.lever import Change, Idle, View
from perfmodel.planning.levers import exchange, execution, formats, speculation, store
from perfmodel.planning.options import at_largest
from perfmodel.planning.situation import Estimator, Situation
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.loading import load_model

GENERIC = {"stack": "generic"}


def view(model="llama-3.1-8b", hardware="h100-sxm", load=None, **deployment):
    situation = Situation(
        load_model(model),
        load_hardware(hardware),
        Workload(**(load or {})),
        Deployment(**GENERIC | deployment),
    )
    estimator = Estimator()
    return View(estimator.of(situation), situation, Limits(), estimator)


def lever(module, name, seen):
    made = next(item for item in module.LEVERS if item.name == name).changes(seen)
    return made if isinstance(made, Idle) else list(made)


def outcome(seen, change: Change):
    situation = seen.situation.with_values(dict(change.deployment), dict(change.workload))
    return seen.estimator.of(situation)


# --- speculation -------------------------------------------------------------------------------


def test_speculation_says_what_it_assumes_and_where_it_stops_paying():
    seen = view()
    for name in ("EAGLE", "n-gram drafts"):
        (change,) = lever(speculation, name, seen)
        assert change.supposes
        assert "assumed:" in change.remark
        least = float(re.search(r"from ([\d.]+) tokens a round", change.remark)[1])
        # At just that many tokens a round its TPOT is that of plain decoding.
        own = dict(change.deployment)["speculation"]
        even = own.model_copy(update={"accepted_length": max(1.0, least)})
        tpot = outcome(seen, Change("", "", change.price, (("speculation", even),))).tpot_s
        assert tpot == pytest.approx(seen.base.tpot_s, rel=0.02)


def test_mtp_is_for_checkpoints_that_have_it():
    assert "without MTP" in lever(speculation, "MTP", view()).reason
    seen = view("deepseek-v3", "h200-sxm", tp=8)
    one, three = lever(speculation, "MTP", seen)
    assert dict(one.deployment)["speculation"].acceptance == (0.92,)
    assert dict(three.deployment)["speculation"].acceptance == (0.92, 0.72, 0.36)
    assert outcome(seen, one).tpot_s < seen.base.tpot_s


def test_speculation_that_is_on_says_what_it_gains():
    seen = view("deepseek-v3", "h200-sxm", tp=8,
                speculation={"method": "mtp", "tokens": 1, "acceptance": 0.9})  # fmt: skip
    idle = lever(speculation, "MTP", seen)
    assert outcome(seen, idle.without).tpot_s > seen.base.tpot_s
    assert "pays here from" in idle.reason
    assert isinstance(lever(speculation, "EAGLE", seen), Idle)


@pytest.mark.parametrize("more", [{"load": {"output": 1}}, {"pp": 2}])
def test_nothing_to_draft(more):
    assert isinstance(lever(speculation, "n-gram drafts", view(**more)), Idle)


def test_a_round_that_never_pays_says_so():
    # 2,048 sequences fill the device: verifying 26 tokens of each takes many plain steps.
    (change,) = lever(speculation, "EAGLE", view(load={"batch": 2048, "prompt": 64}))
    assert "pays here at no acceptance" in change.remark


# --- the store ---------------------------------------------------------------------------------


def test_forgetting_tokens_is_for_long_sequences():
    for name in ("StreamingLLM", "KV eviction"):
        assert "8,192" in lever(store, name, view(load={"prompt": 2048})).reason
        long = view(load={"batch": 4, "prompt": 30_000})
        (change,) = lever(store, name, long)
        after = outcome(long, change)
        assert after.tpot_s < long.base.tpot_s
        assert after.memory.kv_bytes < long.base.memory.kv_bytes
    (kept,) = lever(store, "KV eviction", view(load={"prompt": 30_000, "output": 256}))
    assert dict(kept.deployment)["kv_budget"] == math.ceil(0.2 * 30_256)
    assert isinstance(
        lever(store, "StreamingLLM", view(load={"prompt": 9000}, kv_budget=100)), Idle
    )


def test_offload_is_for_full_memories():
    assert "nothing has to leave" in lever(store, "KV offload", view()).reason
    full = view(load={"batch": 150, "prompt": 4000})
    (change,) = lever(store, "KV offload", full)
    assert outcome(full, change).memory.max_sequences > full.base.memory.max_sequences
    assert "to spare" in lever(store, "weight offload", view()).reason


def test_weights_leave_until_it_fits():
    seen = view("llama-3.1-70b")
    (change,) = lever(store, "weight offload", seen)
    size = dict(change.deployment)["cpu_offload_gb"]
    assert outcome(seen, change).memory.fits
    less = seen.situation.with_values({"cpu_offload_gb": size - 2})
    assert not seen.estimator.memory(less).fits
    # 671 GB and one L40S of 48 GB: no host is taken to hold twelve times that.
    assert isinstance(lever(store, "weight offload", view("deepseek-v3", "l40s")), Idle)


def test_windows_and_common_prefixes():
    assert "every token" in lever(store, "KV manager", view()).reason
    idle = lever(store, "KV manager", view("gemma-3-4b"))
    assert dict(idle.without.deployment) == {"kv_manager": "uniform"}
    (hybrid,) = lever(store, "KV manager", view("gemma-3-4b", kv_manager="uniform"))
    assert dict(hybrid.deployment) == {"kv_manager": "hybrid"}
    assert isinstance(lever(store, "common prefix", view()), Idle)
    several = view(load={"batch": 4, "cached_prefix": 512})
    (common,) = lever(store, "common prefix", several)
    assert outcome(several, common).memory.kv_bytes < several.base.memory.kv_bytes


def test_transfers_hide_at_best_behind_kernels():
    assert isinstance(lever(store, "offload overlap", view()), Idle)
    seen = view(kv_offload=0.5)
    (change,) = lever(store, "offload overlap", seen)
    assert change.supposes
    assert outcome(seen, change).tpot_s < seen.base.tpot_s


# --- exchanges ---------------------------------------------------------------------------------


def test_one_gpu_exchanges_nothing():
    for item in exchange.LEVERS:
        if item.name != "context parallelism":
            assert isinstance(item.changes(view()), Idle), item.name


def test_exchanges_of_several_gpus():
    seen = view(tp=4, load={"batch": 16, "prompt": 4096})
    assert outcome(seen, lever(exchange, "exchange format", seen)[0]).ttft_s < seen.base.ttft_s
    (overlap,) = lever(exchange, "overlapped exchanges", seen)
    assert overlap.supposes
    assert outcome(seen, overlap).ttft_s < seen.base.ttft_s
    (sequence,) = lever(exchange, "sequence parallelism", seen)
    assert outcome(seen, sequence).plan.parallel.sequence_parallel


def test_ranks_that_share_tokens():
    # Eight KV heads: TP 8 holds each once; DeepSeek's one latent is on all eight.
    assert "no copies" in lever(exchange, "decode context parallelism", view(tp=8)).reason
    latent = view("deepseek-v3", "h200-sxm", tp=8)
    (change,) = lever(exchange, "decode context parallelism", latent)
    assert dict(change.deployment) == {"dcp": 8}
    assert outcome(latent, change).memory.kv_bytes < latent.base.memory.kv_bytes
    short = lever(exchange, "context parallelism", view())
    assert "1,024" in short.reason
    long = view(load={"prompt": 20_000})
    (cp,) = lever(exchange, "context parallelism", long)
    assert outcome(long, cp).ttft_s < long.base.ttft_s


def test_micro_batches_fill_stages():
    assert isinstance(lever(exchange, "micro-batches", view(load={"batch": 8})), Idle)
    assert isinstance(lever(exchange, "micro-batches", view(pp=2)), Idle)  # one sequence
    seen = view(pp=2, load={"batch": 8, "prompt": 2048})
    (change,) = lever(exchange, "micro-batches", seen)
    assert dict(change.deployment) == {"pp_microbatches": 2}
    assert outcome(seen, change).ttft_s < seen.base.ttft_s


def test_a_skew_of_experts_can_be_balanced():
    assert isinstance(lever(exchange, "balanced experts", view()), Idle)
    seen = view("mixtral-8x7b", tp=4, ep=4, expert_skew=1.0, load={"batch": 64})
    (change,) = lever(exchange, "balanced experts", seen)
    assert change.supposes
    assert outcome(seen, change).ttft_s < seen.base.ttft_s


# --- execution and formats ---------------------------------------------------------------------


def test_current_engines_are_compared_with_each_other():
    found = {dict(c.deployment)["engine"] for c in lever(execution, "engine", view())}
    assert found == {"sglang", "trtllm-2025", "lmdeploy"}
    amd = {dict(c.deployment)["engine"]
           for c in lever(execution, "engine", view(hardware="mi300x"))}  # fmt: skip
    assert amd == {"sglang"}
    assert all("assumed" in c.remark for c in lever(execution, "engine", view()))
    older = lever(execution, "engine", view(engine="vllm-2024"))
    assert {dict(c.deployment)["engine"] for c in older} >= {"vllm"}


def test_fusion_and_flash_attention():
    (fused,) = lever(execution, "fused passes", view())
    seen = view(load={"batch": 8})
    assert outcome(seen, fused).ttft_s < seen.base.ttft_s
    assert isinstance(lever(execution, "fused passes", view(fusion="full")), Idle)
    (newer,) = lever(execution, "FlashAttention", view(attention="flash2"))
    assert dict(newer.deployment) == {"attention": "flash3"}


def test_gguf_is_a_weight_format():
    seen = view()
    settings = {dict(c.deployment)["weights"]: c for c in lever(formats, "weight format", seen)}
    assert {"int8_wo", "q4_k_m"} <= set(settings)
    assert outcome(seen, settings["q4_k_m"]).tpot_s < seen.base.tpot_s
    # Llama-3.1-8B as Q4_K_M is a file of 4.58 GiB.
    weights = outcome(seen, settings["q4_k_m"]).memory.weights_bytes
    assert weights / 2**30 == pytest.approx(4.58, rel=0.01)


# --- all together ------------------------------------------------------------------------------


def test_assumptions_are_not_combined():
    given = advise("llama-3.1-8b", "h100-sxm", Workload(batch=4), Deployment(**GENERIC),
                   limits=Limits(max_gpus=2))  # fmt: skip
    assert any(c.supposes for o in given.options for c in o.changes)
    assert not any(c.supposes for o in (*given.pairs, *given.triples) for c in o.changes)


def test_nothing_is_said_to_be_unpriced():
    given = advise("llama-3.1-8b", "h100-sxm", Workload(), Deployment(**GENERIC))
    assert not [u for u in given.unused if "not priced" in u.reason]
    plain = estimate("llama-3.1-8b", "h100-sxm", Workload(), Deployment(**GENERIC))
    assert given.base.tpot_s == plain.tpot_s


LIMITED = [
    {"speculation": {"method": "ngram", "tokens": 3, "accepted_length": 1.5}},
    {"kv_window": 500},
    {"pp": 2, "pp_microbatches": 2},
    {"cp": 2},
    {"max_num_seqs": 100},
]


@pytest.mark.parametrize("deployment", LIMITED)
def test_the_largest_batch_keeps_the_limits_under_each_lever(deployment):
    """Cases whose prompts can't be cached, whose batches can't be small or large, or that draft."""
    seen = view(load={"batch": 4, "prompt": 2000}, **deployment)
    limits = Limits(ttft_s=3 * seen.base.ttft_s, tpot_s=1.5 * seen.base.tpot_s)
    found = at_largest(seen.estimator, seen.situation, limits)
    assert found is not None
    assert found.keeps(limits)
    assert found.situation.workload.batch >= 4
