"""Vidur's profiles: ``mlp.csv``, ``attention.csv`` and ``all_reduce.csv``.

Columns as its profiler writes them (github.com/microsoft/vidur: ``vidur/profiling``,
``data/profiling``): ``time_stats.<operation>.median`` in ms beside the model's sizes. One row of
``mlp.csv`` is four matrix products; one of ``attention.csv`` is either a prefill of one chunk or a
decode. Sizes are the whole model's: a GPU has 1/``num_tensor_parallel_workers`` of the heads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibrate.readers.part import Part, device_of
from calibrate.schema import TIME, Family, Indices, numeric

LAYOUT = "vidur"
DTYPE = "float16"
"""Vidur profiles in 16 bits and doesn't write which."""
Number = Callable[[str], "pd.Series[float]"]


def read(frame: pd.DataFrame, numbers: Indices, path: Path) -> list[Part]:
    """The file's parts; none where the columns are another tool's.

    Raises:
        InputError: a time or size that isn't a number.
    """
    columns = set(frame.columns)
    if not any(name.startswith("time_stats.") for name in columns):
        return []
    if {"num_tokens", "n_embd"} <= columns:
        return _mlp(frame, numbers, path)
    if {"kv_cache_size", "prefill_chunk_size", "is_prefill"} <= columns:
        return _attention(frame, numbers, path)
    if {"collective", "num_workers", "size"} <= columns:
        return _collective(frame, numbers, path)
    return []


def _numbers(frame: pd.DataFrame, numbers: Indices, path: Path) -> Number:
    return lambda name: numeric(frame[name], name, numbers, str(path))


def _named(frame: pd.DataFrame, path: Path, kernel: Any, dtype: str = DTYPE) -> pd.DataFrame:
    out = pd.DataFrame(index=frame.index)
    out["gpu"], out["framework"], out["framework_version"] = device_of(path), "vidur", ""
    out["kernel"], out["dtype"] = kernel, dtype
    return out


def _mlp(frame: pd.DataFrame, numbers: Indices, path: Path) -> list[Part]:
    number = _numbers(frame, numbers, path)
    hidden, ranks = number("n_embd"), number("num_tensor_parallel_workers")
    head = hidden / number("n_head")
    qkv = (number("n_head") + 2 * number("n_kv_head")) * head
    inter = number("n_expanded_embd")
    gated = frame["use_gated_mlp"].astype(str).str.lower() == "true"
    products: dict[str, tuple[Any, Any]] = {
        "attn_pre_proj": (qkv / ranks, hidden),
        "attn_post_proj": (hidden, hidden / ranks),
        "mlp_up_proj": (np.where(gated, 2, 1) * inter / ranks, hidden),
        "mlp_down_proj": (hidden, inter / ranks),
    }
    parts = []
    for name, (n, k) in products.items():
        column = f"time_stats.{name}.median"
        if column not in frame:
            continue
        out = _named(frame, path, f"vidur_{name}")
        out["m"], out["n"], out["k"] = number("num_tokens"), n, k
        out[TIME] = number(column) * 1e3
        parts.append(out)
    if not parts:
        return []
    every = pd.concat(parts, ignore_index=True)
    return [Part("gemm", every, np.tile(numbers, len(parts)), LAYOUT)]


def _attention(frame: pd.DataFrame, numbers: Indices, path: Path) -> list[Part]:
    prefill = frame["is_prefill"].astype(str).str.lower() == "true"
    parts = []
    for family, mask in (("attention_prefill", prefill), ("attention_decode", ~prefill)):
        if mask.any():
            mine = frame[mask].reset_index(drop=True)
            own = numbers[mask.to_numpy()]
            parts.append(_one_phase(mine, own, path, decode=family == "attention_decode"))
    return parts


def _one_phase(frame: pd.DataFrame, numbers: Indices, path: Path, *, decode: bool) -> Part:
    number = _numbers(frame, numbers, path)
    ranks = number("num_tensor_parallel_workers")
    family: Family = "attention_decode" if decode else "attention_prefill"
    kernel = frame.get("attention_backend", "")
    out = _named(frame, path, kernel)
    out["kv_dtype"] = DTYPE
    out["batch"] = number("batch_size")
    cached = number("kv_cache_size")
    if decode:
        out["kv_len"] = cached + 1
    else:
        out["q_len"], out["prefix_len"] = number("prefill_chunk_size"), cached
    heads = number("n_q_head")
    out["heads"] = heads / ranks
    # Beyond as many ranks as KV heads these are copied, not cut.
    out["kv_heads"] = np.maximum(number("n_kv_head") / ranks, 1)
    out["head_dim"] = number("n_embd") / heads
    out["window"] = 0
    out[TIME] = number(f"time_stats.attn_{'decode' if decode else 'prefill'}.median") * 1e3
    return Part(family, out, numbers, LAYOUT)


def _collective(frame: pd.DataFrame, numbers: Indices, path: Path) -> list[Part]:
    number = _numbers(frame, numbers, path)
    names = frame["collective"].astype(str)
    parts = []
    for name in dict.fromkeys(names):
        mask = (names == name).to_numpy()
        if name == "send_recv" or f"time_stats.{name}.median" not in frame:
            continue
        out = _named(frame, path, "vidur")[mask]
        out["op"] = name
        out["num_gpus"], out["message_bytes"] = number("num_workers"), number("size")
        out[TIME] = number(f"time_stats.{name}.median") * 1e3
        parts.append(Part("collective", out.reset_index(drop=True), numbers[mask], LAYOUT))
    return parts
