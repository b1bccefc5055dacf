"""Families with multi-head latent attention: DeepSeek-V2, V3 and their relatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfmodel.specs.architectures.config import MAX_HEADS, Config
from perfmodel.specs.architectures.dense import LLAMA, NEVER
from perfmodel.specs.architectures.experts import DEEPSEEK_V2_EXPERTS, DEEPSEEK_V3_EXPERTS
from perfmodel.specs.architectures.family import Family, Shape, read_heads
from perfmodel.specs.architectures.feedforward import after_dense, moe_layers
from perfmodel.specs.architectures.mtp import next_token_modules
from perfmodel.specs.model import Indexer, LatentAttention


def read_latent(config: Config) -> LatentAttention:
    """MLA's ranks and head widths; ``num_key_value_heads`` and ``head_dim`` say nothing here."""
    return LatentAttention(
        heads=read_heads(config),
        q_rank=config.optional("q_lora_rank"),
        kv_rank=config.integer("kv_lora_rank"),
        nope_dim=config.integer("qk_nope_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        value_dim=config.integer("v_head_dim"),
        bias=config.flag("attention_bias", default=False),
    )


def latent_layers(config: Config, family: Family, shape: Shape) -> Sequence[LatentAttention]:
    """The same MLA in each layer."""
    return [read_latent(config)] * shape.layers


def indexed_layers(config: Config, family: Family, shape: Shape) -> Sequence[LatentAttention]:
    """MLA with the indexer that picks keys (DeepSeek-V3.2, GLM-5), own or the last layer's."""
    indexer = Indexer(
        heads=config.integer("index_n_heads", high=MAX_HEADS),
        head_dim=config.integer("index_head_dim"),
        top_k=config.integer("index_topk", high=MAX_HEADS),
    )
    own = read_latent(config).model_copy(update={"indexer": indexer})
    reusing = own.model_copy(update={"indexer": indexer.model_copy(update={"shared": True})})
    return [own if here else reusing for here in own_indexers(config, shape)]


def own_indexers(config: Config, shape: Shape) -> Sequence[bool]:
    """Which layers pick keys themselves; the others reuse what the last of them picked."""
    kinds = config.names("indexer_types", shape.layers, ("full", "shared"))
    if kinds is not None:
        return [kind == "full" for kind in kinds]
    if config.states("index_topk_pattern"):
        raise config.fault("index_topk_pattern", "isn't supported; write indexer_types instead")
    step = config.integer("index_topk_freq", default=1)
    offset = config.integer("index_skip_topk_offset", default=2, low=0)
    return [max(layer - offset + 1, 0) % step == 0 for layer in range(shape.layers)]


DEEPSEEK_V2 = replace(
    LLAMA, mixers=latent_layers, ffns=moe_layers(DEEPSEEK_V2_EXPERTS, after_dense())
)
DEEPSEEK_V3 = replace(
    LLAMA,
    mixers=latent_layers,
    up_bias=NEVER,
    down_bias=NEVER,
    ffns=moe_layers(DEEPSEEK_V3_EXPERTS, after_dense(3)),
    mtp=next_token_modules,
)
DEEPSEEK_V32 = replace(DEEPSEEK_V3, mixers=indexed_layers)

FAMILIES: Mapping[str, Family] = {
    "deepseek_v2": DEEPSEEK_V2,
    "deepseek_v3": DEEPSEEK_V3,
    "glm4_moe_lite": replace(DEEPSEEK_V3, ffns=moe_layers(DEEPSEEK_V3_EXPERTS, after_dense(1))),
    "minicpm3": replace(LLAMA, mixers=latent_layers, tied=True),
    "youtu": replace(LLAMA, mixers=latent_layers, tied=True),
    "kimi_k2": DEEPSEEK_V3,
    "deepseek_v32": DEEPSEEK_V32,
    "glm_moe_dsa": DEEPSEEK_V32,
}
