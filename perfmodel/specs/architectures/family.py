"""What a family's code fixes and its config doesn't say, and the one builder that uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perfmodel.specs.architectures.config import MAX_HEADS, MAX_LAYERS, Config
from perfmodel.specs.model import Ffn, Layer, Mixer, Model, Mtp, Norm

HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
FFN_WIDTH = ("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
VOCAB = ("vocab_size", "padded_vocab_size")
POSITIONS = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "n_ctx")

RMS = Norm(kind="rms")
LAYER_NORM = Norm(kind="layer", bias=True)
BIASLESS_LAYER_NORM = Norm(kind="layer")


@dataclass(frozen=True, slots=True)
class Switch:
    """A yes or no that ``keys`` of the config may state."""

    default: bool
    keys: tuple[str, ...] = ()

    def read(self, config: Config) -> bool:
        """What the config says, else the default."""
        return config.flag(*self.keys, default=self.default) if self.keys else self.default


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that every decoder states."""

    hidden: int
    layers: int
    vocab: int
    max_positions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The traits of one ``model_type``; the defaults are Llama's."""

    mixers: Callable[[Config, Family, Shape], Sequence[Mixer | None]]
    ffns: Callable[[Config, Family, Shape], Sequence[Ffn | None]]
    norm: Norm | Callable[[Config], Norm] = RMS
    norms: int | Callable[[Config], int] = 2
    """Norms of the hidden width in a layer."""
    parallel: Switch = Switch(False)
    tied: bool = False
    """The default of ``tie_word_embeddings``."""
    head_bias: Switch = Switch(False)
    qkv_bias: Switch = Switch(False, ("qkv_bias", "attention_bias"))
    out_bias: Switch = Switch(False, ("o_bias", "attention_bias"))
    up_bias: Switch = Switch(False, ("mlp_bias",))
    down_bias: Switch = Switch(False, ("mlp_bias",))
    qk_norm: Literal["head", "width"] = "head"
    has_qk_norm: Switch = Switch(False)
    qk_norm_bias: bool = False
    gated: bool = True
    output_gate: Switch = Switch(False)
    sinks: bool = False
    kv_heads: int | None = None
    """KV heads where the key is absent; None: as many as query heads."""
    head_dim: int | None = None
    """Head width where the key is absent; None: hidden / heads."""
    window: int | None = None
    """The window's size where its key is absent."""
    windows: Callable[[Config, Shape, int | None], Sequence[int | None]] | None = None
    """Each layer's window, of that size or none; None: full attention everywhere."""
    chunked: bool = False
    """A window is a fixed chunk of positions (Llama-4)."""
    rotary: float = 1.0
    """The rotated share of a head where the config doesn't say."""
    ffn_keys: tuple[str, ...] = FFN_WIDTH
    """Where the width of the dense blocks stands."""
    ffn_factor: int | None = None
    """FFN width over hidden width where the key is absent."""
    activation_weights: int = 0
    layer_count: Callable[[Config], int | None] | None = None
    """Layers where the key is absent but another tells them (Nemotron-H's pattern)."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The class's own sizes, for a ``text_config`` that leaves them out."""
    extras: Callable[[Config, Shape], Mapping[str, Any]] | None = None
    """Further fields of the `Model`: position tables, norms of the embedding."""
    mtp: Callable[[Config, Family, Shape, Sequence[Layer]], Mtp | None] | None = None


def read_shape(config: Config, family: Family) -> Shape:
    """The sizes that every decoder must state.

    Raises:
        InputError: one is missing or out of bounds.
    """
    count = family.layer_count(config) if family.layer_count else None
    return Shape(
        hidden=config.integer(*HIDDEN),
        layers=config.integer(*LAYERS, default=count, high=MAX_LAYERS),
        vocab=config.integer(*VOCAB),
        max_positions=config.optional(*POSITIONS, high=2**30),
    )


def read_heads(config: Config) -> int:
    """Query heads."""
    return config.integer(*HEADS, high=MAX_HEADS)


def with_defaults(config: Config, family: Family) -> Config:
    """A ``text_config`` with its class's sizes filled in; any other config as it is."""
    if not config.nested:
        return config
    data = dict(config.data)
    for key, value in family.defaults.items():
        data.setdefault(key, value)
    return Config(data, config.where, config.path, nested=True)


def build_decoder(config: Config, family: Family, name: str, architecture: str) -> Model:
    """The text model that ``config`` describes.

    Raises:
        InputError: a field is missing or wrong.
    """
    config = with_defaults(config, family)
    shape = read_shape(config, family)
    norms = family.norms(config) if callable(family.norms) else family.norms
    layers = join_layers(
        family.mixers(config, family, shape),
        family.ffns(config, family, shape),
        norms=norms,
        parallel=family.parallel.read(config),
    )
    fields: dict[str, Any] = {
        "name": name,
        "architecture": architecture,
        "hidden": shape.hidden,
        "vocab": shape.vocab,
        "layers": layers,
        "norm": family.norm(config) if callable(family.norm) else family.norm,
        "tied": config.flag("tie_word_embeddings", default=family.tied),
        "head_bias": family.head_bias.read(config),
        "max_positions": shape.max_positions,
    }
    if family.extras:
        fields |= family.extras(config, shape)
    if family.mtp:
        fields["mtp"] = family.mtp(config, family, shape, layers)
    return Model.parse(fields, config.where)


def join_layers(
    mixers: Sequence[Mixer | None], ffns: Sequence[Ffn | None], norms: int, parallel: bool
) -> tuple[Layer, ...]:
    """One layer per mixer and FFN; alike layers are one object, so that thousands are cheap."""
    seen: dict[tuple[int, int], Layer] = {}
    layers = []
    for mixer, ffn in zip(mixers, ffns, strict=True):
        key = (id(mixer), id(ffn))
        if key not in seen:
            seen[key] = Layer(mixer=mixer, ffn=ffn, norms=norms, parallel=parallel)
        layers.append(seen[key])
    return tuple(layers)
