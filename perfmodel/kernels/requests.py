"""From an operator to the calibrated set that prices it, and the shapes it is asked for.

Inside a model's step weights and keys come from device memory: forms are evaluated cold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np

from perfmodel.kernels.forms.base import Form, Shapes
from perfmodel.kernels.forms.routing import UNIFORM, with_load
from perfmodel.operators.quantity import Quantity, maximum
from perfmodel.operators.record import (
    Attention,
    Collective,
    Elementwise,
    Gemm,
    GroupedGemm,
    Operator,
)
from perfmodel.specs.cache_formats import cache_format
from perfmodel.specs.formats import NumberFormat, number_format

BLIND = 3.0
"""MLA was measured under a host's floor of 140 to 340 µs, which a step doesn't have: its times
below that are the form's alone, and their interval is three times as wide in its logarithm."""
WIDE = {"bf16", "fp16", "fp32"}


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask of which set."""

    set_name: str
    shapes: Mapping[str, Quantity]
    share: float = 1.0
    """The operator's part of what the set predicts."""
    changes: Mapping[str, object] | None = None
    """Facts of the form that differ from those it was fitted with."""
    corrected: bool = True
    """Whether the learned correction applies: it doesn't to formats it wasn't learned on."""
    widen: float = 1.0
    """Factor on the interval's log width, beyond what the set says of itself."""
    prepare: Callable[[Shapes], Shapes] | None = None
    """What completes the shapes once they are arrays of one length."""


def flat_shapes(request: Request) -> tuple[Shapes, tuple[int, ...]]:
    """A request's shapes as arrays of one length, and the shape that they broadcast to."""
    sizes = [np.asarray(size, dtype=np.float64) for size in request.shapes.values()]
    arrays = np.broadcast_arrays(*sizes)
    flat: Shapes = {n: a.ravel() for n, a in zip(request.shapes, arrays, strict=True)}
    if request.prepare is not None:
        flat = request.prepare(flat)
    return flat, arrays[0].shape


def variant(form: Form, changes: Mapping[str, object] | None) -> Form:
    """``form`` with other facts, those that it has."""
    if not changes or not is_dataclass(form):
        return form
    # A form that doesn't know a fact has no such behaviour to leave out.
    known = {field.name for field in fields(form)}
    mine = {name: value for name, value in changes.items() if name in known}
    made: Form = replace(form, **mine)
    return made


def _format_bytes(f: NumberFormat) -> float:
    per_block = f.scale_bits + f.zero_bits
    grouped = f.grouping in {"block", "tokens"}
    return (f.bits + (per_block / (f.block * f.block_rows) if grouped else 0)) / 8


def _stored_bytes(name: str) -> float:
    return _format_bytes(number_format(name))


def _cache_bytes(op: Attention) -> float:
    """Bytes of an element of the cache, the mean of keys and values; MLA's are its keys."""
    stored = cache_format(op.cache_format)
    keys = op.qk_dim
    values = 0 if op.latent and op.kv_heads == 1 else op.value_dim
    total = keys * _format_bytes(stored.keys) + values * _format_bytes(stored.values)
    return total / (keys + values)


def weight_only_set(name: str) -> str:
    """The measured set of weights in the format ``name`` that are widened on the way."""
    if name.startswith("int"):
        return f"{name.split('_', maxsplit=1)[0]}_wo"
    return f"{name}_wo"


def gemm_request(op: Gemm, known: Collection[str] = ()) -> Request:
    """A batched product is one whose columns are cut into so many groups.

    Weights that are widened on the way take the set of the wide format with fewer bytes, unless
    their own kernel was measured.
    """
    shapes = {"m": maximum(op.m, 1), "n": op.n * op.batch, "k": op.k}
    cold: dict[str, object] = {"warm": False, "quantises_input": False, "waits_for_host": False}
    if op.arithmetic in {"bf16", "fp16"}:
        widened = op.weight_format not in WIDE
        own = f"gemm.{weight_only_set(op.weight_format)}"
        if widened and own in known:
            if own == f"gemm.{op.weight_format}_wo":
                return Request(own, shapes, changes=cold)
            cold["weight_bytes"] = _stored_bytes(op.weight_format)
            return Request(own, shapes, changes=cold, corrected=False)
        if widened:
            cold["weight_bytes"] = _stored_bytes(op.weight_format)
        return Request("gemm.bf16", shapes, changes=cold, corrected=not widened)
    return Request(f"gemm.{op.weight_format}", shapes, changes=cold)


