"""GGUF files: which of llama.cpp's block formats each matrix of a model is stored in.

A file type is a rule over tensors. The rule is that of ``llama_tensor_get_type`` in llama.cpp's
``src/llama-quant.cpp`` (releases of 2025), without an importance matrix. Not followed: norms,
biases and routers, which files hold in 32 bits, are counted in 16 like everywhere else (less than
0.1 % of a file).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from perfmodel.operators.weights import layer_weights
from perfmodel.specs.formats import FILE_TYPES
from perfmodel.specs.model import Attention, CheckpointFormat, Layer, Model, MoeFfn, Scheme

SUPER_BLOCK = 256
"""Elements of a block of the K formats."""
BLOCK = 32
"""Elements of a block of the others."""
FALLBACK = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""Instead of a K format where a row isn't whole super-blocks."""
FUSED_QKV = {"bloom", "chatglm", "dbrx", "falcon", "gpt2", "mpt", "phi3"}
"""Architectures whose files hold queries, keys and values in one tensor."""
SEVENTY_B = {"llama", "qwen2"}
"""Architectures in which 80 layers with grouped heads are taken for the 70B model."""
MIXTRAL_EXPERTS = 8
"""Experts of the model that gets more bits in its small attention matrices."""


def more_bits(index: int, count: int) -> bool:
    """Whether layer ``index`` of ``count`` is one that Q4_K_M gives more bits.

    >>> [i for i in range(32) if more_bits(i, 32)]
    [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]
    """
    eighth = count // 8
    return index < eighth or index >= 7 * count // 8 or (index - eighth) % 3 == 2


def fitting(name: str, rows: int) -> str:
    """The format that rows of ``rows`` elements get where ``name`` was wanted."""
    if name in FALLBACK and rows % SUPER_BLOCK:
        name = FALLBACK[name]
    return "bf16" if rows % BLOCK else name


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a layer stands: its number, and its number among those with attention."""

    index: int
    attention: int


def _k_medium(module: str, model: Model, experts: int, at: _Place) -> str:
    """What Q4_K_M wants for a module of a layer."""
    layers = len(model.layers)
    mixers = sum(isinstance(layer.mixer, Attention) for layer in model.layers)
    falcon = model.architecture == "falcon"
    if module in {"q_proj", "k_proj", "v_proj"} and model.architecture in FUSED_QKV:
        return "q5_k"
    if experts == MIXTRAL_EXPERTS and module in {"k_proj", "v_proj", "o_proj"}:
        return "q5_k" if module == "o_proj" else "q8_0"
    more = "q6_k"
    if module == "v_proj":
        chosen, less = more_bits(at.attention, mixers), "q5_k" if _seventy_b(model) else "q4_k"
    elif module.endswith("down_proj"):
        chosen, less = more_bits(at.index, layers), "q4_k"
        if falcon and at.index >= layers // 16:
            more = "q5_k"
        elif falcon:
            chosen = True
    else:
        return "q4_k"
    return more if chosen else less


def _seventy_b(model: Model) -> bool:
    mixer = model.layers[0].mixer
    grouped = isinstance(mixer, Attention) and mixer.kv_heads < mixer.heads
    return model.architecture in SEVENTY_B and len(model.layers) == 80 and grouped


def _modules(layer: Layer, model: Model) -> Iterator[tuple[str, int]]:
    """Modules of a layer that are quantised, and the elements of their rows."""
    for weight in layer_weights(layer, model.hidden, model.norm):
        if weight.role in {"linear", "expert"}:
            for module, _ in weight.modules:
                yield module, weight.rows


def _scheme(name: str) -> Scheme:
    return Scheme(weights=name, activations="bf16")


def _stored(layer: Layer, model: Model, kind: str, base: str, at: _Place) -> Layer:
    """``layer`` with the modules that differ from ``base``."""
    experts = layer.ffn.experts if isinstance(layer.ffn, MoeFfn) else 0
    found = []
    for module, rows in _modules(layer, model):
        wanted = _k_medium(module, model, experts, at) if kind == "q4_k_m" else base
        name = fitting(wanted, rows)
        if name != base:
            found.append((module, _scheme(name)))
    return layer.model_copy(update={"stored": tuple(found)})


def _tables(model: Model, kind: str, base: str) -> tuple[str, str]:
    """The formats of the LM head and the embedding table; one format where they are tied."""
    rows = model.embedding_width or model.hidden
    whole = "q8_0" if kind == "q8_0" or model.architecture == "falcon" else "q6_k"
    head = fitting(whole, rows)
    return head, head if model.tied else fitting(base, rows)


@lru_cache(maxsize=64)
def gguf_file(model: Model, kind: str) -> Model:
    """``model`` as the GGUF file of type ``kind`` stores it.

    Args:
        model: any model; how its own checkpoint is stored doesn't matter.
        kind: one of `FILE_TYPES`.
    """
    assert kind in FILE_TYPES  # noqa: S101  (the caller looked)
    base = "q4_k" if kind == "q4_k_m" else kind
    layers, attention = [], 0
    made: dict[Layer, Layer] = {}
    for index, layer in enumerate(model.layers):
        stored = _stored(layer, model, kind, base, _Place(index, attention))
        layers.append(made.setdefault(stored, stored))
        attention += isinstance(layer.mixer, Attention)
    head, embedding = _tables(model, kind, base)
    checkpoint = CheckpointFormat(
        weights=kind,
        activations="bf16",
        linear=_scheme(base),
        expert=_scheme(base),
        head=_scheme(head),
        embedding=_scheme(embedding),
    )
    return model.model_copy(update={"layers": tuple(layers), "checkpoint": checkpoint})
