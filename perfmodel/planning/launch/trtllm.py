"""TensorRT-LLM's command: ``trtllm-serve`` with a YAML of LlmArgs (1.0 and later)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from perfmodel.errors import InputError
from perfmodel.planning.launch.formats import cache_name, weights_word
from perfmodel.planning.launch.launch import Launch, Launched, Server
from perfmodel.planning.launch.limits import LimitFlags, limit_words
from perfmodel.planning.launch.unsaid import unsaid
from perfmodel.serving.serve import scheduling
from perfmodel.specs.speculation import Speculation

CACHES = {"fp8": "fp8"}
DRAFTING = {"mtp": "MTP", "eagle": "Eagle", "draft": "DraftTarget", "ngram": "NGram"}
SAID = frozenset({"tp", "pp", "ep", "dp", "execution", "speculation", "block_size",
                  "graph_batch"})  # fmt: skip
LIMITS = LimitFlags(
    sequences="--max_batch_size", tokens="--max_num_tokens",
    memory="--kv_cache_free_gpu_memory_fraction", longest="--max_seq_len",
)  # fmt: skip
FILE = "trtllm.yaml"


def launch(case: Launched) -> Launch:
    """Commands of one replica, and the file that they read.

    Raises:
        InputError: TensorRT-LLM has no option for it.
    """
    notes: list[str] = []
    options = _options(case)
    if case.serving.disaggregate is not None:
        options["cache_transceiver_config"] = {"backend": "DEFAULT"}
        notes.append("trtllm-serve disaggregated -c FILE, with both pools' URLs, takes requests")
    words = tuple(_words(case, notes, bool(options)))
    replicas = case.given.dp if case.attention_dp == 1 else 1
    servers = [Server(role, case.instances(role) * replicas, words) for role in case.roles]
    files = {FILE: yaml.safe_dump(options, sort_keys=False)} if options else {}
    return Launch(
        "trtllm", tuple(servers), files, notes=(*notes, *unsaid(case, SAID, "TensorRT-LLM"))
    )


def _words(case: Launched, notes: list[str], configured: bool) -> Iterator[str]:
    parallel = case.plan.parallel
    yield f"trtllm-serve {case.argument}"
    yield f"--tp_size {case.tp_ranks}"
    if parallel.pp > 1:
        yield f"--pp_size {parallel.pp}"
    if parallel.ep > 1:
        yield f"--ep_size {parallel.ep}"
    yield from weights_word(case, None, {}, notes)
    yield from limit_words(case, LIMITS)
    if configured:
        yield f"--config {FILE}"


def _options(case: Launched) -> dict[str, Any]:
    plan, d = case.plan, case.plan.deployment
    options: dict[str, Any] = {}
    cache = _cache(case)
    if cache:
        options["kv_cache_config"] = cache
    policy = scheduling(case.serving, plan.engine.scheduler)
    if policy.reserve < 1:
        options["scheduler_config"] = {"capacity_scheduler_policy": "MAX_UTILIZATION"}
    if policy.chunked:
        options["enable_chunked_prefill"] = True
    if case.attention_dp > 1:
        options["enable_attention_dp"] = True
    if d.execution == "eager":
        options["cuda_graph_config"] = None
    elif case.given.graph_batch is not None:
        options["cuda_graph_config"] = {"max_batch_size": case.given.graph_batch}
    if d.speculation is not None:
        options["speculative_config"] = _speculation(d.speculation)
    return options


def _cache(case: Launched) -> dict[str, Any]:
    stated = {
        "dtype": cache_name(case, CACHES, "--emit trtllm"),
        "enable_block_reuse": case.caches_prefixes,
        "tokens_per_block": case.given.block_size,
    }
    return {name: value for name, value in stated.items() if value is not None}


def _speculation(said: Speculation) -> dict[str, Any]:
    decoding = DRAFTING.get(said.method)
    if decoding is None:
        raise InputError(
            f"--emit trtllm: it has no {said.method} speculation; it has {', '.join(DRAFTING)}"
        )
    if said.method == "mtp":
        return {"decoding_type": decoding, "num_nextn_predict_layers": said.depth}
    config: dict[str, Any] = {"decoding_type": decoding, "max_draft_len": said.depth}
    if said.draft_model is not None:
        config["speculative_model_dir"] = said.draft_model
    return config
