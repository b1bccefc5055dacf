"""The flags of a case: each field of a workload and a deployment is one flag, by topic.

Flags follow vLLM's names where it has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from perfmodel.specs.cache_formats import KINDS
from perfmodel.specs.engine import engine_names
from perfmodel.specs.formats import FILE_TYPES, FORMATS


@dataclass(frozen=True, slots=True)
class Flag:
    """One field of a record as a flag of the command line."""

    field: str
    names: tuple[str, ...]
    kind: Any
    help: str
    panel: str


def _flag(field: str, names: str, kind: Any, help_text: str, panel: str) -> Flag:
    return Flag(field, tuple(names.split()), kind, help_text, panel)


_CASE, _LAYOUT, _FORMAT = "Workload", "Parallel layout", "Number formats"
_CACHE, _ENGINE = "KV cache", "Engine"
_SPECULATION = "Speculative decoding"
_FORMATS = ", ".join(dict.fromkeys([*FORMATS, *FILE_TYPES]))
WORKLOAD = (
    _flag("batch", "--batch -b", int, "Sequences in flight over the whole deployment.", _CASE),
    _flag("prompt", "--prompt -p", int, "Tokens of a prompt, a cached prefix included.", _CASE),
    _flag("output", "--output -o", int, "Tokens generated per sequence.", _CASE),
    _flag("cached_prefix", "--cached-prefix", int, "Prompt tokens already in the cache.", _CASE),
    _flag(
        "prefix_share", "--prefix-share", float | None,
        "Share of the prompts that find --cached-prefix, as one prefix that is stored once "
        "(default: each finds its own).", _CASE,
    ),
    _flag(
        "prefill_chunk", "--prefill-chunk", int | None,
        "Tokens of a sequence per prefill step (default: all at once).", _CASE,
    ),
)  # fmt: skip
CONTEXT = _flag(
    "context", "--context -c", int, "Prompt and output together, instead of --prompt.", _CASE
)
"""Only where lists of values are taken."""
LAYOUT = (
    _flag("tp", "--tp --tensor-parallel-size", int, "Tensor-parallel ranks.", _LAYOUT),
    _flag("pp", "--pp --pipeline-parallel-size", int, "Pipeline stages.", _LAYOUT),
    _flag("ep", "--ep --expert-parallel-size", int, "Ranks the experts are spread over.", _LAYOUT),
    _flag("dp", "--dp --data-parallel-size", int, "Replicas that share the batch.", _LAYOUT),
    _flag(
        "cp", "--cp --pcp", int,
        "Ranks that share each prompt's tokens and its cache.", _LAYOUT,
    ),
    _flag(
        "dcp", "--dcp", int,
        "TP ranks that share a KV head's cache by tokens instead of copying it.", _LAYOUT,
    ),
    _flag(
        "pp_microbatches", "--pp-microbatches", int,
        "Micro-batches in flight over the pipeline stages.", _LAYOUT,
    ),
    _flag(
        "sequence_parallel", "--sequence-parallel", bool,
        "Reduce-scatter and all-gather for each all-reduce.", _LAYOUT,
    ),
    _flag(
        "expert_skew", "--expert-skew", float,
        "Exponent of the experts' popularity by rank (Zipf); 0: all alike.", _LAYOUT,
    ),
    _flag(
        "comm_overlap", "--comm-overlap", float,
        "Share of a step's exchanges that may run behind its other kernels, 0 to 1.", _LAYOUT,
    ),
    _flag(
        "gpus_per_node", "--gpus-per-node", int | None,
        "GPUs that reach each other without the network (default: the profile's link).", _LAYOUT,
    ),
)  # fmt: skip
FORMATTING = (
    _flag(
        "weights", "--weights --quantization", str,
        f"{_FORMATS}, for every linear layer; auto, or the checkpoint's own name: as it is stored.",
        _FORMAT,
    ),
    _flag(
        "activations", "--activations", str,
        "Inputs of quantised layers: bf16, fp16, fp8, int8, nvfp4; "
        "auto: the checkpoint's, else as the weights where the chip multiplies them.", _FORMAT,
    ),
    _flag(
        "kv_cache", "--kv-cache-dtype --kv-cache", str,
        f"Cached keys and values: bf16, {KINDS} and others; auto: the checkpoint's, else bf16.",
        _FORMAT,
    ),
    _flag(
        "communication", "--comm-dtype", str,
        "What GPUs exchange: fp8, fp8_block, int8, int8_g128 and others; auto: bf16.", _FORMAT,
    ),
)  # fmt: skip
CACHE = (
    _flag(
        "kv_layout", "--kv-layout", Literal["paged", "contiguous", "flat"] | None,
        "paged, contiguous or flat: how the cache is set aside (default: the engine's).",
        _CACHE,
    ),
    _flag("block_size", "--block-size", int | None, "Tokens in a block of the cache.", _CACHE),
    _flag(
        "max_model_len", "--max-model-len", int | None,
        "Length that the contiguous layout reserves.", _CACHE,
    ),
    _flag(
        "kv_manager", "--kv-manager", Literal["ideal", "hybrid", "uniform"],
        "Blocks of layers that keep different lengths: ideal, a pool for each; hybrid, vLLM's "
        "groups of equal pages; uniform, windows stored like full attention.", _CACHE,
    ),
    _flag(
        "kv_window", "--kv-window", int | None,
        "StreamingLLM: last tokens that full attention keeps.", _CACHE,
    ),
    _flag(
        "kv_sinks", "--kv-sinks", int | None,
        "First tokens that it keeps beside --kv-window (default: 4).", _CACHE,
    ),
    _flag(
        "kv_budget", "--kv-budget", int | None,
        "Eviction (H2O, SnapKV): tokens that full attention keeps after the prompt.", _CACHE,
    ),
    _flag(
        "kv_offload", "--kv-offload", float,
        "Share of the cache that lies outside the device and is read each step.", _CACHE,
    ),
    _flag(
        "kv_offload_to", "--kv-offload-to", Literal["host", "ssd"],
        "host or ssd: where it lies, and where a swapped sequence does.", _CACHE,
    ),
    _flag(
        "ssd_gb_s", "--ssd-gb-s", float | None,
        "GB/s of one device's share of the SSDs; no profile states it.", _CACHE,
    ),
    _flag(
        "cpu_offload_gb", "--cpu-offload-gb", float,
        "GiB of each device's weights that lie in host memory.", _CACHE,
    ),
    _flag(
        "offload_overlap", "--offload-overlap", float,
        "Share of the transfers that runs beside the kernels: 0 adds them, 1 takes the longer.",
        _CACHE,
    ),
)  # fmt: skip
ENGINE = (
    _flag("engine", "--engine", str, f"{', '.join(engine_names())}, or a YAML file.", _ENGINE),
    _flag(
        "stack", "--stack", str | None,
        "Whose kernels: vllm, torch, a file of `calibrate fit`, or generic "
        "(default: the engine's or the device's).", _ENGINE,
    ),
    _flag(
        "execution", "--execution", Literal["graph", "eager"] | None,
        "graph or eager: kernels replayed, or launched one by one (default: the engine's).",
        _ENGINE,
    ),
    _flag(
        "graph_batch", "--graph-batch", int | None,
        "Largest decode batch that is captured (default: the engine's).", _ENGINE,
    ),
    _flag(
        "attention", "--attention", Literal["fused", "unfused", "flash2", "flash3"] | None,
        "fused or unfused: scores stay on chip, or don't; flash2 or flash3: that FlashAttention "
        "(default: the engine's).", _ENGINE,
    ),
    _flag(
        "fusion", "--fusion", Literal["none", "engine", "full"],
        "none, engine or full: which elementwise passes share a kernel, as one operation at a "
        "time, as engines do, or as a compiler.", _ENGINE,
    ),
    _flag(
        "gpu_memory_utilization", "--gpu-memory-utilization", float | None,
        "Share of device memory that the engine uses.", _ENGINE,
    ),
    _flag("max_num_seqs", "--max-num-seqs", int | None, "Sequences in a step at most.", _ENGINE),
    _flag(
        "max_num_batched_tokens", "--max-num-batched-tokens", int | None,
        "Tokens in a step at most.", _ENGINE,
    ),
)  # fmt: skip
DEPLOYMENT = LAYOUT + FORMATTING + CACHE + ENGINE


class Rates:
    """The kind of a flag that takes a rate, or one per depth separated by commas."""


class Counts:
    """The kind of a flag that takes a whole number, or several separated by commas."""


class Branching:
    """The kind of a flag that takes whole numbers separated by commas."""


SPECULATION = (
    _flag(
        "method", "--speculative-method", str | None,
        "draft, medusa, eagle, mtp, ngram or lookahead: who drafts tokens.", _SPECULATION,
    ),
    _flag(
        "draft_model", "--draft-model", str | None,
        "The model that drafts (draft, eagle); as MODEL.", _SPECULATION,
    ),
    _flag(
        "draft_weights", "--draft-weights", str,
        "Format of the draft's linear layers; auto: its checkpoint's, for mtp the target's.",
        _SPECULATION,
    ),
    _flag(
        "tokens", "--num-speculative-tokens", int | None,
        "Tokens of a chain that a round drafts; 0: plain decoding.", _SPECULATION,
    ),
    _flag(
        "tree", "--tree", Branching | None,
        "Instead of a chain: children of each node by depth, such as 4,2,1.", _SPECULATION,
    ),
    _flag(
        "acceptance", "--acceptance", Rates | None,
        "Chance that a drafted token is accepted once its parent is; one, or one per depth.",
        _SPECULATION,
    ),
    _flag(
        "accepted_length", "--accepted-length", float | None,
        "Instead of a rate: the measured mean of tokens per round, the bonus token counted.",
        _SPECULATION,
    ),
    _flag(
        "draft_cost", "--draft-cost", float | None,
        "What a drafted token adds to a round, as a share of a plain step, as measured "
        "(default: from the operators).", _SPECULATION,
    ),
)  # fmt: skip
