"""The columns of a sweep: which there are, of which kind, and which way is better."""

from __future__ import annotations

import difflib
import types
from typing import Literal

from perfmodel.specs.base import FieldError
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.sweep import INNER, OF_LOAD, SweepSpec, value_kinds
from perfmodel.units import GIB

Kind = Literal["text", "number", "whole", "flag"]

UNDERSTOOD = ("tp", "pp", "ep", "dp", "weights", "kv_cache", "engine")
"""Fields of a deployment that every row says, with ``auto`` replaced by what is used."""
RESULTS: dict[str, Kind] = {
    "ttft_ms": "number",
    "tpot_ms": "number",
    "total_s": "number",
    "output_tokens_per_s": "number",
    "output_tokens_per_s_per_gpu": "number",
    "tokens_per_s_per_user": "number",
    "weights_bytes": "whole",
    "kv_bytes": "whole",
    "required_bytes": "whole",
    "capacity_bytes": "whole",
    "fits": "flag",
    "max_sequences": "number",
}
DERIVED: dict[str, tuple[str, float]] = {
    "ttft_s": ("ttft_ms", 1e-3),
    "tpot_s": ("tpot_ms", 1e-3),
    "total_ms": ("total_s", 1e3),
    "weights_gib": ("weights_bytes", 1 / GIB),
    "kv_gib": ("kv_bytes", 1 / GIB),
    "required_gib": ("required_bytes", 1 / GIB),
    "capacity_gib": ("capacity_bytes", 1 / GIB),
}
"""Columns in other units, which expressions and selections may name: another column times this."""


def columns_of(spec: SweepSpec) -> dict[str, Kind]:
    """Name and kind of each column of a sweep's table, in order."""
    said = [name for name, _ in spec.axes]
    found: dict[str, Kind] = {"setting": "whole", "model": "text", "hardware": "text"}
    found["gpus"] = "whole"
    for name in [*UNDERSTOOD, *said]:
        if name in Deployment.model_fields:
            found[name] = _kind(name)
    for name in OF_LOAD:
        if name in said:
            found[name] = _kind(name)
    for name in INNER:
        if name != "context" or "context" in said:
            found[name] = "whole"
    return found | RESULTS | {"calibration": "text"}


def _kind(axis: str) -> Kind:
    kinds = value_kinds(axis)
    if bool in kinds:
        return "flag"
    if float in kinds or (int in kinds and types.NoneType in kinds):
        return "number"
    return "whole" if int in kinds else "text"


def known_column(name: str, columns: dict[str, Kind], where: str) -> Kind:
    """The kind of a column, or of one in another unit.

    Raises:
        InputError: no column is called so; with the closest name.
    """
    if name in columns:
        return columns[name]
    if name in DERIVED:
        return "number"
    every = [*columns, *DERIVED]
    close = difflib.get_close_matches(name, every, 1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(every)}"
    raise FieldError(where, f"no column is called {name[:40]!r}; {hint}")


def numeric_column(name: str, columns: dict[str, Kind], where: str) -> str:
    """``name``, if it is a column of numbers.

    Raises:
        InputError: it isn't.
    """
    if known_column(name, columns, where) not in {"number", "whole"}:
        raise FieldError(where, f"{name} isn't a column of numbers")
    return name


def wanted_end(name: str) -> tuple[str, bool]:
    """A column, and whether more of it is better; ``min:`` or ``max:`` before it says so.

    Rates and what fits at most are better high; times, bytes and GPUs low.

    >>> wanted_end("tpot_ms"), wanted_end("max:batch")
    (('tpot_ms', False), ('batch', True))
    """
    end, colon, column = name.partition(":")
    if colon and end in {"min", "max"}:
        return column, end == "max"
    return name, "per_s" in name or name.startswith("max_")
