"""vLLM's command: ``vllm serve`` (EngineArgs, 0.12 and later)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfmodel.planning.launch.formats import cache_word, weights_word
from perfmodel.planning.launch.launch import Launch, Launched, Server, as_json
from perfmodel.planning.launch.limits import LimitFlags, limit_words
from perfmodel.planning.launch.unsaid import unsaid
from perfmodel.specs.speculation import Speculation

CACHES = {"fp8": "fp8"}
"""``--kv-cache-dtype`` by the cache's format."""
ONLINE = {"fp8": "fp8"}
"""``--quantization`` that vLLM does itself while it loads a 16-bit checkpoint."""
SAID = frozenset({"tp", "pp", "ep", "dp", "dcp", "cpu_offload_gb", "execution", "speculation",
                  "block_size", "graph_batch"})  # fmt: skip
LIMITS = LimitFlags(
    sequences="--max-num-seqs", tokens="--max-num-batched-tokens",
    memory="--gpu-memory-utilization", longest="--max-model-len", block="--block-size",
    graphs="--max-cudagraph-capture-size", offload="--cpu-offload-gb",
)  # fmt: skip
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}


def launch(case: Launched) -> Launch:
    """Commands of one replica.

    Raises:
        InputError: vLLM has no flag for it.
    """
    notes: list[str] = []
    words = tuple(_words(case, notes))
    if case.serving.disaggregate is not None:
        words += (f"--kv-transfer-config {as_json(NIXL)}",)
        notes.append("a proxy that knows NixlConnector sends each request to both pools")
    servers = [Server(role, case.instances(role), words) for role in case.roles]
    return Launch("vllm", tuple(servers), notes=(*notes, *unsaid(case, SAID, "vLLM")))


def _words(case: Launched, notes: list[str]) -> Iterator[str]:
    d = case.plan.deployment
    yield f"vllm serve {case.argument}"
    yield from _layout(case, notes)
    yield from weights_word(case, "--quantization", ONLINE, notes)
    yield from cache_word(case, "--kv-cache-dtype", CACHES, "vllm")
    yield from limit_words(case, LIMITS)
    if case.caches_prefixes is not None:
        yield f"--{'' if case.caches_prefixes else 'no-'}enable-prefix-caching"
    if d.execution == "eager":
        yield "--enforce-eager"
    if d.speculation is not None:
        yield f"--speculative-config {as_json(_speculation(d.speculation))}"


def _layout(case: Launched, notes: list[str]) -> Iterator[str]:
    parallel = case.plan.parallel
    yield f"--tensor-parallel-size {parallel.tp}"
    sizes = {"pipeline-parallel": parallel.pp, "data-parallel": case.given.dp,
             "decode-context-parallel": parallel.dcp}  # fmt: skip
    yield from (f"--{name}-size {size}" for name, size in sizes.items() if size > 1)
    if parallel.ep > 1:
        yield "--enable-expert-parallel"
        ranks = case.tp_ranks
        if parallel.ep != ranks:
            notes.append(
                f"vLLM spreads experts over all {ranks} ranks, not the {parallel.ep} that were "
                "priced"
            )


def _speculation(said: Speculation) -> dict[str, Any]:
    method = {"draft": "draft_model", "lookahead": "ngram"}.get(said.method, said.method)
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": said.depth}
    if said.draft_model is not None:
        config["model"] = said.draft_model
    return config
