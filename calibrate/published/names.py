"""What the table calls models, devices, formats and engines, in our names.

A name that isn't here can't be mapped, and the row is counted with that reason.
"""

from __future__ import annotations

from dataclasses import dataclass

MODELS = {
    "BLOOM-176B": "bloom-176b",
    "Falcon 180B": "falcon-180b",
    "GPT-J 6B": "gpt-j-6b",
    "Llama-7B": "llama-1-7b",
    "Llama-13B": "llama-1-13b",
    "Llama-2-7B": "llama-2-7b",
    "Llama-2-13B": "llama-2-13b",
    "Llama-2-70B": "llama-2-70b",
    "Llama-3-8B": "llama-3-8b",
    "Llama-3-70B": "llama-3-70b",
    "Llama-3.1-8B": "llama-3.1-8b",
    "Llama-3.1-70B": "llama-3.1-70b",
    "Llama-3.1-405B": "llama-3.1-405b",
    "Mistral 7B": "mistral-7b-v0.1",
    "Mixtral 8x7B": "mixtral-8x7b-v0.1",
    "OPT-13B": "opt-13b",
    "Qwen2.5-0.5B-Instruct": "qwen2.5-0.5b",
    "Qwen2.5-1.5B-Instruct": "qwen2.5-1.5b",
    "Qwen2.5-3B-Instruct": "qwen2.5-3b",
    "Qwen2.5-7B-Instruct": "qwen2.5-7b",
    "Qwen2.5-32B-Instruct": "qwen2.5-32b",
    "Qwen2.5-72B-Instruct": "qwen2.5-72b",
    "Qwen3-8B": "qwen3-8b",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "TinyLlama-1.1B": "tinyllama-1.1b",
    # The same layers as Llama-2-7B and 13B; the vision tower isn't part of these rows.
    "VILA-7B": "llama-2-7b",
    "VILA-13B": "llama-2-13b",
    "Vicuna-7B": "llama-2-7b",
}

DEVICES = {
    "A100 (memory size not in file)": "a100-sxm-40gb",  # its KV room shows the 40 GB part
    "A100-80GB": "a100-sxm-80gb",
    "A100-PCIE-80GB": "a100-pcie-80gb",
    "A100-SXM-80GB": "a100-sxm-80gb",
    "A100-SXM-80GB(330W)": "a100-sxm-80gb",
    "A10G-24GB": "a10g",
    "A40-48GB": "a40",
    "GH200 (memory size not stated)": "gh200-96gb",
    "Gaudi2": "gaudi2",
    "H100 (80 GB)": "h100-sxm",
    "H100-PCIE-80GB": "h100-pcie",
    "H100-SXM-80GB": "h100-sxm",
    "H20-96GB": "h20",
    "H200-SXM-141GB": "h200-sxm",
    "L40S-48GB": "l40s",
    "M1 Max 32-Core GPU 64GB": "m1-max",
    "M2 Ultra 76-Core GPU 192GB": "m2-ultra",
    "M3 Max 40-Core GPU 64GB": "m3-max",
    "MI300X-192GB": "mi300x",
    "RTX 3090 24GB": "rtx-3090",
    "RTX 4090 24GB": "rtx-4090",
    "RTX 5090 32GB": "rtx-5090",
    "RTX 6000 Ada 48GB": "rtx-6000-ada",
    "RTX A6000 48GB": "rtx-a6000",
}


@dataclass(frozen=True, slots=True)
class Weights:
    """A weight format of the table in our terms."""

    name: str
    activations: str = "auto"
    head: bool = False
    """The LM head is quantised too."""


