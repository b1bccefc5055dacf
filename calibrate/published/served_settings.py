"""What served rows were run with: read from their notes, or from what their sources publish.

* `trtllm-bench` (NVIDIA/TensorRT-LLM, docs/source/performance/perf-overview.md of 1.0 and 0.14,
  tensorrt_llm/bench/build/tuning.py): all requests at once; 1.0 captures decode batches up to
  8,192 and gives the cache 0.95 of the free memory "in many cases"; both of its limits follow from
  how many sequences the cache holds (`tuned_limits`). 0.14 prints 4,096 sequences, 8,192 tokens.
* `gpustack-lab` (gpustack/gpustack, docs/performance-lab): ``vllm bench serve`` without a cap, or
  guidellm with one; server flags are in the notes. Conversations are ShareGPT's.
* `dstack-pd-ratio` (dstackai/benchmarks, comparison/pd_ratio): ``vllm bench serve``, 500 prompts
  for each load, 128 users first, then 64, then 32; figures are medians.
* `vultr-b200` (docs.vultr.com, concurrency tuning): 400 prompts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil, exp

from calibrate.published.cases import Unmapped
from calibrate.published.reader import Row
from perfmodel.serving.lengths import Lengths

ROUNDS = 10
"""Requests of each user where a source states no number."""
REQUESTS = {"dstack-pd-ratio": 500, "vultr-b200": 400}
MEDIANS = frozenset({"dstack-pd-ratio"})
TRTLLM_BENCH = frozenset({"trtllm-maxload-v0.14", "trtllm-maxload-v1.0"})
LONGEST_PROMPT, LONGEST_ANSWER = 1024, 600
"""ShareGPT as ``vllm bench`` samples it: longer prompts are left out. Answers are taken as
exponential up to so many tokens: with them a loop of 100 users loses 1.1 to 1.3 mean latencies of
each user's time while it drains, as four published runs do (1.1, 1.1, 1.3, 1.7)."""
CONVERSATION = ("conversation data set", "ShareGPT")

