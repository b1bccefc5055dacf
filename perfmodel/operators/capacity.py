"""What one GPU must hold: weights as stored, and a sequence's cache and state.

Sizes are those of local layers (see `sharding`), so parallel layouts need no formula here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from perfmodel.operators.format_bytes import Formats, matrix_bytes
from perfmodel.operators.mixers import index_bytes, key_value_bytes, latent_bytes
from perfmodel.operators.quantity import Quantity, ceil_div, minimum, round_up
from perfmodel.operators.recurrent import layer_state_bytes
from perfmodel.operators.sharding import Parallel
from perfmodel.operators.weights import Weight, embedding_weights, head_weights, layer_weights
from perfmodel.specs.formats import NumberFormat
from perfmodel.specs.model import Attention, LatentAttention, Layer, Mixer, Model, MoeFfn

HALF = 2.0


def stored_bytes(weights: Iterable[Weight], formats: Formats) -> float:
    """Bytes of tensors in their roles' formats; biases and vectors in 16 bits."""
    total = 0.0
    for w in weights:
        if w.role == "vector":
            total += HALF * w.elements
        else:
            one = matrix_bytes(formats.of_role(w.role), w.rows, w.columns) + HALF * w.bias
            total += w.copies * one
    return total


def _padded(layer: Layer, formats: Formats, expert_multiple: int) -> Layer:
    """An engine's padding of MXFP4 experts, in the bytes that it allocates."""
    ffn = layer.ffn
    if not isinstance(ffn, MoeFfn) or formats.expert.name != "mxfp4" or expert_multiple == 1:
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
        padded = _padded(layer, formats, expert_multiple)
        one = stored_bytes(layer_weights(padded, model.hidden, model.norm), formats)
        total += count * (one + model.hidden * _router_columns(layer, parallel))
    rows = int(ceil_div(model.vocab, parallel.tp))
    local = model.model_copy(update={"vocab": rows})
    if first:
        total += stored_bytes(embedding_weights(local), formats) + HALF * model.vision_parameters
    if last:
        alone = model.tied and not first  # the last stage needs its own copy of a tied table
        total += stored_bytes(
            head_weights(local.model_copy(update={"tied": False}) if alone else local), formats
        )
    return total


def token_bytes(mixer: Mixer | None, cache: NumberFormat) -> float:
    """Bytes that one more token adds to a layer's cache, below its window."""
    if isinstance(mixer, Attention):
        return key_value_bytes(mixer, cache)
    if isinstance(mixer, LatentAttention):
        return latent_bytes(mixer, cache) + index_bytes(mixer.indexer)
    return 0.0


def sequence_bytes(
    layers: Iterable[Layer],
    tokens: Quantity,
    cache: NumberFormat,
    allocate: Callable[[Quantity, int | None], Quantity] = lambda stored, window: stored,
    state_dtype: str = "bf16",
) -> Quantity:
    """Bytes of one sequence of ``tokens`` in local ``layers``.

    ``allocate`` turns tokens that a layer stores, and its window, into tokens that are set aside
    (blocks, or a reserved length). A layer with a window stores its last ``window`` tokens.
    Recurrent states are of ``state_dtype``.
    """
    total: Quantity = 0.0
    for mixer, count in Counter(layer.mixer for layer in layers).items():
        total = total + count * layer_state_bytes(mixer, state_dtype)
        per_token = token_bytes(mixer, cache)
        if per_token:
            window = mixer.window if isinstance(mixer, Attention) else None
            stored = tokens if window is None else minimum(tokens, window)
            total = total + count * per_token * allocate(stored, window)
    return total
