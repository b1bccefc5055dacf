"""Every stored tensor of a model: the one place where parameters are counted.

Operators take their matrices from here, so the weights that a step reads and the parameters
that a checkpoint holds can't disagree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from perfmodel.specs.model import (
    Attention,
    DenseFfn,
    GatedDeltaNet,
    LatentAttention,
    Layer,
    Mamba1,
    Mamba2,
    Model,
    MoeFfn,
    Norm,
)

Role = Literal["linear", "expert", "router", "embedding", "position", "head", "vector"]


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix of ``rows`` (contracted) × ``columns`` (produced), ``copies`` of it, with a bias.

    ``bias`` is the elements of one copy's bias vector. A vector (norm, scale, bias alone) has
    ``rows`` 1 and role ``vector``.
    """

    name: str
    role: Role
    rows: int
    columns: int
    bias: int = 0
    copies: int = 1
    parts: tuple[tuple[str, int], ...] = ()
    """The modules that a fused matrix joins, and the columns of each."""

    @property
    def modules(self) -> tuple[tuple[str, int], ...]:
        """The modules of the matrix, by which a checkpoint says how it is stored."""
        return self.parts or ((self.name, self.columns),)

    @property
    def elements(self) -> int:
        """Stored elements, biases and copies included."""
        return self.copies * (self.rows * self.columns + self.bias)


def _vector(name: str, elements: int) -> Weight:
    return Weight(name, "vector", 1, elements)


def _linear(name: str, rows: int, columns: int, bias: bool = False) -> Weight:
    return Weight(name, "linear", rows, columns, columns if bias else 0)


def norm_elements(norm: Norm, width: int) -> int:
    """Stored elements of a norm over ``width``."""
    return width * (norm.weight + norm.bias)


def attention_weights(a: Attention, hidden: int) -> Iterator[Weight]:
    """Projections of MHA, GQA or MQA: one fused QKV matrix, the output, and the small vectors."""
    q = a.heads * a.head_dim
    k = a.kv_heads * a.head_dim
    v = a.kv_heads * a.value_dim
    gate = a.heads * a.value_dim if a.output_gate else 0
    bias = a.q_bias * (q + gate) + a.kv_bias * (k + v)
    parts = (("q_proj", q + gate), ("k_proj", k), ("v_proj", v))
    yield Weight("qkv_proj", "linear", hidden, q + gate + k + v, bias, parts=parts)
    yield _linear("o_proj", a.heads * a.value_dim, hidden, a.out_bias)
    if a.qk_norm == "head":
        yield _vector("qk_norm", 2 * a.head_dim * (1 + a.qk_norm_bias))
    elif a.qk_norm == "width":
        yield _vector("qk_norm", (q + k) * (1 + a.qk_norm_bias))
    if a.sinks:
        yield _vector("sinks", a.heads)


def latent_weights(a: LatentAttention, hidden: int) -> Iterator[Weight]:
    """MLA: down-projections to the latents, up-projections to the heads, the output.

    Both down-projections are one matrix, as engines load them (vLLM and SGLang:
    ``fused_qkv_a_proj``; TensorRT-LLM: ``kv_a_proj_with_mqa``).
    """
    qk = a.nope_dim + a.rope_dim
    kv = a.kv_rank + a.rope_dim
    if a.q_rank is None:
        yield _linear("q_proj", hidden, a.heads * qk)
        yield _linear("kv_a_proj", hidden, kv, a.bias)
    else:
        both, parts = a.q_rank + kv, (("q_a_proj", a.q_rank), ("kv_a_proj", kv))
        yield Weight("qkv_a_proj", "linear", hidden, both, both * a.bias, parts=parts)
        yield _vector("q_a_norm", a.q_rank)
        yield _linear("q_b_proj", a.q_rank, a.heads * qk)
    yield _vector("kv_a_norm", a.kv_rank)
    yield _linear("kv_b_proj", a.kv_rank, a.heads * (a.nope_dim + a.value_dim))
    yield _linear("o_proj", a.heads * a.value_dim, hidden, a.bias)
    if a.indexer is not None and not a.indexer.shared:
        index = a.indexer
        yield _linear("indexer.q_proj", a.q_rank or hidden, index.heads * index.head_dim)
        yield _linear("indexer.k_proj", hidden, index.head_dim)
        yield _vector("indexer.k_norm", 2 * index.head_dim)
        yield Weight("indexer.weights_proj", "router", hidden, index.heads)


