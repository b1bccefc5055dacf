"""What a row of a measured table asks for: a form's shapes, its set, its operator, its roof."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calibrate.schema import SCHEMAS, Family, Indices, Mask
from perfmodel.errors import InputError
from perfmodel.kernels.forms.routing import EVEN, UNIFORM, with_load
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.quantity import Array
from perfmodel.operators.record import (
    Attention,
    Collective,
    ExpertLayer,
    Gemm,
    GroupedGemm,
    Operator,
)
from perfmodel.specs.formats import ALIASES, FORMATS, NumberFormat
from perfmodel.specs.hardware import Hardware
from perfmodel.units import MICROSECOND

TABLE_FORMATS = {
    "int4_wo": "int4", "int8_wo": "int8", "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4",
}  # fmt: skip
"""What tables call formats beyond `perfmodel.specs.formats`."""
MULTIPLIES = {
    "int4_wo": "bf16", "int8_wo": "bf16", "w4a16_mxfp4": "bf16", "w4a8_mxfp4_mxfp8": "fp8",
}  # fmt: skip
"""The multiply-add where it isn't the weights' own."""
OPERATIONS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "all_to_all": "all_to_all",
}  # fmt: skip
"""The set's name for an operation of a table."""
OLDER = ("0.14.0",)
"""Releases measured before non-gated experts were told apart and draws were capped per rank."""
UNGATED_TOPK, UNGATED_INTER = 22, 1856
"""What tells experts without a gate, Nemotron 3's: their rows don't say it."""
STEEPEST = 10.0
"""Exponent of a power law of loads beyond which one expert takes everything."""
LATENT, ROPE, VALUE = 512, 64, 128
"""DeepSeek's MLA: what a cached token holds, and the width of an expanded head's value."""


def format_of(name: str) -> NumberFormat | None:
    """The number format that a table's ``dtype`` names, or None."""
    return FORMATS.get(TABLE_FORMATS.get(name, ALIASES.get(name, name)))


def stored_bytes(name: str) -> float:
    """Bytes of an element, a block's scales included."""
    f = format_of(name)
    if f is None:
        raise ValueError(f"no format is called {name}")
    if name == "int4_wo":
        return (f.bits + f.scale_bits / f.block) / 8  # symmetric: it stores no zero points
    extra = (f.scale_bits + f.zero_bits) / (f.block * f.block_rows)
    return (f.bits + (extra if f.grouping == "block" else 0)) / 8


def format_column(family: Family) -> str:
    """The column that decides which set a row belongs to."""
    if family == "collective":
        return "op"
    return "dtype" if family in {"gemm", "moe"} else "kv_dtype"


def set_name(family: Family, name: str) -> str | None:
    """The calibrated set for rows whose format column says ``name``; None for unknown formats."""
    if family == "collective":
        op = OPERATIONS.get(name)
        return None if op is None else f"collective.{op}"
    known = format_of(name)
    if known is None:
        return None
    prefix = "experts" if family == "moe" else family
    plain = "bf16" if known.name == "fp16" else known.name
    return f"{prefix}.{name if name in TABLE_FORMATS else plain}"


def shapes_of(family: Family, rows: pd.DataFrame, *, loaded: bool = True) -> dict[str, Array]:
    """Shapes (n,) as the family's form takes them; ``loaded``: with the experts' load."""
    shapes = {s: rows[s].to_numpy(dtype=np.float64) for s in SCHEMAS[family].sizes}
    column = rows[format_column(family)]
    if family.startswith(("attention", "mla")):
        shapes["kv_bytes"] = column.map(stored_bytes).to_numpy(dtype=np.float64)
    if family == "moe":
        shapes["weight_bytes"] = column.map(stored_bytes).to_numpy(dtype=np.float64)
        return _with_load(shapes, rows) if loaded else _with_routing(shapes, rows)
    if family == "collective":
        shapes["ranks"] = shapes["num_gpus"]
        widths = [stored_bytes(name) if format_of(name) else 2.0 for name in rows["dtype"]]
        shapes["element_bytes"] = np.asarray(widths)
    return shapes


