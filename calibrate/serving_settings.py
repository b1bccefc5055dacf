"""What public benchmarks are known to set on servers, where their tables don't say it.

InferenceX (before: InferenceMAX) publishes the scripts that start its servers:
https://github.com/SemiAnalysisAI/InferenceX, ``benchmarks/``. Read there, by file:

* ``70b_fp8_h100_slurm.sh``, ``70b_fp8_h200_slurm.sh`` (vLLM): ``kv-cache-dtype: fp8``,
  ``max-num-batched-tokens: 8192``, ``--max-num-seqs`` the concurrency.
* ``70b_fp8_h200_trt_slurm.sh`` (TensorRT-LLM): cache in ``fp8``, ``--max_num_tokens`` the longest
  sequence; for prompts and outputs of 1,024 on fewer than 8 GPUs ``batch_wait_timeout_iters: 20``:
  a prompt waits 20 steps, as a batch of 0.9 of the tokens seldom comes together.
* ``dsr1_fp8_h200_trt_slurm.sh``: cache in ``fp8``, ``max_num_tokens`` the prompt and the
  concurrency and 64, in multiples of 64; ``free_gpu_memory_fraction: 0.75``; ``stream_interval:
  10``, which doesn't hold the first token back (TensorRT-LLM's pull request 5836, July 2025).
* The same with attention data parallelism (beyond 64 users, 32 with prompts of 8,192), on one node
  of 8 GPUs. Its rows count users by rank: rows of 8 × 8 and of 1 × 64, 32 × 8 and 4 × 64
  (concurrency × attention_dp) hold one measurement each, of 64 and of 256 users.
* ``dsr1_fp8_h200.sh`` (SGLang): ``--chunked-prefill-size 32768``, ``--mem-fraction-static 0.82``,
  ``--stream-interval 10``, of which the first token is the one sent at once (SGLang's
  ``scheduler_output_processor_mixin.py``: each whose number leaves 1).

Prompts are random tokens, whose routing isn't even: experts are taken as popular as under
AIConfigurator's power law (exponent 1.01), which touches as many of 256 experts with 32 to 128
tokens as ranks' popularity with exponent `EXPERT_SKEW`.

What other benchmarks set isn't known: they run on an engine's defaults here.

A client sees a token `OVERLAPPED` steps after it was computed where the engine works on a step's
output while the next one runs: ``--async-scheduling`` in InferenceX's vLLM, SGLang's overlap
scheduler and TensorRT-LLM's, both on by default.
"""

from __future__ import annotations

from dataclasses import dataclass

from calibrate.serving_table import Row

INFERENCEX = "inferencex"
OVERLAPPED = 1.0
LONGEST_SEQUENCE = 9416
"""``MAX_MODEL_LEN`` of a prompt and an output of 1,024 and 8,192, in either order."""


EXPERT_SKEW = 0.7
"""128, 194 and 209 experts of 256 for 32, 64 and 128 tokens of 8 experts; this: 130, 185, 230."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Who sends requests, and the attention replicas that share them and the experts."""

    users: int
    ranks: int = 1


def spread_of(row: Row) -> Spread:
    """Users and ranks of a row; one rank where experts aren't spread beyond its ``tp`` GPUs."""
    if row.attention_dp == 1 or row.ep <= row.tp:
        return Spread(row.concurrency)
    if row.bench == INFERENCEX:
        return Spread(row.concurrency * row.attention_dp, row.ep // row.tp)
    return Spread(row.concurrency, row.attention_dp)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a server that its row doesn't state; None: the engine's default."""

    kv_cache: str | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    ttft_steps: float = 0.0


def settings_of(row: Row) -> Settings:
    """What the row states, then what is known of its bench."""
    known = _known(row)
    overlaps = row.engine in {"sglang", "trtllm"} or row.bench == INFERENCEX
    steps = known.ttft_steps + (OVERLAPPED if overlaps else 0.0)
    return Settings(
        kv_cache=row.kv_cache or known.kv_cache,
        max_num_batched_tokens=row.max_num_batched_tokens or known.max_num_batched_tokens,
        gpu_memory_utilization=known.gpu_memory_utilization,
        ttft_steps=steps if row.ttft_steps is None else row.ttft_steps,
    )


def _known(row: Row) -> Settings:
    if row.bench != INFERENCEX:
        return Settings()
    deepseek = row.model.startswith("deepseek")
    if row.engine == "trtllm" and deepseek:
        tokens = (row.concurrency + row.isl + 64 + 63) // 64 * 64
        return Settings("fp8", tokens, 0.75)
    if row.engine == "sglang" and deepseek:
        return Settings(max_num_batched_tokens=32_768, gpu_memory_utilization=0.82)
    if row.model.startswith("llama") and row.engine == "trtllm":
        even = row.isl == row.osl == 1024
        tokens = 2 * 1024 + 20 if even else LONGEST_SEQUENCE
        return Settings("fp8", tokens, ttft_steps=20.0 if even and row.tp < 8 else 0.0)
    if row.model.startswith("llama") and row.engine == "vllm":
        return Settings("fp8", 8192)
    return Settings()
