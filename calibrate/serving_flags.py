"""Rows of serving tables that no goal should rest on, by rule; they are scored apart.

A rule names what is wrong with a campaign as published, not a row that a model misses; each was
found on 2,777 rows of one public repository.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from calibrate.serving_table import Row

Version = tuple[int, ...]


def version_of(text: str) -> Version | None:
    """The leading numbers of a version: ``1.0.0rc3`` is (1, 0, 0); None where there are none."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def _since(row: Row, least: Version) -> bool:
    version = version_of(row.engine_version)
    return version is not None and version >= least


def _campaign(row: Row) -> str | None:
    """The fault of the campaign that the row belongs to."""
    deepseek, fixed = row.model.startswith("deepseek"), row.bench == "fixed-length"
    if row.attention_dp > 1:
        return "attention data parallelism: the layout's fields can't be trusted"
    if row.engine == "trtllm" and deepseek and row.engine_version:
        # Exports of 2025 hold no version; those of 2026 run at 0.5 to 1 of the steps of 2025, and
        # the bench had begun to draft tokens (dsr1_fp8_h200_trt_mtp_slurm.sh).
        return "speculation isn't recorded"
    if row.engine == "trtllm" and fixed and _since(row, (1, 2)):
        # 3 to 10 times off their releases' other rows, or, at 32B, twice as fast as settings allow.
        return "campaign off all others of its engine"
    if row.engine == "vllm" and fixed and row.model == "llama-3.1-8b":
        return "prompts seem to come from the prefix cache"
    if row.engine == "vllm" and fixed and row.model == "qwen3-32b" and row.weights == "fp8":
        return "faster than the settings allow"
    if row.engine == "sglang" and deepseek and row.gpu.startswith("b300"):
        return "campaign off all others of its engine"
    return None


def ttft_flag(row: Row) -> str | None:
    """Why a row's TTFT alone makes no claim."""
    if row.bench == "fixed-length":
        return "fixed lengths: waits that the settings don't explain"
    if row.engine == "sglang" and row.model.startswith("deepseek") and row.gpu.startswith("b200"):
        return "seconds above any step"
    return None


def flags_of(rows: Sequence[Row]) -> list[str]:
    """A reason for each row that is to be scored apart, else an empty text."""
    seen: set[tuple[object, ...]] = set()
    flags = []
    for row in rows:
        key = (row.gpu, row.engine, row.concurrency, row.isl, row.osl, row.ttft_ms, row.tpot_ms)
        repeated = key in seen
        seen.add(key)
        flags.append("repeats an earlier row" if repeated else _campaign(row) or "")
    return flags
