"""InferSim's bench CSVs: GEMM, attention and grouped GEMM.

Columns as its benchmarks write and its ``mfu/mfu.py`` reads them (github.com/alibaba/InferSim:
``bench_data/``, ``kernel_benchmark/``); times are in µs. Attention files say heads and widths in
their names (``heads-kv_heads-head_dim.csv``), the folder says the GPU and the phase. Its GEMMs
are DeepGEMM's, FP8 with a scale per 128×128 block; its grouped GEMM rows time the two products of
an expert layer without gathering or activation, over tokens that are spread evenly.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.readers.part import Part, device_of
from calibrate.schema import TIME, Indices, numeric
from perfmodel.errors import InputError

LAYOUT = "infersim"
GEMM = {"m", "n", "k", TIME, "mfu"}
DECODE = {"dtype", "kv_dtype", "batch_size", "kv_len", TIME, "mfu"}
PREFILL = {"dtype", "seq_len", TIME, "mfu"}
GROUPED = {"num_experts", "num_gpus", "topk", "hidden_size", "intermediate_size", "up_proj_us",
           "down_proj_us"}  # fmt: skip
MLA = {(512, 64), (128, 64)}
"""Latent and rotary width (decode), or unrotated and rotary width (prefill), of DeepSeek's MLA."""


def read(frame: pd.DataFrame, numbers: Indices, path: Path) -> list[Part]:
    """The file's one part; none where the columns are another tool's.

    Raises:
        InputError: a number that isn't one, or a name without the sizes that it should hold.
    """
    columns = set(frame.columns)
    if columns == GEMM:
        return [Part("gemm", _named(frame, path, "deepgemm", "fp8_block"), numbers, LAYOUT)]
    if columns in (DECODE, PREFILL):
        return [_attention(frame, numbers, path, decode=columns == DECODE)]
    if columns >= GROUPED:
        return [_grouped(frame, numbers, path)]
    return []


def _named(frame: pd.DataFrame, path: Path, kernel: str, dtype: str) -> pd.DataFrame:
    out = frame.copy()
    out["gpu"], out["framework"], out["framework_version"] = device_of(path), "infersim", ""
    out["kernel"], out["dtype"] = kernel, dtype
    return out


def _attention(frame: pd.DataFrame, numbers: Indices, path: Path, *, decode: bool) -> Part:
    sizes = re.fullmatch(r"(\d+)-(\d+)-(\d+)", path.stem)
    if sizes is None:
        raise InputError(
            f"{path}: an InferSim attention file is called heads-kv_heads-head_dim.csv: "
            "its rows don't hold them"
        )
    heads, second, third = (int(size) for size in sizes.groups())
    mla = "mla" in path.parts or (second, third) in MLA
    kernel = ("flashmla" if mla else "flashinfer") if decode else "fa3"
    out = _named(frame, path, kernel, "bfloat16")
    out["kv_dtype"] = frame["kv_dtype"] if decode else frame["dtype"]
    out["heads"] = heads
    if not mla:
        out["kv_heads"], out["head_dim"], out["window"] = second, third, 0
    if decode:
        out = out.rename(columns={"batch_size": "batch"})
        return Part("mla_decode" if mla else "attention_decode", out, numbers, LAYOUT)
    out = out.rename(columns={"seq_len": "q_len"})
    out["batch"], out["prefix_len"] = 1, 0
    return Part("mla_prefill" if mla else "attention_prefill", out, numbers, LAYOUT)


def _grouped(frame: pd.DataFrame, numbers: Indices, path: Path) -> Part:
    where = str(path)

    def number(name: str) -> pd.Series[float]:
        return numeric(frame[name], name, numbers, where)

    tokens = next((c for c in ("batch_size_per_gpu", "seq_len_per_gpu") if c in frame), None)
    if tokens is None:
        raise InputError(f"{where}: lacks batch_size_per_gpu or seq_len_per_gpu")
    out = _named(frame, path, "deepgemm_grouped", "fp8_block")
    ranks = number("tp_size") if "tp_size" in frame else pd.Series(np.ones(len(frame)))
    out["moe_tp"], out["moe_ep"] = ranks, number("num_gpus") / ranks
    out["tokens"] = number(tokens) * out["moe_ep"]
    out["distribution"] = "balanced"
    out[TIME] = number("up_proj_us") + number("down_proj_us")
    names = {"hidden_size": "hidden", "intermediate_size": "inter", "num_experts": "experts"}
    out = out.rename(columns=names).drop(columns=["num_gpus", tokens])
    return Part("moe", out, numbers, LAYOUT)