def attention_request(op: Attention) -> Request | None:
    """Decode or prefill, MLA apart; None where no measured kernel resembles it."""
    if not op.fused or op.value_dim == 0:
        return None
    wide = op.cache_format in WIDE
    cache = "bf16" if wide else "fp8"
    width = 2.0 if wide else _cache_bytes(op)
    shapes: dict[str, Quantity] = {"batch": op.sequences, "heads": op.heads, "kv_bytes": width}
    bare = {"hosted": False}
    if op.latent and op.kv_heads == 1:
        shapes |= {"kv_len": maximum(op.keys, 1), "q_len": maximum(op.queries, 1)}
        return Request(f"mla_decode.{cache}", shapes, changes=bare, corrected=False, widen=BLIND)
    if op.latent:
        new = maximum(op.queries, 1)
        shapes |= {"q_len": new, "prefix_len": op.context - op.queries}
        return Request("mla_prefill.bf16", shapes, changes=bare, corrected=False, widen=BLIND)
    shapes |= {
        "kv_heads": op.kv_heads,
        "head_dim": (op.qk_dim + op.value_dim) / 2,
        "window": op.window or 0,
    }
    corrected = op.cache_format in WIDE | {"fp8"}
    if op.phase == "decode":
        shapes |= {"kv_len": maximum(op.context, 1), "q_len": maximum(op.queries, 1)}
        return Request(f"attention_decode.{cache}", shapes, 1.0, {"cold": True}, corrected)
    shapes |= {"q_len": maximum(op.queries, 1), "prefix_len": op.context - op.queries}
    return Request(f"attention_prefill.{cache}", shapes, 1.0, {"cold": True}, corrected)


def experts_request(op: GroupedGemm, known: Collection[str] = ()) -> Request:
    """A projection's part of the fused layer, by its share of the weights.

    FP8 experts take the set of block scales where no kernel of theirs was measured.
    """
    layer = op.layer
    wide = op.arithmetic in {"bf16", "fp16"} and op.weight_format in WIDE
    names = {"mxfp4": "w4a16_mxfp4", "int4": "int4_wo"}
    name = "bf16" if wide else names.get(op.weight_format, op.weight_format)
    grouped = op.weight_format.startswith("int4_") and op.arithmetic in {"bf16", "fp16"}
    name = "int4_wo" if grouped else name  # its kernel takes any group
    shapes: dict[str, Quantity] = {
        "tokens": maximum(layer.tokens, 1),
        "hidden": layer.hidden,
        "inter": layer.width,
        "topk": layer.top_k,
        "experts": layer.experts,
        "weight_bytes": _stored_bytes(op.weight_format),
        "moe_tp": layer.tp,
        "moe_ep": layer.ep,
        "gated": float(layer.gated),
        "routing": UNIFORM,
    }
    if layer.skew:
        shapes["skew"] = layer.skew
    whole = layer.hidden * layer.width * (3 if layer.gated else 2) / layer.tp
    share, cold = op.n * op.k / whole, {"cold": True}
    if name == "fp8" and "experts.fp8" not in known and "experts.fp8_block" in known:
        return Request("experts.fp8_block", shapes, share, cold, False, prepare=with_load)
    return Request(f"experts.{name}", shapes, share, cold, not grouped, prepare=with_load)


def grouped_request(op: GroupedGemm) -> Request:
    """A projection by itself, for devices whose grouped multiplies were measured alone."""
    shapes: dict[str, Quantity] = {
        "rows": maximum(op.rows, 1e-9),
        "active": maximum(op.active_experts, 1e-9),
        "elements": op.n * op.k,
        "widths": op.n + op.k,
        "calls": 1,
    }
    wide = op.arithmetic in {"bf16", "fp16"} and op.weight_format in WIDE
    name = "bf16" if wide else op.weight_format
    return Request(f"grouped_gemm.{name}", shapes)


def elementwise_request(op: Elementwise) -> Request:
    """The operation that the form knows: norms, rotary embedding, activations, else copies.

    A norm with a residual sum (read twice, written twice) is a sum of three passes and a norm of
    two where they aren't fused; the form adds their times.
    """
    name = op.name.rsplit(".", 1)[-1]
    moved: dict[str, Quantity] = dict.fromkeys(("norm", "silu", "rotary", "copy"), 0.0)
    if name == "norm_residual":
        moved |= {"norm": op.bytes / 2, "copy": 3 * op.bytes / 4}
    elif name == "final_norm":  # its residual sum is the last layer's
        moved["norm"] = 2 * op.bytes / 3
    elif name in {"norm", "qk_norm", "embedding_norm"}:
        moved["norm"] = op.bytes
    elif name == "rotary":
        moved["rotary"] = op.bytes
    else:
        moved["silu" if name == "activation" else "copy"] = op.bytes
    return Request("elementwise.fp32" if op.arithmetic == "fp32" else "elementwise.bf16", moved)


def collective_request(op: Collective) -> Request | None:
    """Exchanges that were measured; hand-overs between stages weren't."""
    if op.kind == "send_recv":
        return None
    shapes = {"message_bytes": maximum(op.message_bytes, 1), "ranks": op.ranks}
    return Request(f"collective.{op.kind}", shapes)


def request_of(op: Operator, known: Collection[str] = ()) -> Request | None:
    """What to ask for ``op``; None where no family of measured kernels covers it.

    ``known``: the sets that there are, where several would do.
    """
    if isinstance(op, Gemm):
        return gemm_request(op, known)
    if isinstance(op, Attention):
        return attention_request(op)
    if isinstance(op, GroupedGemm):
        whole = experts_request(op, known)
        return whole if whole.set_name in known else grouped_request(op)
    if isinstance(op, Elementwise):
        return elementwise_request(op)
    if isinstance(op, Collective):
        return collective_request(op)
    return None