WEIGHTS = {
    "awq": Weights("int4"),
    "bf16": Weights("bf16"),
    "exl2-2.5bpw": Weights("exl2_2.5", head=True),
    "exl2-3.0bpw": Weights("exl2_3.0", head=True),
    "exl2-4.0bpw": Weights("exl2_4.0", head=True),
    "exl2-5.0bpw": Weights("exl2_5.0", head=True),
    "fp16": Weights("bf16"),
    "fp16/bf16": Weights("bf16"),
    "fp8": Weights("fp8"),
    "fp8-block": Weights("fp8_block"),
    "gguf-F16": Weights("bf16"),
    "gguf-Q4_0": Weights("q4_0"),
    "gguf-Q4_K_M": Weights("q4_k_m"),
    "gguf-Q8_0": Weights("q8_0"),
    "gptq-4bit-g128": Weights("int4"),
    "gptq-4bit-g128-act": Weights("int4"),
    "gptq-int4": Weights("int4"),
    "gptq-int8": Weights("int8_g128_z8"),
    "int4 (q4f16 / GPTQ / Q4_0)": Weights("q4_0", head=True),
    "int4-awq-g128": Weights("int4"),
    "int4-wo-g32": Weights("int4_g32_z16", head=True),
    "int8-smoothquant": Weights("int8"),
    "int8-wo": Weights("int8", activations="bf16", head=True),
}
CACHES = {"fp8": "fp8", "fp8_e4m3": "fp8"}
"""Cache formats other than 16 bits."""


@dataclass(frozen=True, slots=True)
class EngineName:
    """A source's engine: its preset, its class, and what scores are reported under."""

    preset: str
    family: str
    """One of ``compiled, gguf, python, rocm, eager``: what unseen sources learn from."""
    label: str = ""
    """Tells engines of one source apart."""


ENGINES: dict[tuple[str, str], EngineName] = {
    ("argonne-llm-inference-bench", "TensorRT-LLM"): EngineName("trtllm", "compiled", "trtllm"),
    ("argonne-llm-inference-bench", "vLLM"): EngineName("vllm-2024", "python", "vllm"),
    ("argonne-llm-inference-bench", "Deepspeed"): EngineName("compiled", "compiled", "gaudi2"),
    ("distserve-fit", "SwiftTransformer (DistServe)"): EngineName("compiled", "compiled", "swift"),
    ("distserve-fit", "vLLM (early 2024)"): EngineName("eager-2023", "eager", "vllm"),
    ("exllama", "ExLlamaV2"): EngineName("exllama", "compiled"),
    ("exllama", "ExLlama v1"): EngineName("exllama", "compiled"),
    ("gpt-fast", "gpt-fast (torch.compile, static KV cache)"): EngineName(
        "torch-compile", "compiled"
    ),
    ("infersim-actual", "SGLang"): EngineName("vllm", "python"),
    ("llamacpp-gpu-bench", "llama.cpp"): EngineName("llamacpp-cuda", "gguf"),
    ("llamacpp-misc", "llama.cpp"): EngineName("llamacpp-cuda", "gguf"),
    ("mlc-llm-perf-bench", "MLC-LLM"): EngineName("mlc", "compiled", "mlc"),
    ("mlc-llm-perf-bench", "ExLlamaV2"): EngineName("exllama", "compiled", "exllamav2"),
    ("mlc-llm-perf-bench", "vLLM"): EngineName("eager-2023", "eager", "vllm"),
    ("qwen2.5-speed", "vLLM"): EngineName("vllm-0.6", "python"),
    ("splitwise", "Splitwise profiling (eager PyTorch-class serving, 2023)"): EngineName(
        "eager-2023", "eager"
    ),
    ("tinychat", "TinyChat"): EngineName("tinychat", "compiled", "awq"),
    ("tinychat", "PyTorch FP16 with TinyChat fused kernels (baseline)"): EngineName(
        "compiled", "compiled", "fp16"
    ),
    ("tinychat", "FP16 baseline"): EngineName("compiled", "compiled", "fp16"),
    ("trtllm-blogs", "TensorRT-LLM"): EngineName("trtllm", "compiled"),
    ("trtllm-static", "TensorRT-LLM"): EngineName("trtllm", "compiled"),
    ("vllm-ci", "vLLM"): EngineName("vllm-0.6", "python"),
}
APPLE = {"m1-max", "m2-ultra", "m3-max"}
PCIE_SOURCES = {"mlc-llm-perf-bench"}
"""Sources whose cards have no direct link between them although the profile lists one."""

HOST_SPEED = {("splitwise", "h100-sxm"): 0.68}
"""Hosts known to be faster than the one that a preset was fitted on: an input, not a prediction.
Splitwise's H100 machine needs 0.68 of its A100 machine's time per step at every size."""
ROCM_PRESET = {"vllm-2024": "vllm-2024-rocm"}
"""Presets of the same engine on AMD's devices."""
