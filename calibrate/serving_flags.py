"""Rows of serving tables that no goal should rest on, by rule; they are scored apart.

A rule names what is wrong with a campaign as published, not a row that a model misses; each was
found on 2,777 rows of one public repository.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from calibrate.serving_table import Row

Version = tuple[int, ...]
FIXED = "fixed-length"


def version_of(text: str) -> Version | None:
    """The leading numbers of a version: ``1.0.0rc3`` is (1, 0, 0); None where there are none."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def _since(row: Row, least: Version) -> bool:
    version = version_of(row.engine_version)
    return version is not None and version >= least


def _speculates(row: Row) -> bool:
    """Exports of 2025 hold no version; those of 2026 run at 0.5 to 1 of the steps of 2025.

    The bench had begun to draft tokens (``dsr1_fp8_h200_trt_mtp_slurm.sh``).
    """
    return row.engine == "trtllm" and row.model.startswith("deepseek") and row.engine_version != ""


def _off_campaign(row: Row) -> bool:
    """3 to 10 times off their releases' other rows, or, at 32B, twice as fast as settings allow."""
    if row.engine == "trtllm":
        return row.bench == FIXED and _since(row, (1, 2))
    return row.engine == "sglang" and row.model.startswith("deepseek") and row.gpu[:4] == "b300"


RULES: Mapping[str, Callable[[Row], bool]] = {
    "attention data parallelism: the layout's fields can't be trusted":
        lambda row: row.attention_dp > 1,
    "speculation isn't recorded": _speculates,
    "campaign off all others of its engine": _off_campaign,
    "prompts seem to come from the prefix cache":
        lambda row: (row.engine, row.bench, row.model) == ("vllm", FIXED, "llama-3.1-8b"),
    "faster than the settings allow":
        lambda row: (row.engine, row.bench, row.model, row.weights)
        == ("vllm", FIXED, "qwen3-32b", "fp8"),
}  # fmt: skip
"""What is wrong with the campaign that a row belongs to; the first that holds counts."""


def ttft_flag(row: Row) -> str | None:
    """Why a row's TTFT alone makes no claim."""
    if row.bench == FIXED:
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
        repeated = key in seen and math.isfinite(row.tpot_ms)
        seen.add(key)
        campaign = next((name for name, holds in RULES.items() if holds(row)), "")
        flags.append("repeats an earlier row" if repeated else campaign)
    return flags
