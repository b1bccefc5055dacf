"""What checkpoints call the matrices of a layer, and patterns over those names.

A *module* is a part of a matrix of the inventory (``q_proj``, ``experts.down_proj``); families
give it different names. Names here are relative to their layer (``self_attn.q_proj``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Literal

from perfmodel.specs.model import (
    Attention,
    DenseFfn,
    GatedDeltaNet,
    LatentAttention,
    Layer,
    Mamba1,
    Mamba2,
    MoeFfn,
)

ATTENTION = ("self_attn", "attn", "attention", "self_attention", "mixer", "attention.attention")
FUSED_QKV = ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "W_pack", "wqkv")
QUERY = (*FUSED_QKV, "q_proj", "wq")
KEY = (*FUSED_QKV, "k_proj", "wk")
VALUE = (*FUSED_QKV, "v_proj", "wv")
OUTPUT = ("o_proj", "out_proj", "dense", "c_proj", "wo")
DENSE = ("mlp", "feed_forward", "mixer", "ffn", "block_sparse_moe")
GATE = ("gate_up_proj", "gate_proj", "w1", "dense_h_to_4h")
UP = ("gate_up_proj", "up_proj", "w3", "c_fc", "fc1", "fc_in", "dense_h_to_4h")
DOWN = ("down_proj", "w2", "c_proj", "fc2", "fc_out", "dense_4h_to_h")
SPARSE = ("mlp", "block_sparse_moe", "feed_forward", "mixer", "ffn", "moe")
SHARED = (
    "mlp.shared_experts",
    "mlp.shared_expert",
    "feed_forward.shared_expert",
    "mixer.shared_experts",
    "shared_mlp",
)
STATE = ("mamba", "mixer")
KEPT = (
    "mlp.gate", "mlp.router", "block_sparse_moe.gate", "feed_forward.router", "mixer.gate",
    "mlp.shared_expert_gate", "self_attn.indexer.weights_proj", "linear_attn.in_proj_ba",
    "linear_attn.in_proj_a", "linear_attn.in_proj_b", "linear_attn.conv1d", "mixer.conv1d",
    "mamba.conv1d", "input_layernorm", "post_attention_layernorm", "self_attn.q_norm",
    "self_attn.k_norm", "mlp.gate.e_score_correction_bias",
    "block_sparse_moe.e_score_correction_bias",
)  # fmt: skip
"""What stays in 16 bits whatever a config says."""
PREFIXES = (
    "model.layers.{}.",
    "language_model.model.layers.{}.",
    "model.language_model.layers.{}.",
    "transformer.h.{}.",
    "gpt_neox.layers.{}.",
    "model.decoder.layers.{}.",
    "backbone.layers.{}.",
)
HEADS = ("lm_head", "language_model.lm_head", "model.lm_head", "embed_out")
FOREIGN = re.compile(
    r"vision|visual|image|audio|multi_modal|mm_proj|merger|patch|\bmtp|eh_proj|embed|\bwte|\bwpe"
    r"|norm|rotary|conv1d|correction_bias|router|\bgate\b|shared_expert_gate|shared_head"
    r"|connector|projector$"
)
"""Names beside the text model's matrices: towers, tables, norms, routers, prediction modules."""
EXPERT = re.compile(r"\bexperts\.\d+")
GLOB = "*?"
INDEXED = re.compile(r"(?:^|.*\.)(?:layers|h|blocks)\.(\d+)(?:\.(.+))?")
"""A name within one layer: the index, and what follows it."""


@dataclass(frozen=True, slots=True)
class Module:
    """A part of a layer's matrix and its names in checkpoints."""

    name: str
    role: Literal["linear", "expert"]
    names: tuple[tuple[str, ...], ...]
    """Alternatives; each is one name, or those of some experts that stand for all."""