def _with_routing(shapes: dict[str, Array], rows: pd.DataFrame) -> dict[str, Array]:
    shapes["routing"] = rows["distribution"].map(routing_code).to_numpy(dtype=np.float64)
    ungated = (shapes["topk"] == UNGATED_TOPK) | (shapes["inter"] == UNGATED_INTER)
    shapes["gated"] = np.where(ungated & ~_older(rows), 0.0, 1.0)
    return shapes


def _older(rows: pd.DataFrame) -> Mask:
    if "framework_version" not in rows:
        return np.zeros(len(rows), dtype=np.bool_)
    older: Mask = rows["framework_version"].isin(OLDER).to_numpy(dtype=np.bool_)
    return older


def _with_load(shapes: dict[str, Array], rows: pd.DataFrame) -> dict[str, Array]:
    """The shapes with the load that their routing implies, by the rules of each row's release."""
    shapes, older = _with_routing(shapes, rows), _older(rows)
    out: dict[str, Array] = {}
    for rule in (False, True):
        mine = older == rule
        if mine.any():
            part = with_load({name: size[mine] for name, size in shapes.items()}, older=rule)
            for name, size in part.items():
                out.setdefault(name, np.empty(len(rows)))[mine] = size
    return out


def routing_code(distribution: str) -> float:
    """The code of `perfmodel.kernels.forms.routing` for a table's name; NaN for an unknown one.

    >>> routing_code("balanced"), routing_code("power_law_1.2")
    (0.0, 1.2)
    """
    if distribution in {"balanced", "uniform"}:
        return EVEN if distribution == "balanced" else UNIFORM
    try:
        exponent = float(distribution.removeprefix("power_law_"))
    except ValueError:
        return float("nan")
    return exponent if 0 < exponent <= STEEPEST else float("nan")


def operators_of(
    family: Family, rows: pd.DataFrame, *, quick: bool = False
) -> Iterator[tuple[Indices, Operator]]:
    """Operators whose sizes are arrays, each with the positions in ``rows`` that it stands for.

    Rows of formats or routings that perfmodel doesn't know are in none. ``quick`` takes a power
    law's load for uniformly random, which spares drawing it.
    """
    column = rows[format_column(family)].to_numpy()
    for name in dict.fromkeys(column):
        here = np.flatnonzero(column == name)
        if set_name(family, str(name)) is None:
            continue
        part = rows.iloc[here]
        if family == "collective":
            for ranks in sorted(part["num_gpus"].unique()):
                mine = here[(part["num_gpus"] == ranks).to_numpy()]
                yield mine, _collective(rows.iloc[mine], str(name), int(ranks))
        elif family == "moe":
            known = ~np.isnan(part["distribution"].map(routing_code).to_numpy(dtype=np.float64))
            if known.any():
                yield here[known], _experts(part[known], str(name), quick)
        else:
            yield here, _gemm(part, str(name)) if family == "gemm" else _attention(family, part)


def _arithmetic(name: str) -> Any:
    known = format_of(name)
    return MULTIPLIES.get(name) or (known.arithmetic if known else "bf16")


def _input_bytes(arithmetic: str) -> float:
    return {"fp32": 4.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}.get(arithmetic, 2.0)


def _floats(rows: pd.DataFrame, *names: str) -> list[Any]:
    return [rows[name].to_numpy(dtype=np.float64) for name in names]


def _gemm(rows: pd.DataFrame, name: str) -> Operator:
    m, n, k = _floats(rows, "m", "n", "k")
    arithmetic = _arithmetic(name)
    return Gemm(
        name="gemm", m=m, n=n, k=k, arithmetic=arithmetic,
        weight_bytes=n * k * stored_bytes(name),
        input_bytes_per_element=_input_bytes(arithmetic),
    )  # fmt: skip


