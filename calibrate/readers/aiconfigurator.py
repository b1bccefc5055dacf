"""aiconfigurator's performance database: Parquet, or the CSV in ``.txt`` of older releases.

Columns as its collectors write and its loaders read them (github.com/ai-dynamo/aiconfigurator:
``collector/``, ``aic-core/…/sdk/operations/*.py``): framework, version, device, op_name,
kernel_source, then the family's; times are ``latency`` in ms. A decode row's context is
``isl`` + ``step``; a collective's ``message_size`` counts elements.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibrate.readers.part import Part, device_of
from calibrate.schema import TIME, Family, Indices, numeric
from perfmodel.errors import InputError

LAYOUT = "aiconfigurator"
ORIGIN = {"version": "framework_version", "kernel_source": "kernel"}
ATTENTION = {
    "batch_size": "batch", "num_heads": "heads", "num_key_value_heads": "kv_heads",
    "kv_cache_dtype": "kv_dtype", "window_size": "window",
}  # fmt: skip
MOE = {
    "moe_dtype": "dtype", "num_tokens": "tokens", "hidden_size": "hidden", "inter_size": "inter",
    "num_experts": "experts", "moe_tp_size": "moe_tp", "moe_ep_size": "moe_ep",
}  # fmt: skip
MLA_HEADS = 128
"""DeepSeek's, which older files divide by ``tp_size`` instead of stating heads."""
WIDTHS = {"half": 2, "bfloat16": 2, "float16": 2, "int8": 1, "fp8": 1, "float": 4, "float32": 4}


def read(frame: pd.DataFrame, numbers: Indices, path: Path) -> list[Part]:
    """The file's one part; none where the columns are another tool's.

    Raises:
        InputError: a time or length that isn't a number.
    """
    columns = set(frame.columns)
    if "latency" not in columns or TIME in columns or "kernel_source" not in columns:
        return []
    out = frame.rename(columns=ORIGIN)
    out["gpu"] = [device_of(path) or str(name) for name in _column(frame, "device", "")]
    out[TIME] = numeric(frame["latency"], "latency", numbers, str(path)) * 1e3
    family, out = _family(out, frame, numbers, path)
    return [Part(family, out.drop(columns="latency"), numbers, LAYOUT)]


def _family(
    out: pd.DataFrame, frame: pd.DataFrame, numbers: Indices, path: Path
) -> tuple[Family, pd.DataFrame]:
    columns = set(frame.columns)
    if "gemm_dtype" in columns:
        return "gemm", out.rename(columns={"gemm_dtype": "dtype"})
    if "moe_dtype" in columns:
        return "moe", out.rename(columns=MOE)
    if columns & {"nccl_dtype", "allreduce_dtype"}:
        return "collective", _collective(out, numbers, path)
    if columns & {"attn_dtype", "mla_dtype"}:
        return _attention(out, numbers, path)
    raise InputError(
        f"{path}: an aiconfigurator table of gemm, attention, mla, moe or nccl is read, not one "
        f"of {', '.join(sorted(columns))[:200]}"
    )


def _column(frame: pd.DataFrame, name: str, default: Any) -> pd.Series[Any]:
    return frame[name] if name in frame else pd.Series([default] * len(frame), index=frame.index)


def _attention(out: pd.DataFrame, numbers: Indices, path: Path) -> tuple[Family, pd.DataFrame]:
    prefix = "mla" if "mla_dtype" in out else "attention"
    out = out.rename(columns=ATTENTION | {"attn_dtype": "dtype", "mla_dtype": "dtype"})
    where = str(path)
    step = numeric(_column(out, "step", 0), "step", numbers, where)
    new = numeric(_column(out, "isl", np.nan), "isl", numbers, where)
    if prefix == "mla" and "heads" not in out:
        out["heads"] = MLA_HEADS // numeric(out["tp_size"], "tp_size", numbers, where)
    if prefix == "attention":
        out["window"] = _column(out, "window", 0)
        out["head_dim"] = _column(out, "head_dim", 128)
    out = out.drop(columns=[name for name in ("isl", "step") if name in out])
    decode = _column(out, "op_name", path.name).astype(str).str.contains("generation|decode")
    if decode.nunique() > 1:
        raise InputError(f"{where}: mixes context and generation rows: split it by op_name")
    if decode.iloc[0]:
        out["kv_len"] = new + step
        return ("mla_decode" if prefix == "mla" else "attention_decode"), out
    out["q_len"] = new
    out["prefix_len"] = step
    return ("mla_prefill" if prefix == "mla" else "attention_prefill"), out


def _collective(out: pd.DataFrame, numbers: Indices, path: Path) -> pd.DataFrame:
    names = {"nccl_dtype": "dtype", "allreduce_dtype": "dtype", "op_name": "op"}
    out = out.rename(columns=names)
    out["op"] = _column(out, "op", "all_reduce")
    width = out["dtype"].astype(str).map(WIDTHS)
    unknown = np.flatnonzero(width.isna())
    if len(unknown):
        raise InputError(
            f"{path}: row {numbers[unknown[0]]}, dtype: no width is known for "
            f"{out['dtype'].iloc[unknown[0]]!r:.60}"
        )
    elements = numeric(out["message_size"], "message_size", numbers, str(path))
    out["message_bytes"] = elements * width
    return out.drop(columns="message_size")
