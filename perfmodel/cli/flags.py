"""The flags of a case: each field of a workload and a deployment is one flag, by topic.

Flags follow vLLM's names where it has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from perfmodel.specs.engine import engine_names
from perfmodel.specs.formats import FORMATS


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
_FORMATS = ", ".join(FORMATS)
WORKLOAD = (
    _flag("batch", "--batch -b", int, "Sequences in flight over the whole deployment.", _CASE),
    _flag("prompt", "--prompt -p", int, "Tokens of a prompt, a cached prefix included.", _CASE),
    _flag("output", "--output -o", int, "Tokens generated per sequence.", _CASE),
    _flag("cached_prefix", "--cached-prefix", int, "Prompt tokens already in the cache.", _CASE),
    _flag(
        "prefill_chunk", "--prefill-chunk", int | None,
        "Tokens of a sequence per prefill step (default: all at once).", _CASE,
    ),
)  # fmt: skip
LAYOUT = (
    _flag("tp", "--tp --tensor-parallel-size", int, "Tensor-parallel ranks.", _LAYOUT),
    _flag("pp", "--pp --pipeline-parallel-size", int, "Pipeline stages.", _LAYOUT),
    _flag("ep", "--ep --expert-parallel-size", int, "Ranks the experts are spread over.", _LAYOUT),
    _flag("dp", "--dp --data-parallel-size", int, "Replicas that share the batch.", _LAYOUT),
)
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
        f"Cached keys and values: {_FORMATS}; auto: the checkpoint's, else bf16.", _FORMAT,
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
)  # fmt: skip
ENGINE = (
    _flag("engine", "--engine", str, f"{', '.join(engine_names())}, or a YAML file.", _ENGINE),
    _flag(
        "stack", "--stack", str | None,
        "Whose kernels: vllm, torch, a file of `calibrate fit`, or generic "
        "(default: the engine's or the device's).", _ENGINE,
    ),
    _flag(
        "execution", "--execution", Literal["graph", "eager"],
        "graph or eager: kernels replayed, or launched one by one.", _ENGINE,
    ),
    _flag(
        "attention", "--attention", Literal["fused", "unfused"] | None,
        "fused or unfused: scores stay on chip, or don't (default: the engine's).", _ENGINE,
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
