"""The architecture of a decoder, as records: what each layer holds, nothing about how it is run.

A `Model` is read from a Hugging Face ``config.json`` by `perfmodel.specs.architectures`. Widths
are elements; counts are exact, so that parameters come out to the last one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from perfmodel.specs.base import Spec

# Bounds that no real model reaches: a config beyond them is a typing error, and the arithmetic
# stays far from overflow.
Width = Annotated[int, Field(gt=0, le=2**24)]
Count = Annotated[int, Field(gt=0, le=2**17)]
CountOrNone = Annotated[int, Field(ge=0, le=2**24)]


class Norm(Spec):
    """Normalisation over a width: RMSNorm (no mean, no bias) or LayerNorm."""

    kind: Literal["rms", "layer"] = "rms"
    weight: bool = True
    bias: bool = False


class Attention(Spec):
    """Softmax attention with a cache of keys and values: MHA, GQA (kv_heads < heads), MQA (1)."""

    kind: Literal["attention"] = "attention"
    heads: Count
    kv_heads: Count
    head_dim: Width
    value_head_dim: Width | None = None
    """Width of a value head where it differs from ``head_dim``."""
    q_bias: bool = False
    kv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "head", "width"] = "none"
    """``head``: one vector of head_dim for all query heads, one for the keys (Qwen3);
    ``width``: a vector over all heads (OLMo-2, MiniMax-M2, Command-R+)."""
    qk_norm_bias: bool = False
    """The norms of queries and keys carry a bias too (Persimmon)."""
    window: Width | None = None
    """Keys that a query sees at most, itself included; None sees all."""
    chunked: bool = False
    """The window is a fixed chunk of positions that a query doesn't see past (Llama-4)."""
    sinks: bool = False
    """One learned logit per head in the softmax (gpt-oss)."""
    output_gate: bool = False
    """The query projection is doubled; its second half gates the output (Qwen3-Next)."""
    rotary_dim: CountOrNone = 0
    """Rotated elements of a head; 0 where positions come another way or not at all."""

    @property
    def value_dim(self) -> int:
        """Width of one value head."""
        return self.value_head_dim or self.head_dim


class Indexer(Spec):
    """The light attention that picks which keys the main one reads (DeepSeek-V3.2, GLM-5)."""

    heads: Count
    head_dim: Width
    top_k: Count
    shared: bool = False
    """The layer reuses the choice of the last layer that made one, and holds no indexer."""


class LatentAttention(Spec):
    """Multi-head latent attention (MLA): keys and values of all heads in one low-rank latent."""

    kind: Literal["latent"] = "latent"
    heads: Count
    q_rank: Width | None
    kv_rank: Width
    nope_dim: Width
    rope_dim: Width
    value_dim: Width
    bias: bool = False
    """Bias on the down-projections and the output (none in the published models)."""
    indexer: Indexer | None = None


class GatedDeltaNet(Spec):
    """Linear attention with a gated delta rule (Qwen3-Next, Qwen3.5)."""

    kind: Literal["delta"] = "delta"
    key_heads: Count
    value_heads: Count
    key_dim: Width
    value_dim: Width
    conv_kernel: Count


class Mamba2(Spec):
    """State-space layer of Mamba-2 (Codestral-Mamba, Nemotron-H)."""

    kind: Literal["mamba2"] = "mamba2"
    heads: Count
    head_dim: Width
    state: Width
    groups: Count
    conv_kernel: Count
    conv_bias: bool = True
    bias: bool = False
    gated_norm: bool = True

    @property
    def inner(self) -> int:
        """Width of the layer's inner stream."""
        return self.heads * self.head_dim


class Mamba1(Spec):
    """State-space layer of Mamba-1, with Jamba's norms on dt, B and C where ``inner_norms``."""

    kind: Literal["mamba1"] = "mamba1"
    inner: Width
    state: Width
    dt_rank: Width
    conv_kernel: Count
    conv_bias: bool = True
    bias: bool = False
    inner_norms: bool = False


class DenseFfn(Spec):
    """Feed-forward block: two matrices, or three where gated (SwiGLU, GeGLU)."""

    kind: Literal["dense"] = "dense"
    width: Width
    gated: bool = True
    up_bias: bool = False
    """Bias on the first projection(s)."""
    down_bias: bool = False
    activation_weights: CountOrNone = 0
    """Learned numbers of the activation itself (Apertus' xIELU has 2)."""


class MoeFfn(Spec):
    """Mixture of experts: a router sends each token to ``top_k`` of ``experts``."""

    kind: Literal["moe"] = "moe"
    experts: Count
    top_k: Count
    width: Width
    """Intermediate width of one expert."""
    gated: bool = True
    bias: bool = False
    """Biases on both projections of an expert (gpt-oss)."""
    shared: DenseFfn | None = None
    """What every token passes besides; several shared experts are one of their summed width."""
    shared_gate: bool = False
    """A sigmoid gate, hidden → 1, on the shared expert (Qwen2-MoE)."""
    router_bias: bool = False
    correction_bias: bool = False
    """The score-correction vector that DeepSeek-V3's router stores, one per expert."""