def delta_weights(d: GatedDeltaNet, hidden: int) -> Iterator[Weight]:
    """Gated delta net: fused input projections, a short convolution, the output."""
    keys = d.key_heads * d.key_dim
    values = d.value_heads * d.value_dim
    parts = (("in_proj_qkv", 2 * keys + values), ("in_proj_z", values))
    yield Weight("in_proj_qkvz", "linear", hidden, 2 * keys + 2 * values, parts=parts)
    yield Weight("in_proj_ba", "router", hidden, 2 * d.value_heads)
    yield _vector("conv", (2 * keys + values) * d.conv_kernel)
    yield _vector("decay", 2 * d.value_heads)  # A_log and dt_bias
    yield _vector("gated_norm", d.value_dim)
    yield _linear("out_proj", values, hidden)


def mamba2_weights(m: Mamba2, hidden: int) -> Iterator[Weight]:
    """Mamba-2: z, x, B, C and dt from one projection, a convolution over x, B, C, the output."""
    conv = m.inner + 2 * m.groups * m.state
    yield _linear("in_proj", hidden, m.inner + conv + m.heads, m.bias)
    yield _vector("conv", conv * (m.conv_kernel + m.conv_bias))
    yield _vector("decay", 3 * m.heads)  # A_log, D and dt_bias
    if m.gated_norm:
        yield _vector("gated_norm", m.inner)
    yield _linear("out_proj", m.inner, hidden, m.bias)


def mamba1_weights(m: Mamba1, hidden: int) -> Iterator[Weight]:
    """Mamba-1: x and z, a convolution over x, dt/B/C from x, dt to the inner width, the output."""
    yield _linear("in_proj", hidden, 2 * m.inner, m.bias)
    yield _vector("conv", m.inner * (m.conv_kernel + m.conv_bias))
    yield _linear("x_proj", m.inner, m.dt_rank + 2 * m.state)
    yield _linear("dt_proj", m.dt_rank, m.inner, bias=True)
    yield _vector("decay", m.inner * m.state + m.inner)  # A_log and D
    if m.inner_norms:
        yield _vector("inner_norms", m.dt_rank + 2 * m.state)
    yield _linear("out_proj", m.inner, hidden, m.bias)


def _up(prefix: str, width: int, gated: bool) -> tuple[str, tuple[tuple[str, int], ...]]:
    """The name of a block's first matrix, and the modules that it joins where gated."""
    if not gated:
        return f"{prefix}.up_proj", ()
    return f"{prefix}.gate_up_proj", ((f"{prefix}.gate_proj", width), (f"{prefix}.up_proj", width))


def dense_weights(f: DenseFfn, hidden: int, prefix: str = "ffn") -> Iterator[Weight]:
    """Feed-forward block: gate and up fused where gated, then down."""
    up = f.width * (2 if f.gated else 1)
    name, parts = _up(prefix, f.width, f.gated)
    yield Weight(name, "linear", hidden, up, up if f.up_bias else 0, parts=parts)
    yield _linear(f"{prefix}.down_proj", f.width, hidden, f.down_bias)
    if f.activation_weights:
        yield _vector(f"{prefix}.activation", f.activation_weights)


