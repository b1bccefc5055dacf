"""Attention: from a table of measured calls of one device and cache type to a calibrated set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd

from calibrate.calibrated import CalibratedSet, calibrate_set, held_out
from calibrate.design import represent
from calibrate.score import Score
from perfmodel.kernels.forms import mla
from perfmodel.kernels.forms.attention_decode import AttentionDecode
from perfmodel.kernels.forms.attention_parts import Kernel
from perfmodel.kernels.forms.attention_prefill import AttentionPrefill
from perfmodel.kernels.forms.base import Chip, Form
from perfmodel.kernels.forms.mla import MlaDecode, MlaPrefill
from perfmodel.operators.quantity import Array
from perfmodel.specs.hardware import Hardware
from perfmodel.units import MICROSECOND

Family = Literal["attention_decode", "attention_prefill", "mla_decode", "mla_prefill"]
SIZES = ("batch", "q_len", "prefix_len", "kv_len", "heads", "kv_heads", "head_dim", "window")
FOLDS = 5
KV_BYTES = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0}
KERNELS: dict[str, Kernel] = {
    "fa3": "fa3",
    "trtllm": "trtllm",
    "flashinfer_fi": "flashinfer",
    "flash_attn": "fa2",
}
"""Rules by part of the kernels' names; the first that matches. vLLM 0.14 says only
``vllm_flash_attn``, which on an A100 is FlashAttention-2."""


def rows_of(table: pd.DataFrame) -> tuple[dict[str, Array], Array]:
    """Shapes (n,) by name and seconds (n,) of one device and cache type; repeats at their median.

    Raises:
        ValueError: rows of several devices or cache types.
    """
    for name in ("gpu", "kv_dtype"):
        if table[name].nunique() != 1:
            raise ValueError(f"rows of one {name} are needed, not of {table[name].nunique()}")
    sizes = [name for name in SIZES if name in table]
    merged = table.groupby(sizes, as_index=False)["latency_us"].median()
    shapes = {name: merged[name].to_numpy(dtype=np.float64) for name in sizes}
    width = KV_BYTES[str(table["kv_dtype"].iloc[0])]
    shapes["kv_bytes"] = np.full(len(merged), width)
    return shapes, merged["latency_us"].to_numpy(dtype=np.float64) * MICROSECOND


def chip_of(hardware: Hardware, kernels: str, kv_dtype: str) -> Chip:
    """The constants for kernels that multiply in fp8 where the cache is fp8, else in bf16."""
    narrow = kv_dtype == "fp8" and any(name in kernels for name in ("fa3", "trtllm"))
    peak = hardware.peak("fp8" if narrow else "bf16")
    if peak is None:
        raise ValueError(f"{hardware.name} states no peak for these kernels")
    return Chip(
        peak=peak,
        bandwidth=hardware.memory_bandwidth,
        sm_count=hardware.sm_count or 1,
        clock_hz=hardware.clock_hz or 1e9,
        l2_bytes=hardware.l2_bytes or 1.0,
    )


def form_for(
    family: Family, kernels: str, *, cold: bool = False, capability: str | None = None
) -> Form:
    """The form with the rules of the kernels that the rows name, joined by blanks.

    ``cold``: keys come from device memory, as in a model's step; measured calls repeat. The
    forms of MLA have no warm share. ``capability`` is CUDA's, as a hardware profile states it.
    """
    if family == "mla_decode":
        return MlaDecode(kernel=_mla_kernel(kernels))
    if family == "mla_prefill":
        return MlaPrefill(kernel=_mla_kernel(kernels))
    if family == "attention_prefill":
        small = capability in ("8.6", "8.9")
        return AttentionPrefill(cold=cold, kernel=_kernel(kernels), small=small)
    return AttentionDecode(cold=cold, kernel=_kernel(kernels))


def _mla_kernel(kernels: str) -> mla.Kernel:
    if "triton" in kernels:
        return "triton"
    return "flashmla" if "flashmla" in kernels else "flash_attn"


def _kernel(kernels: str) -> Kernel:
    for part, kernel in KERNELS.items():
        if part in kernels:
            return kernel
    return "any"


def calibrate_attention(
    family: Family,
    table: pd.DataFrame,
    hardware: Hardware,
    count: int = 300,
    seed: int = 0,
    folds: int = FOLDS,
) -> tuple[CalibratedSet, Mapping[str, Score]]:
    """Fit a family on at most ``count`` rows of ``table``; score it on all others by regime."""
    kernels = " ".join(sorted(table["kernel"].unique()))
    chip = chip_of(hardware, kernels, str(table["kv_dtype"].iloc[0]))
    shapes, measured = rows_of(table)
    form = form_for(family, kernels, capability=hardware.compute_capability)
    fitted = calibrate_set(form, chip, shapes, measured, count, seed, pick=represent, folds=folds)
    return fitted, held_out(fitted, shapes, measured)