def _joined(containers: Iterable[str], projections: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    return tuple((".".join(pair),) for pair in product(containers, projections))


def _named(name: str, *names: str) -> Module:
    return Module(name, "linear", tuple((item,) for item in names))


def _attention() -> Iterator[Module]:
    for name, projections in (
        ("q_proj", QUERY),
        ("k_proj", KEY),
        ("v_proj", VALUE),
        ("o_proj", OUTPUT),
    ):
        yield Module(name, "linear", _joined(ATTENTION, projections))


def _latent(a: LatentAttention) -> Iterator[Module]:
    if a.q_rank is None:
        yield _named("q_proj", "self_attn.q_proj")
    else:
        yield _named("q_a_proj", "self_attn.q_a_proj", "self_attn.fused_qkv_a_proj")
        yield _named("q_b_proj", "self_attn.q_b_proj")
    yield _named("kv_a_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.fused_qkv_a_proj")
    yield _named("kv_b_proj", "self_attn.kv_b_proj")
    yield _named("o_proj", "self_attn.o_proj")
    if a.indexer is not None and not a.indexer.shared:
        yield _named("indexer.q_proj", "self_attn.indexer.wq_b")
        yield _named("indexer.k_proj", "self_attn.indexer.wk")


def _mixer(layer: Layer) -> Iterator[Module]:
    mixer = layer.mixer
    if isinstance(mixer, Attention):
        yield from _attention()
    elif isinstance(mixer, LatentAttention):
        yield from _latent(mixer)
    elif isinstance(mixer, GatedDeltaNet):
        whole = "linear_attn.in_proj_qkvz"
        yield _named("in_proj_qkv", whole, "linear_attn.in_proj_qkv")
        yield _named("in_proj_z", whole, "linear_attn.in_proj_z")
        yield _named("out_proj", "linear_attn.out_proj")
    elif isinstance(mixer, Mamba1 | Mamba2):
        inner = ("x_proj", "dt_proj") if isinstance(mixer, Mamba1) else ()
        for name in ("in_proj", *inner, "out_proj"):
            yield Module(name, "linear", _joined(STATE, (name,)))


def _dense(prefix: str, containers: tuple[str, ...], gated: bool) -> Iterator[Module]:
    bare = not gated and prefix == "ffn"  # OPT's stand in the layer itself
    for name, projections in (("gate_proj", GATE), ("up_proj", UP), ("down_proj", DOWN)):
        if gated or name != "gate_proj":
            names = _joined(containers, projections)
            names += tuple((item,) for item in projections if bare and item.startswith("fc"))
            yield Module(f"{prefix}.{name}", "linear", names)


def _experts(f: MoeFfn) -> Iterator[Module]:
    some = sorted({0, f.experts // 2, f.experts - 1})
    for name, projections in (("gate_proj", GATE), ("up_proj", UP), ("down_proj", DOWN)):
        if name == "gate_proj" and not f.gated:
            continue
        names: list[tuple[str, ...]] = []
        for container, projection in product(SPARSE, projections):
            names.append((f"{container}.experts.{projection}",))
            names.append(tuple(f"{container}.experts.{index}.{projection}" for index in some))
        yield Module(f"experts.{name}", "expert", tuple(names))


@lru_cache(maxsize=512)
def layer_modules(layer: Layer) -> tuple[Module, ...]:
    """The modules of a layer that a checkpoint may store quantised."""
    made = list(_mixer(layer))
    if isinstance(layer.ffn, DenseFfn):
        made += _dense("ffn", DENSE, layer.ffn.gated)
    elif isinstance(layer.ffn, MoeFfn):
        made += _experts(layer.ffn)
        if layer.ffn.shared is not None:
            made += _dense("shared_expert", SHARED, layer.ffn.shared.gated)
    return tuple(made)


@lru_cache(maxsize=512)
def layer_names(layer: Layer) -> tuple[str, ...]:
    """Every name that a layer's modules go by."""
    own = (name for module in layer_modules(layer) for names in module.names for name in names)
    return tuple(dict.fromkeys((*own, *KEPT)))


Matcher = Callable[[int, str], bool]
"""Whether a pattern names the module of a layer (by index) with a relative name."""


def _anything(names: str) -> bool:
    return True


@lru_cache(maxsize=64)
def layer_text(layer: Layer, index: int) -> str:
    """Every full name of a layer's modules, one a line."""
    return "\n".join(p.format(index) + name for p in PREFIXES for name in layer_names(layer))


@dataclass(frozen=True, slots=True)
class Pattern:
    """One entry of a list of modules."""

    text: str
    matches: Matcher
    """Whether it names a module of a layer."""
    head: bool
    """It names the LM head."""
    foreign: bool
    """It is about something beside the text model's matrices."""
    layer: int | None = None
    """The one layer that it is about, where it says so."""
    uniform: bool = False
    """It says the same of each layer."""
    screen: Callable[[str], bool] = _anything
    """Whether it may match a line of a text of names: quick, and never wrongly false."""


def _within(parts: list[str], name: str) -> bool:
    """``parts`` stand in a row in a dotted name."""
    own = name.split(".")
    return any(own[i : i + len(parts)] == parts for i in range(len(own) - len(parts) + 1))


def _glob(text: str) -> re.Pattern[str]:
    """A glob that must match a name, or something that holds it, from its start."""
    signs = {"*": ".*", "?": "."}
    return re.compile("".join(signs.get(c, re.escape(c)) for c in text) + r"(?:\.|$)")


def _plain(text: str) -> Pattern:
    foreign = FOREIGN.search(text) is not None
    indexed = INDEXED.fullmatch(text)
    head = text.rsplit(".", maxsplit=1)[-1] in {"lm_head", "embed_out"}
    if indexed is None:
        parts = text.split(".")
        return Pattern(
            text,
            lambda _, name: text in name and _within(parts, name),
            head,
            foreign,
            uniform=True,
            screen=lambda names: text in names,
        )
    index, rest = int(indexed[1]), indexed[2]
    if rest is None:
        return Pattern(text, lambda layer, _: layer == index, head, foreign, index)
    below: Callable[[str], object]
    if any(sign in rest for sign in GLOB):
        below, screen = _glob(rest).match, _anything
    else:
        parts = rest.split(".")
        below, screen = (lambda name: _within(parts, name)), (lambda names: rest in names)
    return Pattern(
        text,
        lambda layer, name: layer == index and bool(below(name)),
        head,
        foreign,
        index,
        screen=screen,
    )


def _screen(expression: re.Pattern[str]) -> Callable[[str], bool]:
    """A search of many lines at once; ends of text inside an expression can't be seen there."""
    if any(sign in expression.pattern for sign in (r"\A", r"\Z", r"\z", "(?<")):
        return _anything
    try:
        lines = re.compile(f"^(?:{expression.pattern})", re.MULTILINE)
    except re.error:  # flags that must stand first
        return _anything
    return lambda names: lines.search(names) is not None


def _full(text: str, expression: re.Pattern[str]) -> Pattern:
    """A pattern over whole names, under any of the prefixes."""
    return Pattern(
        text,
        lambda layer, name: any(expression.match(p.format(layer) + name) for p in PREFIXES),
        any(expression.match(name) for name in HEADS),
        FOREIGN.search(text) is not None,
        uniform=not any(sign.isdigit() for sign in text),
        screen=_screen(expression),
    )


def parse_pattern(text: Any) -> Pattern:
    """A module's name, a part of it, a glob, or (``re:``) a regular expression.

    A name without a layer's index means each layer; a name, or a glob, that ends above a
    matrix means all below. A regular expression must match from the start of the whole name.

    Raises:
        ValueError: no text, or a regular expression that is none.
    """
    if not isinstance(text, str) or not text.removeprefix("re:"):
        raise ValueError("no text")
    if text.startswith("re:"):
        try:
            expression = re.compile(text.removeprefix("re:"))
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(str(error)) from None
        return _full(text, expression)
    literal = INDEXED.fullmatch(text)
    plain = text if literal is None else text[: literal.end(1)]
    if any(sign in plain for sign in GLOB):
        return _full(text, _glob(text))
    return _plain(text)


def first_expert(text: str) -> str:
    """A name with the first expert's index where it has another's."""
    return text if text.startswith("re:") else EXPERT.sub("experts.0", text)
