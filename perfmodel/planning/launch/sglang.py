"""SGLang's command: ``python -m sglang.launch_server`` (ServerArgs, 0.5 and later)."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.errors import InputError
from perfmodel.planning.launch.formats import cache_word, weights_word
from perfmodel.planning.launch.launch import Launch, Launched, Server
from perfmodel.planning.launch.limits import LimitFlags, limit_words
from perfmodel.planning.launch.unsaid import unsaid
from perfmodel.specs.speculation import Speculation

CACHES = {"fp8": "fp8_e4m3"}
ONLINE = {"fp8": "fp8"}
ALGORITHMS = {"mtp": "EAGLE", "eagle": "EAGLE", "draft": "STANDALONE", "ngram": "NGRAM"}
SAID = frozenset({"tp", "pp", "ep", "dp", "cpu_offload_gb", "execution", "speculation",
                  "block_size", "graph_batch"})  # fmt: skip
LIMITS = LimitFlags(
    sequences="--max-running-requests", tokens="--chunked-prefill-size",
    memory="--mem-fraction-static", longest="--context-length", block="--page-size",
    graphs="--cuda-graph-max-bs", offload="--cpu-offload-gb",
)  # fmt: skip


def launch(case: Launched) -> Launch:
    """Commands of one replica.

    Raises:
        InputError: SGLang has no flag for it.
    """
    notes: list[str] = []
    words = tuple(_words(case, notes))
    servers = []
    for role in case.roles:
        mode = () if role == "engine" else (f"--disaggregation-mode {role}",)
        servers.append(Server(role, case.instances(role), words + mode))
    if case.serving.disaggregate is not None:
        notes.append("sglang_router.launch_router --pd-disaggregation sends requests to both pools")
    return Launch("sglang", tuple(servers), notes=(*notes, *unsaid(case, SAID, "SGLang")))


def _words(case: Launched, notes: list[str]) -> Iterator[str]:
    d = case.plan.deployment
    yield f"python -m sglang.launch_server --model-path {case.argument}"
    yield from _layout(case)
    yield from weights_word(case, "--quantization", ONLINE, notes)
    yield from cache_word(case, "--kv-cache-dtype", CACHES, "sglang")
    # Of all attention-DP ranks together: the server divides them by their number.
    yield from limit_words(case, LIMITS, case.attention_dp)
    if case.caches_prefixes is False:
        yield "--disable-radix-cache"
    if d.execution == "eager":
        yield "--disable-cuda-graph"
    if d.speculation is not None:
        yield from _speculation(d.speculation)


def _layout(case: Launched) -> Iterator[str]:
    parallel = case.plan.parallel
    yield f"--tp-size {case.tp_ranks}"
    if case.given.dp > 1:
        yield f"--dp-size {case.given.dp}"
    if case.attention_dp > 1:
        yield "--enable-dp-attention"
    if parallel.pp > 1:
        yield f"--pp-size {parallel.pp}"
    if parallel.ep > 1:
        yield f"--ep-size {parallel.ep}"


def _speculation(said: Speculation) -> Iterator[str]:
    algorithm = ALGORITHMS.get(said.method)
    if algorithm is None:
        raise InputError(
            f"--emit sglang: it has no {said.method} speculation; it has {', '.join(ALGORITHMS)}"
        )
    yield f"--speculative-algorithm {algorithm}"
    if said.draft_model is not None:
        yield f"--speculative-draft-model-path {said.draft_model}"
    if said.method != "ngram":
        yield f"--speculative-num-steps {said.depth}"
        yield f"--speculative-eagle-topk {max(said.branching)}"
    yield f"--speculative-num-draft-tokens {said.nodes + 1}"
