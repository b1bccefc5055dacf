"""Rows that can't be compared, each with its reason.

Found while exploring the table (impossible under the roof, copies, not measurements, not a static
batch, facts missing); the ids are the table's.
"""

from __future__ import annotations

from calibrate.published.reader import Row

NOT_STATIC = "the batch's KV cache doesn't fit: not a static batch"
_TP2 = "prefill 5-9x faster than the roof, decode faster than a smaller batch"
_COPIES = "copies of the 0.5.0 rows under 0.6.1: counted once"
_REAL = "marked outliers in the source, 0.02-0.18 of the roof"

_A100 = (
    "437 439 440 446 448 449 455 458 467 471 472 474 483 510 543 549 551 552 558 561 570 579 597"
)
ARGONNE_FULL = frozenset(
    map(int, f"{_A100} 633 660 684 687 777 780 145 214 217".split())  # GH200, H100, MI300X
)
LLAMACPP_OUTLIERS = frozenset(
    [*range(272, 279, 2), *range(332, 339, 2), 376, 378, 436, 438, 468, 470]
)
LLAMACPP_ODD = frozenset([*range(256, 263, 2), 472, 474])

BY_NUMBER: dict[str, list[tuple[frozenset[int], str]]] = {
    "splitwise": [
        (frozenset((147, 148, 237, 238, 315, 316)), _TP2),
        (frozenset((187, 277)), "256-token prefill faster than 128 by 11 %"),
    ],
    "trtllm-static": [
        (frozenset(range(88, 104)), _COPIES),
        (frozenset((80, 84)), NOT_STATIC),
    ],
    "argonne-llm-inference-bench": [(ARGONNE_FULL, NOT_STATIC)],
    "distserve-fit": [
        (frozenset((26, 27, 28, 75, 76, 77)), "fit evaluated where the KV cache doesn't fit")
    ],
    "llamacpp-gpu-bench": [
        (LLAMACPP_OUTLIERS, _REAL),
        (LLAMACPP_ODD, "speed rises with length, or four cards slower than one"),
    ],
    "llamacpp-misc": [(frozenset((15,)), "2.0x the ALU peak: uses matrix units, another peak")],
}

SOURCES = {
    "neusight-fp32": "FP32 activations and logits at every position aren't predicted",
    "tenstorrent": "no hardware profile: Tenstorrent",
    "jetstream-tpu": "continuous batching over slots with ShareGPT lengths, not a static batch",
    "qserve": "largest batch that fits isn't stated, or KV in 4 bits",
    "ninehills-4090": "time through HTTP on a WSL2 host; Yi-6B isn't in the catalogue",
    "deepseek-profile": "two overlapped micro-batches aren't modelled",
    "trtllm-deepseek": "experts in NVFP4 beside attention in BF16 can't be stated, or speculative",
    "dstack-tgi-vllm": "early ROCm build; chunked prefill far below the hardware",
    "vultr-b200": "Nemotron-Super-49B (pruned layers) isn't in the catalogue",
    "vllm-blog": "NVFP4 of Nemotron-3-Super-120B, or peak over a batch that isn't stated",
}
"""Whole sources of static rows that can't be compared."""


def flagged(row: Row) -> str | None:
    """Why a row is left out; None where nothing speaks against it."""
    if row.source in SOURCES:
        return SOURCES[row.source]
    for numbers, reason in BY_NUMBER.get(row.source, []):
        if row.number in numbers:
            return reason
    if "power capped" in row.gpu:
        return "not measurements: exact multiples of the uncapped rows"
    return _flagged_by_setting(row)


def _flagged_by_setting(row: Row) -> str | None:
    if row.source == "splitwise" and row.metric == "ttft_ms" and row.tp >= 4:
        if int(row.prompt) * int(row.batch) >= 4096:
            return "prefill from 4,096 tokens at TP4/8: a slow all-reduce regime above 32-64 MB"
        return None
    if row.engine == "llama.cpp" and row.pp > 1 and row.metric == "prefill_tok_s":
        return "prefill pipelined over a layer split isn't modelled"
    if row.source == "mlc-llm-perf-bench" and row.engine == "llama.cpp":
        return "row split of llama.cpp over PCIe: slower with more cards"
    return None