IN_COLUMNS = frozenset({
    "attention data parallel", "dp-size", "enable-dp-attention", "ep-size", "kv-cache-dtype",
    "tensor-parallel-size", "tp-size",
})  # fmt: skip
WITHOUT_EFFECT = frozenset({
    "attention-backend nsa", "context-length", "default flags", "enable-prefix-caching",
    "max-model-len",
})  # fmt: skip
"""Limits that no request reaches, a cache of prefixes that none shares, a model's only backend."""
INACTIVE = "attention data parallel flag given but no dp size, so probably inactive"
NUMBERS = {
    "chunked-prefill-size": "max_num_batched_tokens",
    "cuda-graph-max-bs": "graph_batch",
    "gpu-memory-utilization": "gpu_memory_utilization",
    "max-num-batched-tokens": "max_num_batched_tokens",
    "max-num-seqs": "max_num_seqs",
    "max-running-requests": "max_num_seqs",
    "mem-fraction-static": "gpu_memory_utilization",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a server; None: the engine's default."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    graph_batch: int | None = None
    overlapped: bool = False
    """Whether it works on a step's output while the next one runs."""


def settings_of(row: Row) -> Settings:
    """What a row's source says of its server.

    Raises:
        Unmapped: a flag that the model doesn't know.
    """
    if row.source == "trtllm-maxload-v1.0":
        return Settings(gpu_memory_utilization=0.95, graph_batch=8192, overlapped=True)
    if row.source == "trtllm-maxload-v0.14":
        return Settings(4096, 8192, graph_batch=8192)
    if row.source == "trtllm-deepseek":
        return _deepseek(row)
    found: dict[str, int | float] = {}
    overlapped = not row.engine.startswith("vLLM") or _version(row) >= (0, 14)
    for name, value in flags_in(row.notes):
        if name == "async-scheduling":
            overlapped = True
        elif name in NUMBERS:
            number = float(value)
            found[NUMBERS[name]] = number if number < 1 else int(number)
        elif not _known(name, value):
            raise Unmapped(f"a setting that isn't modelled: {name} {value}".strip())
    return Settings(**found, overlapped=overlapped)  # type: ignore[arg-type]


def _known(name: str, value: str) -> bool:
    """Whether a flag stands in a column of the table, or changes nothing."""
    stated = {name, f"{name} {value}".strip()}
    return name in IN_COLUMNS or bool(stated & WITHOUT_EFFECT)


def _deepseek(row: Row) -> Settings:
    """NVIDIA's guide states both limits, of each rank."""
    limits = re.search(r"max_batch (\d+)/rank, max_num_tokens (\d+)", row.notes)
    if limits is None:
        raise Unmapped("limits of a step aren't stated")
    return Settings(int(limits[1]), int(limits[2]), graph_batch=int(limits[1]), overlapped=True)


def _version(row: Row) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", row.version)[:2])


def flags_in(notes: str) -> list[tuple[str, str]]:
    """Names and values of the flags in a row's notes, in either of their two forms.

    >>> flags_in("mean lengths; flags: async-scheduling, max-model-len 32768")
    [('async-scheduling', ''), ('max-model-len', '32768')]
    >>> flags_in("exact lengths; flags: tp-size=8 enable-dp-attention")
    [('tp-size', '8'), ('enable-dp-attention', '')]
    """
    if "flags: " not in notes:
        return []
    text = notes.split("flags: ", 1)[1].replace(INACTIVE, "")
    single = "=" in text or "--" in text
    parts = text.split() if single else text.split(",")
    found = []
    for part in (part.strip() for part in parts):
        name, _, value = part.partition("=" if single else " ")
        if part == "attention data parallel":
            name, value = part, ""
        if name:
            found.append((name, value.strip()))
    return found


def tuned_limits(held: float, prompt: float, output: float) -> tuple[int, int]:
    """``max_batch_size`` and ``max_num_tokens`` that `trtllm-bench` chooses.

    Args:
        held: sequences of prompt and output that the cache holds.
        prompt: tokens of a prompt.
        output: tokens of an output.
    """
    batch = min(held, 4096)
    tokens = min(batch * (1 + prompt / output), 32768)
    step = 32 if batch < 256 else 128 if batch < 1024 else 256
    grain = 256 if tokens < 4096 else 512 if tokens < 8192 else 1024
    return max(64, step * ceil(batch / step)), max(2048, grain * ceil(tokens / grain))


def capped(mean: float, longest: int) -> Lengths:
    """Exponential lengths up to ``longest`` whose mean is ``mean``, what is cut off included.

    E[min(X, L)] = m·(1 − exp(−L/m)), solved for m.

    Raises:
        Unmapped: no such lengths: they would all be as long as they may be.
    """
    if mean >= 0.9 * longest:
        raise Unmapped(f"lengths of {mean:g} on average can't be spread up to {longest}")
    own = mean
    for _ in range(200):
        own = mean / (1 - exp(-longest / own))
    return Lengths("exponential", (own, longest))


def lengths_of(row: Row) -> tuple[Lengths, Lengths]:
    """Prompts and outputs of a row.

    Raises:
        Unmapped: a length isn't stated.
    """
    prompt, output = (_mean(text, name) for text, name in _lengths(row))
    if CONVERSATION[0] in row.notes or row.prompt.startswith(CONVERSATION[1]):
        return capped(prompt, LONGEST_PROMPT), capped(output, LONGEST_ANSWER)
    nominal = re.search(r"nominal (\d+)/(\d+), actual means given", row.notes)
    if nominal is not None:  # answers that end by themselves
        return _constant(prompt), capped(output, int(nominal[2]))
    return _constant(prompt), _constant(output)


def _lengths(row: Row) -> tuple[tuple[str, str], tuple[str, str]]:
    return (row.prompt, "prompt"), (row.output, "output")


def _mean(text: str, name: str) -> float:
    found = re.fullmatch(r"(?:ShareGPT \(mean ~)?(\d+(?:\.\d+)?)\)?", text)
    if found is None:
        raise Unmapped(f"{name}s' lengths aren't stated")
    return float(found[1])


def _constant(mean: float) -> Lengths:
    return Lengths("constant", (max(1, round(mean)),))
