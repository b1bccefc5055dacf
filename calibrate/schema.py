"""The shared schema of measured tables: which columns each family has, and what they may hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perfmodel.errors import InputError

Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Family = Literal[
    "gemm", "attention_prefill", "attention_decode", "mla_prefill", "mla_decode", "moe",
    "collective",
]  # fmt: skip
TIME = "latency_us"
ORIGIN = ("gpu", "framework", "framework_version", "kernel")
"""Who measured what, as text; a table may lack them."""
SHOWN = 60


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of one family beside `ORIGIN` and the time."""

    text: tuple[str, ...]
    sizes: tuple[str, ...]
    axis: str
    """The size that a sweep varies: neighbours along it are compared."""
    may_be_zero: tuple[str, ...] = ()
    """Sizes for which zero has a meaning: no window, nothing cached."""
    at_most: tuple[tuple[str, str], ...] = ()
    """Pairs of sizes of which the first is at most the second."""

    @property
    def required(self) -> tuple[str, ...]:
        """The columns without which no row can be understood."""
        return (*self.text, *self.sizes)


_HEADS = ("heads", "kv_heads", "head_dim", "window")
_KV = (("kv_heads", "heads"),)
SCHEMAS: dict[Family, Schema] = {
    "gemm": Schema(("dtype",), ("m", "n", "k"), axis="m"),
    "attention_prefill": Schema(
        ("kv_dtype",), ("batch", "q_len", "prefix_len", *_HEADS), axis="q_len",
        may_be_zero=("prefix_len", "window"), at_most=_KV,
    ),
    "attention_decode": Schema(
        ("kv_dtype",), ("batch", "kv_len", *_HEADS), axis="kv_len",
        may_be_zero=("window",), at_most=_KV,
    ),
    "mla_prefill": Schema(
        ("kv_dtype",), ("batch", "heads", "q_len", "prefix_len"), axis="q_len",
        may_be_zero=("prefix_len",),
    ),
    "mla_decode": Schema(("kv_dtype",), ("batch", "heads", "kv_len"), axis="kv_len"),
    "moe": Schema(
        ("dtype", "distribution"),
        ("tokens", "hidden", "inter", "topk", "experts", "moe_tp", "moe_ep"), axis="tokens",
        at_most=(("topk", "experts"), ("moe_ep", "experts"), ("moe_tp", "inter")),
    ),
    "collective": Schema(("op", "dtype"), ("num_gpus", "message_bytes"), axis="message_bytes"),
}  # fmt: skip
_KNOWN = {column for schema in SCHEMAS.values() for column in schema.required}


def family_of(columns: Iterable[str], where: str) -> Family:
    """The family whose columns these are.

    Raises:
        InputError: the missing columns of the likeliest family, or that there is none.
    """
    given = set(columns)

    def mismatch(family: Family) -> tuple[int, int]:
        required = set(SCHEMAS[family].required)
        foreign = (given & _KNOWN) - required - {"dtype"}
        return len(required - given) + len(foreign), -len(required & given)

    family = min(SCHEMAS, key=mismatch)
    required = SCHEMAS[family].required
    missing = [name for name in (*required, TIME) if name not in given]
    if 2 * len(given.intersection(required)) < len(required):
        raise InputError(
            f"{where}: columns of no known family ({_listed(sorted(given))}); families: "
            f"{', '.join(SCHEMAS)}"
        )
    if missing:
        raise InputError(f"{where}: a table of {family} lacks {_listed(missing)}")
    return family


def checked(frame: pd.DataFrame, family: Family, numbers: Indices, where: str) -> pd.DataFrame:
    """``frame`` with whole sizes as integers, times as floats, and columns of `ORIGIN` as text.

    Raises:
        InputError: ``where``, the first wrong row, its column and value.
    """
    if frame.empty:
        raise InputError(f"{where}: no rows")
    schema = SCHEMAS[family]
    out = frame.copy()
    for name in ORIGIN:
        out[name] = out[name].fillna("").astype(str) if name in out else ""
    for name in schema.text:
        text = out[name].fillna("").astype(str)
        _refuse(text.str.strip() == "", out[name], name, numbers, where, "is empty")
        out[name] = text.str.strip()
    for name in schema.sizes:
        least = 0 if name in schema.may_be_zero else 1
        out[name] = _sizes(out[name], name, least, numbers, where)
    for low, high in schema.at_most:
        wrong = out[low] > out[high]
        _refuse(wrong, out[low], low, numbers, where, f"is above {high}")
    out[TIME] = _times(out[TIME], numbers, where)
    return out


def numeric(column: pd.Series[Any], name: str, numbers: Indices, where: str) -> pd.Series[float]:
    """A column of numbers as float64.

    Raises:
        InputError: text, an empty cell, or no finite number.
    """
    values = pd.to_numeric(column, errors="coerce").astype(np.float64)
    _refuse(~values.abs().lt(np.inf), column, name, numbers, where, "isn't a number")
    return values


def _sizes(
    column: pd.Series[Any], name: str, least: int, numbers: Indices, where: str
) -> pd.Series[int]:
    values = numeric(column, name, numbers, where)
    _refuse(values != np.floor(values), column, name, numbers, where, "isn't a whole number")
    _refuse(values < least, column, name, numbers, where, f"is below {least}")
    _refuse(values >= 2.0**53, column, name, numbers, where, "is absurd")
    return values.astype(np.int64)


def _times(column: pd.Series[Any], numbers: Indices, where: str) -> pd.Series[float]:
    values = numeric(column, TIME, numbers, where)
    _refuse(values <= 0, column, TIME, numbers, where, "isn't above zero")
    return values


def _refuse(
    wrong: pd.Series[bool],
    column: pd.Series[Any],
    name: str,
    numbers: Indices,
    where: str,
    why: str,
) -> None:
    """Name the first wrong row, and say how many more there are."""
    found = np.flatnonzero(wrong.to_numpy())
    if len(found) == 0:
        return
    value = f"{column.iloc[found[0]]!s:.{SHOWN}}"
    empty = value in {"", "nan", "None", "<NA>"}
    value = "an empty cell" if empty else repr(" ".join(value.split()))
    more = f" (and {len(found) - 1} more rows)" if len(found) > 1 else ""
    raise InputError(f"{where}: row {numbers[found[0]]}, {name}: {value} {why}{more}")


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(name[:SHOWN] for name in names[:8])
    return text + (f" and {len(names) - 8} more" if len(names) > 8 else "")