Mixer = Annotated[
    Attention | LatentAttention | GatedDeltaNet | Mamba2 | Mamba1, Field(discriminator="kind")
]
Ffn = Annotated[DenseFfn | MoeFfn, Field(discriminator="kind")]


FFN_MODULES = ("ffn.", "experts.", "shared_expert.")
"""How the names of a feed-forward block's modules begin."""


class Scheme(Spec):
    """How a checkpoint stores matrices, and what it says of their inputs."""

    weights: str
    """A name of `perfmodel.specs.formats`."""
    activations: str | None = None
    """The format of the inputs; ``bf16`` where only weights are quantised, None where the
    checkpoint leaves it to the engine."""


UNQUANTISED = Scheme(weights="bf16", activations="bf16")
"""How a quantised checkpoint stores the modules that it spares."""


class Layer(Spec):
    """One layer: a sequence mixer, a feed-forward block, or both."""

    mixer: Mixer | None
    ffn: Ffn | None
    norms: Annotated[int, Field(ge=0, le=8)] = 2
    """Norms of the hidden width in the layer (4 with post-norms, 1 in parallel blocks)."""
    parallel: bool = False
    """Mixer and feed-forward read the same input and are added together (GPT-J, Falcon)."""
    stored: tuple[tuple[str, Scheme], ...] = ()
    """Modules that the checkpoint stores otherwise than their role in `CheckpointFormat`: a
    module is a part of a matrix of `perfmodel.operators.weights` (``k_proj``, ``ffn.up_proj``)."""

    @property
    def mixer_stored(self) -> tuple[tuple[str, Scheme], ...]:
        """The part of ``stored`` that concerns the mixer."""
        return tuple(item for item in self.stored if not item[0].startswith(FFN_MODULES))

    @property
    def ffn_stored(self) -> tuple[tuple[str, Scheme], ...]:
        """The part of ``stored`` that concerns the feed-forward block."""
        return tuple(item for item in self.stored if item[0].startswith(FFN_MODULES))


class Mtp(Spec):
    """Multi-token-prediction modules: extra layers behind the main network, not counted in it."""

    layers: tuple[Layer, ...]
    projection: bool = True
    """The 2·hidden → hidden matrix that joins embedding and hidden state."""
    norms: CountOrNone = 3
    """Norms of the hidden width beside the layers' own (two inputs, one output)."""


class CheckpointFormat(Spec):
    """The number formats of a quantised checkpoint, from its ``quantization_config``.

    Per role; `Layer.stored` has the modules that are stored otherwise than their role.
    """

    weights: str
    """The name of the whole: a format, or several joined by ``+``."""
    activations: str | None = None
    """What enters quantised layers; as in `Scheme`."""
    linear: Scheme | None = None
    """Linear layers outside the experts; None: as the two fields above say."""
    expert: Scheme | None = None
    """Experts; None as for ``linear``."""
    head: bool | Scheme = False
    """The LM head is quantised too: as the whole, or by a scheme of its own."""
    embedding: Scheme | None = None
    """The table of token embeddings; None: in 16 bits."""
    kv_cache: str | None = None
    """The format of cached keys and values, where the checkpoint brings their scales."""
    fault: str | None = None
    """Why the formats can't be told; such a checkpoint needs ``--weights``."""
    notes: tuple[str, ...] = ()
    """What of the config could not be followed."""

    def of_role(self, role: Literal["linear", "expert", "head", "embedding"]) -> Scheme:
        """How the matrices of a role are stored."""
        if role == "embedding":
            return self.embedding or UNQUANTISED
        whole = Scheme(weights=self.weights, activations=self.activations)
        if role == "head":
            stated = UNQUANTISED if self.head is False else self.head
            return stated if isinstance(stated, Scheme) else whole
        return (self.linear if role == "linear" else self.expert) or whole


class Model(Spec):
    """A decoder-only language model, and the size of the vision tower beside it, if any."""

    name: str
    architecture: str
    """``model_type`` of the config."""
    hidden: Width
    vocab: Width
    layers: tuple[Layer, ...]
    norm: Norm = Norm()
    """The kind of every norm of the hidden width."""
    tied: bool = False
    """The LM head is the embedding table."""
    head: bool = True
    """There is an LM head."""
    head_bias: bool = False
    position_rows: CountOrNone = 0
    """Rows of a learned position table (GPT-2, OPT); 0 without one."""
    embedding_width: Width | None = None
    """Width of the embedding where projections lead to and from the hidden width (OPT-350m)."""
    embedding_norms: CountOrNone = 0
    final_norm: bool = True
    max_positions: Annotated[int, Field(gt=0, le=2**30)] | None = None
    state_dtype: Literal["fp32", "bf16", "fp16"] = "bf16"
    """The format of recurrent states; the short convolution's inputs stay in 16 bits."""
    vision_parameters: Annotated[int, Field(ge=0)] = 0
    mtp: Mtp | None = None
    checkpoint: CheckpointFormat | None = None