def _attention(family: Family, rows: pd.DataFrame) -> Operator:
    batch, heads = _floats(rows, "batch", "heads")
    width = rows["kv_dtype"].map(stored_bytes).to_numpy(dtype=np.float64)
    decode = family.endswith("decode")
    one = np.ones_like(batch)
    queries = one if decode else _floats(rows, "q_len")[0]
    total = _floats(rows, "kv_len")[0] if decode else queries + _floats(rows, "prefix_len")[0]
    mla = family.startswith("mla")
    limit = total
    if not mla:
        kv_heads, dim, window = _floats(rows, "kv_heads", "head_dim", "window")
        limit = np.where(window > 0, np.minimum(window, total), total)
        sizes = {"kv_heads": kv_heads, "qk_dim": dim, "value_dim": dim}
        sizes["key_bytes"] = 2 * kv_heads * dim * width
    elif decode:
        sizes = {"kv_heads": one, "qk_dim": LATENT + ROPE, "value_dim": LATENT}
        sizes["key_bytes"] = (LATENT + ROPE) * width
    else:
        sizes = {"kv_heads": heads, "qk_dim": VALUE + ROPE, "value_dim": VALUE}
        sizes["key_bytes"] = (LATENT + ROPE) * width
    values: dict[str, Any] = sizes
    return Attention(
        name=family, phase="decode" if decode else "prefill", sequences=batch, queries=queries,
        keys=np.minimum(total, limit + queries - 1), pairs=_pairs(queries, total, limit),
        context=total, heads=heads, latent=mla, **values,
    )  # fmt: skip


def _pairs(queries: Array, total: Array, limit: Array) -> Array:
    """(query, key) pairs of a causal chunk whose queries see at most ``limit`` keys."""
    first = total - queries + 1
    growing = np.clip(limit - first, 0, queries)
    pairs: Array = growing * first + growing * (growing - 1) / 2 + (queries - growing) * limit
    return pairs


def _experts(rows: pd.DataFrame, name: str, quick: bool) -> Operator:
    s = shapes_of("moe", rows, loaded=not quick)
    if quick:
        routing = np.where(s["routing"] > 0, UNIFORM, s["routing"])
        s = dict(with_load(s | {"routing": routing}))
    ranks = s["moe_ep"]
    n: Any = (2 + s["gated"]) * s["inter"] / s["moe_tp"]
    k: Any = s["hidden"]
    sizes: dict[str, Any] = {
        "hidden": k, "width": s["inter"], "top_k": s["topk"], "experts": s["experts"],
        "tp": s["moe_tp"], "ep": ranks, "gated": s["gated"],
    }  # fmt: skip
    local: Any = s["experts"] / ranks
    return GroupedGemm(
        name="experts", layer=ExpertLayer(tokens=s["tokens"], **sizes), rows=s["rows"],
        active_experts=s["active"], experts=local, n=n, k=k, arithmetic=_arithmetic(name),
        weight_bytes=s["active"] * n * k * stored_bytes(name),
        # Between the projections values stay in L2 or are counted with the form: rows in and out.
        output_bytes_per_element=0.0,
    )  # fmt: skip


def _collective(rows: pd.DataFrame, name: str, ranks: int) -> Operator:
    op: Any = OPERATIONS[name]
    (message,) = _floats(rows, "message_bytes")
    return Collective(
        name=name, kind=op, message_bytes=message, ranks=ranks, span=ranks, weight_format="bf16"
    )


@dataclass(frozen=True, slots=True)
class Roof:
    """The least that rows can take; NaN where it isn't known."""

    us: Array
    """(n,) at the datasheet's peaks."""
    memory_bytes: Array
    """(n,) of device memory where those are the roof, else 0."""


def roof_of(family: Family, rows: pd.DataFrame, hardware: Hardware, *, quick: bool = False) -> Roof:
    """The roof of every row; ``quick`` as of `operators_of`."""
    device = DeviceModel(hardware, None)
    roof = Roof(np.full(len(rows), np.nan), np.zeros(len(rows)))
    for here, operator in operators_of(family, rows, quick=quick):
        try:
            time = device.time(operator)
        except InputError:
            continue
        roof.us[here] = np.asarray(time.roof_s) / MICROSECOND
        memory = np.asarray(time.memory_s) >= np.asarray(time.roof_s)
        roof.memory_bytes[here] = np.where(memory, np.asarray(operator.bytes), 0.0)
    return roof
