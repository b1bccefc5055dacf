"""Weights as one GPU stores them: formats, scales, an engine's padding, pipeline stages.

Sizes are those of local layers (see `sharding`), so parallel layouts need no formula here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from perfmodel.operators.format_bytes import Formats
from perfmodel.operators.quantity import ceil_div, round_up
from perfmodel.operators.sharding import Parallel
from perfmodel.operators.weights import (
    Weight,
    embedding_weights,
    head_weights,
    layer_weights,
    moe_weights,
)
from perfmodel.specs.model import Layer, Model, MoeFfn

HALF = 2.0


def stored_bytes(weights: Iterable[Weight], formats: Formats) -> float:
    """Bytes of tensors in their roles' formats; biases and vectors in 16 bits."""
    return sum(formats.weight_bytes(weight) for weight in weights)


def _padded(layer: Layer, formats: Formats, expert_multiple: int) -> Layer:
    """An engine's padding of MXFP4 experts, in the bytes that it allocates."""
    ffn = layer.ffn
    if not isinstance(ffn, MoeFfn) or expert_multiple == 1:
        return layer
    *_, down = (w for w in moe_weights(ffn, 1) if w.role == "expert")
    if formats.of(down).stored.name != "mxfp4":
        return layer
    width = int(round_up(ffn.width, expert_multiple))
    return layer.model_copy(update={"ffn": ffn.model_copy(update={"width": width})})


def _router_columns(layer: Layer, parallel: Parallel) -> float:
    """Bytes of the router's scores for experts that live on other ranks."""
    ffn = layer.ffn
    return HALF * (parallel.ep - 1) * ffn.experts if isinstance(ffn, MoeFfn) else 0.0


def stage_weight_bytes(
    model: Model,
    layers: tuple[Layer, ...],
    formats: Formats,
    parallel: Parallel,
    *,
    first: bool,
    last: bool,
    expert_multiple: int = 1,
) -> float:
    """Weight bytes of one GPU of a pipeline stage with local ``layers``."""
    total = 0.0
    for layer, count in Counter(layers).items():
        here = formats.at(layer.stored)
        padded = _padded(layer, here, expert_multiple)
        one = stored_bytes(layer_weights(padded, model.hidden, model.norm), here)
        total += count * (one + model.hidden * _router_columns(layer, parallel))
    rows = int(ceil_div(model.vocab, parallel.tp))
    local = model.model_copy(update={"vocab": rows})
    if first:
        total += (
            stored_bytes(embedding_weights(local), formats)
            + HALF * model.vision_parameters / parallel.tp
        )
    if last:
        alone = model.tied and not first  # the last stage needs its own copy of a tied table
        total += stored_bytes(
            head_weights(local.model_copy(update={"tied": False}) if alone else local), formats
        )
    return total