def moe_weights(f: MoeFfn, hidden: int) -> Iterator[Weight]:
    """Router, experts (as copies of two matrices), and the shared expert."""
    yield Weight("router", "router", hidden, f.experts, f.experts if f.router_bias else 0)
    if f.correction_bias:
        yield _vector("router.correction", f.experts)
    up = f.width * (2 if f.gated else 1)
    up_name, parts = _up("experts", f.width, f.gated)
    yield Weight(up_name, "expert", hidden, up, up if f.bias else 0, f.experts, parts)
    yield Weight("experts.down_proj", "expert", f.width, hidden, hidden if f.bias else 0, f.experts)
    if f.shared is not None:
        yield from dense_weights(f.shared, hidden, "shared_expert")
    if f.shared_gate:
        yield Weight("shared_expert_gate", "router", hidden, 1)


def mixer_weights(layer: Layer, hidden: int, norm: Norm) -> Iterator[Weight]:
    """Tensors of a layer's sequence mixer."""
    mixer = layer.mixer
    if isinstance(mixer, Attention):
        yield from attention_weights(mixer, hidden)
    elif isinstance(mixer, LatentAttention):
        yield from latent_weights(mixer, hidden)
    elif isinstance(mixer, GatedDeltaNet):
        yield from delta_weights(mixer, hidden)
    elif isinstance(mixer, Mamba2):
        yield from mamba2_weights(mixer, hidden)
    elif isinstance(mixer, Mamba1):
        yield from mamba1_weights(mixer, hidden)


def ffn_weights(layer: Layer, hidden: int) -> Iterator[Weight]:
    """Tensors of a layer's feed-forward block."""
    if isinstance(layer.ffn, DenseFfn):
        yield from dense_weights(layer.ffn, hidden)
    elif isinstance(layer.ffn, MoeFfn):
        yield from moe_weights(layer.ffn, hidden)


def layer_weights(layer: Layer, hidden: int, norm: Norm) -> Iterator[Weight]:
    """Every tensor of one layer."""
    if layer.norms:
        yield _vector("norms", layer.norms * norm_elements(norm, hidden))
    yield from mixer_weights(layer, hidden, norm)
    yield from ffn_weights(layer, hidden)


def embedding_weights(model: Model) -> Iterator[Weight]:
    """Tensors before the first layer; the token table is the head's too where tied."""
    width = model.embedding_width or model.hidden
    yield Weight("embedding", "embedding", model.vocab, width)
    if model.position_rows:
        yield Weight("positions", "position", model.position_rows, model.hidden)
    if model.embedding_norms:
        elements = model.embedding_norms * norm_elements(model.norm, model.hidden)
        yield _vector("embedding_norm", elements)
    if model.embedding_width:
        yield _linear("embedding_in", width, model.hidden)
        yield _linear("embedding_out", model.hidden, width)


def head_weights(model: Model) -> Iterator[Weight]:
    """Tensors behind the last layer; none for the head itself where it is tied."""
    if model.final_norm:
        yield _vector("final_norm", norm_elements(model.norm, model.hidden))
    if model.head:
        bias = model.vocab if model.head_bias else 0
        if not model.tied:
            width = model.embedding_width or model.hidden
            yield Weight("lm_head", "head", width, model.vocab, bias)
        elif bias:
            yield _vector("lm_head.bias", bias)


def model_weights(model: Model) -> Iterator[Weight]:
    """Every tensor of the main network's text model, layer by layer."""
    yield from embedding_weights(model)
    for layer in model.layers:
        yield from layer_weights(layer, model.hidden, model.norm)
    yield from head_weights(model)


def mtp_weights(model: Model) -> Iterator[Weight]:
    """Tensors of the multi-token-prediction modules (their copies of embedding and head apart)."""
    if model.mtp is None:
        return
    for layer in model.mtp.layers:
        if model.mtp.projection:
            yield Weight("mtp.projection", "router", 2 * model.hidden, model.hidden)
        yield _vector("mtp.norms", model.mtp.norms * norm_elements(model.norm, model.hidden))
        yield from layer_weights(layer, model.hidden, model.norm)
