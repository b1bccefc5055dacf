"""What the table calls models, devices, formats and engines of served rows, in our names.

A name that is neither here nor in `calibrate.published.names` can't be mapped, and its rows are
counted with that reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from calibrate.published import names

SERVED = frozenset({
    "burst_all_at_once", "closed_loop_concurrency", "max_throughput", "max_throughput_disagg",
    "max_throughput_offline", "mlperf", "open_loop_qps", "open_loop_rate", "prefill_only",
    "production", "slots",
})  # fmt: skip
"""Load modes of the table that are a load; the others are single batches, memory, speculation."""

MODELS = names.MODELS | {
    "DeepSeek-R1": "deepseek-r1",
    "DeepSeek-R1-0528": "deepseek-r1",
    "DeepSeek-V3.2": "deepseek-v3.2",
    "GLM-4.6": "glm-4.6",
    "GLM-4.6-FP8": "glm-4.6",
    "GPT-OSS-20B": "gpt-oss-20b",
    "GPT-OSS-120B": "gpt-oss-120b",
    "Llama-3.3-70B": "llama-3.3-70b",
    "Llama-4-Scout": "llama-4-scout-17b-16e",
    "Mixtral 8x22B": "mixtral-8x22b-v0.1",
    "Nemotron-Nano-30B-A3B": "nemotron-3-nano-30b-a3b",
    "Qwen3-32B": "qwen3-32b",
    "Qwen3-32B-AWQ": "qwen3-32b",
    "Qwen3-32B-FP8": "qwen3-32b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "Qwen3-235B-A22B-Instruct-2507": "qwen3-235b-a22b",
    "Qwen3-235B-A22B-Instruct-2507-FP8": "qwen3-235b-a22b",
    "Qwen3.5-35B-A3B": "qwen3.5-35b-a3b",
}

DEVICES = names.DEVICES | {
    "Arc Pro B60 24GB": "arc-pro-b60",
    "B200-SXM-180GB": "b200-sxm",
    "GB200-192GB": "gb200",
    "RTX-PRO-6000-Server-96GB": "rtx-pro-6000",
}

WEIGHTS = {name: found.name for name, found in names.WEIGHTS.items() if not found.head} | {
    "awq int4": "int4",
    "fp4": "nvfp4",
    "mxfp4": "auto",
}
"""``mxfp4``: gpt-oss as it is published, its attention in 16 bits."""
BLOCK_SCALED = ("Qwen3-", "DeepSeek")
"""Models whose own FP8 checkpoints have a scale for each 128 × 128 block."""


@dataclass(frozen=True, slots=True)
class ServedEngine:
    """A source's engine: its preset, and the scheduler where it isn't the preset's."""

    preset: str
    label: str
    scheduler: str | None = None


CHUNKED = "inflight_no_evict_chunked"
"""`trtllm-bench`: GUARANTEED_NO_EVICT, and --enable_chunked_context by default."""

ENGINES: dict[tuple[str, str], ServedEngine] = {
    ("dstack-pd-ratio", "SGLang (PD disaggregation)"): ServedEngine("sglang", "SGLang"),
    ("gpustack-lab", "SGLang"): ServedEngine("sglang", "SGLang"),
    ("gpustack-lab", "TensorRT-LLM"): ServedEngine("trtllm-2025", "TensorRT-LLM"),
    ("gpustack-lab", "vLLM"): ServedEngine("vllm", "vLLM"),
    ("llmservingsim-vllm", "vLLM"): ServedEngine("vllm", "vLLM"),
    ("lmdeploy-sharegpt", "LMDeploy TurboMind"): ServedEngine("lmdeploy", "LMDeploy"),
    ("trtllm-deepseek", "TensorRT-LLM (PyTorch backend)"): ServedEngine(
        "trtllm-2025", "TensorRT-LLM"
    ),
    ("sglang-largeep", "SGLang"): ServedEngine("sglang", "SGLang"),
    # Not `trtllm`: its numbers are of 2023, before XQA kernels of 8-bit caches.
    ("trtllm-maxload-v0.14", "TensorRT-LLM"): ServedEngine("trtllm-2025", "TensorRT-LLM", CHUNKED),
    ("trtllm-maxload-v1.0", "TensorRT-LLM (PyTorch backend)"): ServedEngine(
        "trtllm-2025", "TensorRT-LLM", CHUNKED
    ),
    ("vllm-blog", "vLLM"): ServedEngine("vllm", "vLLM"),
    ("vllm-blog", "vLLM (XPU)"): ServedEngine("vllm", "vLLM"),
    ("vultr-b200", "vLLM"): ServedEngine("vllm", "vLLM"),
}
