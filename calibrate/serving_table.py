"""Tables of measured servers: the reader of the schema that `validate serving` takes.

A row is one load test: a deployment, a closed loop of ``concurrency`` users, lengths, and the mean
TTFT and TPOT. Columns that a table may have beside the needed ones say what else was set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from calibrate.csv_file import read_text
from perfmodel.errors import InputError
from perfmodel.specs.plain_numbers import plain_float

NEEDED = (
    "model", "gpu", "engine", "weights", "tp", "concurrency", "isl", "osl", "ttft_ms", "tpot_ms",
)  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "engine_version": "", "moe_weights": "", "bench": "", "ep": 1, "attention_dp": 1,
    "length_factor": 1.0,
}  # fmt: skip
SETTINGS = ("kv_cache", "max_num_seqs", "max_num_batched_tokens", "ttft_steps")
"""Optional columns; empty: what is known of the bench, else the engine's default."""
MOST = 100_000
"""Rows that a table may hold."""
MOST_WHOLE = 10**9


@dataclass(frozen=True, slots=True)
class Row:
    """One measured load."""

    number: int
    """Place in the table, from 1."""
    model: str
    gpu: str
    engine: str
    engine_version: str
    weights: str
    moe_weights: str
    tp: int
    ep: int
    attention_dp: int
    concurrency: int
    isl: int
    """Nominal prompt length in tokens: the longest."""
    osl: int
    length_factor: float
    """Mean length over the nominal one; lengths lie evenly in (2f − 1) … 1 of it."""
    bench: str
    ttft_ms: float
    """NaN where it wasn't measured."""
    tpot_ms: float
    kv_cache: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    ttft_steps: float | None = None
    """Decode steps that the client waits for its first token beyond its computation."""


@dataclass(frozen=True, slots=True)
class ServingTable:
    """A table as it was, and its rows."""

    source: Path
    data: pd.DataFrame
    rows: tuple[Row, ...]

    @property
    def names(self) -> set[str]:
        """Of models, hardware and engines, each of which may be a file."""
        return {name for row in self.rows for name in (row.model, row.gpu, row.engine)}


def read_serving(path: Path) -> ServingTable:
    """Read a CSV of measured loads.

    Raises:
        InputError: one line with file, row and column.
    """
    data = read_text(path)
    missing = [name for name in NEEDED if name not in data]
    if missing:
        raise InputError(f"{path}: columns missing: {', '.join(missing)}")
    if not 0 < len(data) <= MOST:
        raise InputError(f"{path}: {len(data)} rows; between 1 and {MOST:,} are taken")
    rows = [
        _row({str(k): str(v).strip() for k, v in row.items()}, number, path)
        for number, row in enumerate(data.to_dict("records"), 1)
    ]
    return ServingTable(path, data, tuple(rows))


def _row(texts: Mapping[str, str], number: int, path: Path) -> Row:
    where = f"{path}: row {number}"

    def text(name: str) -> str:
        return texts.get(name, "") or str(DEFAULTS.get(name, ""))

    def optional(name: str) -> str | None:
        return texts.get(name, "") or None

    factor = _number(text("length_factor"), f"{where}: length_factor")
    if not 0.5 < factor <= 1:
        raise InputError(f"{where}: length_factor: above 0.5 and up to 1 is needed, not {factor:g}")
    kept = {
        name: _whole(value, f"{where}: {name}")
        for name in ("max_num_seqs", "max_num_batched_tokens")
        if (value := optional(name)) is not None
    }
    steps = optional("ttft_steps")

    def count(name: str) -> int:
        return _whole(text(name), f"{where}: {name}")

    return Row(
        number=number,
        model=text("model"),
        gpu=text("gpu"),
        engine=text("engine"),
        engine_version=text("engine_version"),
        weights=text("weights"),
        moe_weights=text("moe_weights"),
        bench=text("bench"),
        tp=count("tp"),
        ep=count("ep"),
        attention_dp=count("attention_dp"),
        concurrency=count("concurrency"),
        isl=count("isl"),
        osl=count("osl"),
        length_factor=factor,
        ttft_ms=_measured(text("ttft_ms"), f"{where}: ttft_ms"),
        tpot_ms=_measured(text("tpot_ms"), f"{where}: tpot_ms"),
        kv_cache=optional("kv_cache"),
        max_num_seqs=kept.get("max_num_seqs"),
        max_num_batched_tokens=kept.get("max_num_batched_tokens"),
        ttft_steps=None if steps is None else _number(steps, f"{where}: ttft_steps"),
    )


def _number(text: str, where: str) -> float:
    try:
        value = plain_float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{where}: a number from 0 is needed, not {text[:40]!r}")
    return value


def _whole(text: str, where: str) -> int:
    try:
        value = plain_float(text)
    except ValueError:
        value = math.nan
    if not (1 <= value <= MOST_WHOLE and value == int(value)):
        raise InputError(
            f"{where}: a whole number from 1 to {MOST_WHOLE:,} is needed, not {text[:40]!r}"
        )
    return int(value)


def _measured(text: str, where: str) -> float:
    """Milliseconds; NaN where the field is empty."""
    if not text:
        return math.nan
    value = _number(text, where)
    if value == 0:
        raise InputError(f"{where}: milliseconds above 0 are needed, or nothing")
    return value
