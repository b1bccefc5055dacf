"""The cases that every calculator is given, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A static batch: one prefill, then decode steps, in 16 bits."""

    model: str
    """Name in perfmodel's catalogue."""
    hub: str
    """Repository on the hub, as most peers call models."""
    hardware: str
    tp: int
    batch: int
    prompt: int
    output: int


@dataclass(frozen=True)
class Answer:
    """Latencies in milliseconds; None where the peer has no such figure."""

    ttft_ms: float | None
    tpot_ms: float | None


Estimate = Callable[[Case], Answer]
LLAMA, QWEN = "meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-32B"
CASES = (
    Case("llama-3.1-8b", LLAMA, "h100-sxm", 1, 1, 1024, 256),
    Case("llama-3.1-8b", LLAMA, "h100-sxm", 1, 8, 2048, 256),
    Case("llama-3.1-8b", LLAMA, "h100-sxm", 1, 64, 1024, 256),
    Case("qwen3-32b", QWEN, "h100-sxm", 2, 16, 4096, 256),
    Case("qwen3-32b", QWEN, "h200-sxm", 1, 16, 4096, 256),
)
