"""Families with mixtures of experts and ordinary attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from perfmodel.specs.architectures.attention import (
    MAX_WINDOW,
    all_but_every,
    every_layer,
    nested_kv_layers,
    rotary_layers,
    switched,
    window_size,
)
from perfmodel.specs.architectures.config import Config
from perfmodel.specs.architectures.dense import (
    ALWAYS,
    ERNIE,
    ERNIE_BIAS,
    GLM,
    HUNYUAN,
    LLAMA,
    MISTRAL,
    NEVER,
    OLMO2,
    QWEN2,
    QWEN3,
)
from perfmodel.specs.architectures.family import (
    BIASLESS_LAYER_NORM,
    LAYER_NORM,
    Family,
    Shape,
    Switch,
)
from perfmodel.specs.architectures.feedforward import (
    EXPERTS,
    MoeReader,
    after_dense,
    moe_layers,
    read_top_k,
    sparse_steps,
)
from perfmodel.specs.architectures.mtp import next_token_modules
from perfmodel.specs.model import DenseFfn, MoeFfn

MAX_EXPERTS = 2**14


def experts_of(
    *width_keys: str,
    bias: Switch = NEVER,
    router_bias: Switch = NEVER,
    correction: bool = False,
    shared: Callable[[Config, int], int] | None = None,
    shared_gate: bool = False,
    top_k: int | None = None,
) -> MoeReader:
    """A reader of MoE blocks whose expert width stands under ``width_keys``.

    ``shared`` gives the summed width of the shared experts (0: none) from the config and the
    width of one expert.
    """

    def read(config: Config, family: Family, shape: Shape) -> MoeFfn:
        count = config.integer(*EXPERTS, high=MAX_EXPERTS)
        width = config.integer(*width_keys)
        shared_width = shared(config, width) if shared else 0
        return MoeFfn(
            experts=count,
            top_k=read_top_k(config, count, top_k),
            width=width,
            gated=family.gated,
            bias=bias.read(config),
            router_bias=router_bias.read(config),
            correction_bias=correction,
            shared=read_shared(config, family, shared_width) if shared_width else None,
            shared_gate=shared_gate and shared_width > 0,
        )

    return read


def read_shared(config: Config, family: Family, width: int) -> DenseFfn:
    """The shared expert: a dense block of the family, biases and all."""
    return DenseFfn(
        width=width,
        gated=family.gated,
        up_bias=family.up_bias.read(config),
        down_bias=family.down_bias.read(config),
    )


def shared_count(config: Config, width: int) -> int:
    """Shared experts of the routed ones' width (DeepSeek)."""
    return width * config.integer("n_shared_experts", default=0, low=0, high=MAX_EXPERTS)


def shared_width(config: Config, width: int) -> int:
    """A shared expert of its own width (Qwen2-MoE)."""
    return config.integer("shared_expert_intermediate_size", default=0, low=0)


DEEPSEEK_EXPERTS = experts_of("moe_intermediate_size", correction=True, shared=shared_count)
DEEPSEEK_V2_EXPERTS = experts_of("moe_intermediate_size", shared=shared_count)
QWEN2_EXPERTS = experts_of("moe_intermediate_size", shared=shared_width, shared_gate=True)
QWEN3_EXPERTS = experts_of("moe_intermediate_size")


def ernie_shared(config: Config, width: int) -> int:
    """Shared experts of the routed ones' width (ERNIE-4.5)."""
    return width * config.integer("moe_num_shared_experts", default=0, low=0, high=MAX_EXPERTS)


def granite_shared(config: Config, width: int) -> int:
    """A shared expert of its own width (Granite)."""
    return config.integer("shared_intermediate_size", default=0, low=0)


def ernie_sparse(config: Config, shape: Shape) -> Sequence[bool]:
    """MoE in each ``moe_layer_interval``-th layer from a start to an end index."""
    step = config.integer("moe_layer_interval", default=1)
    start = config.integer("moe_layer_start_index", default=1, low=0)
    end = config.integer("moe_layer_end_index", default=-1, low=-1)
    end = shape.layers - 1 if end == -1 else end
    return [(layer + 1) % step == 0 and start <= layer <= end for layer in range(shape.layers)]


def llama4_sparse(config: Config, shape: Shape) -> Sequence[bool]:
    """MoE in ``moe_layers``, else in each ``interleave_moe_layer_step``-th layer."""
    stated = config.integers("moe_layers")
    if stated is None:
        step = config.integer("interleave_moe_layer_step", default=1)
        stated = list(range(step - 1, shape.layers, step))
    chosen = set(stated)
    return [layer in chosen for layer in range(shape.layers)]


def llama4_windows(config: Config, shape: Shape) -> Sequence[int | None]:
    """Layers with rotary positions see their chunk; the others see all."""
    chunk = config.optional("attention_chunk_size", high=MAX_WINDOW)
    if chunk is None and not config.states("attention_chunk_size"):
        chunk = 8192
    return [chunk if rotary else None for rotary in rotary_layers(config, shape)]


def qwen2_moe_windows(config: Config, shape: Shape) -> Sequence[int | None]:
    """Where ``use_sliding_window``: every other layer before ``max_window_layers``."""
    if not config.flag("use_sliding_window", default=False):
        return [None] * shape.layers
    size = window_size(config, 4096)
    end = config.integer("max_window_layers", default=28, low=0)
    return [size if layer % 2 == 0 and layer < end else None for layer in range(shape.layers)]


def dots_windows(config: Config, shape: Shape) -> Sequence[int | None]:
    """The layers from ``max_window_layers`` on slide."""
    size = window_size(config, 4096)
    start = config.integer("max_window_layers", default=62, low=0)
    return [size if layer >= start else None for layer in range(shape.layers)]


def dbrx_moe(config: Config, family: Family, shape: Shape) -> MoeFfn:
    """DBRX's experts, nested in ``ffn_config``."""
    section = config.section("ffn_config")
    if section is None:
        raise config.fault("ffn_config", "missing; it must be an object")
    return experts_of("ffn_hidden_size")(section, family, shape)


MIXTRAL = replace(
    MISTRAL, windows=every_layer(None), ffns=moe_layers(experts_of("intermediate_size"))
)
LLAMA4_EXPERTS = experts_of("intermediate_size", shared=lambda config, width: width, top_k=1)

GLM4_MOE = replace(
    GLM,
    kv_heads=8,
    head_dim=None,
    qkv_bias=Switch(False, ("attention_bias",)),
    has_qk_norm=Switch(False, ("use_qk_norm",)),
    ffns=moe_layers(DEEPSEEK_EXPERTS, after_dense(1)),
    mtp=next_token_modules,
)
GRANITE_MOE = replace(
    LLAMA, up_bias=NEVER, down_bias=NEVER, ffns=moe_layers(experts_of("intermediate_size"))
)

FAMILIES: Mapping[str, Family] = {
    "dots1": replace(
        LLAMA,
        kv_heads=32,
        has_qk_norm=ALWAYS,
        up_bias=NEVER,
        down_bias=NEVER,
        windows=dots_windows,
        ffns=moe_layers(DEEPSEEK_EXPERTS, after_dense(0)),
    ),
    "ernie4_5_moe": replace(
        ERNIE,
        kv_heads=4,
        head_dim=None,
        head_bias=ERNIE_BIAS,
        ffns=moe_layers(
            experts_of("moe_intermediate_size", correction=True, shared=ernie_shared),
            ernie_sparse,
        ),
    ),
    "flex_olmo": replace(OLMO2, ffns=moe_layers(experts_of("intermediate_size", top_k=5))),
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": replace(
        GRANITE_MOE, ffns=moe_layers(experts_of("intermediate_size", shared=granite_shared))
    ),
    "hunyuan_v1_moe": replace(
        HUNYUAN,
        ffns=moe_layers(experts_of("intermediate_size", shared=lambda config, width: width)),
    ),
    "olmoe": replace(OLMO2, ffns=moe_layers(experts_of("intermediate_size", top_k=8))),
    "solar_open": replace(GLM4_MOE, head_dim=128, mtp=None, ffns=moe_layers(DEEPSEEK_EXPERTS)),
    "mixtral": MIXTRAL,
    "qwen2_moe": replace(
        QWEN2,
        kv_heads=16,
        windows=qwen2_moe_windows,
        ffns=moe_layers(QWEN2_EXPERTS, sparse_steps),
    ),
    "qwen3_moe": replace(
        QWEN3,
        kv_heads=4,
        head_dim=None,
        windows=switched(4096, first=True),
        ffns=moe_layers(QWEN3_EXPERTS, sparse_steps),
    ),
    "qwen3_vl_moe_text": replace(
        QWEN3,
        kv_heads=16,
        windows=None,
        ffns=moe_layers(QWEN3_EXPERTS, sparse_steps),
        defaults={
            "vocab_size": 151936,
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "max_position_embeddings": 128000,
        },
    ),
    "phimoe": replace(
        MIXTRAL,
        norm=LAYER_NORM,
        qkv_bias=Switch(False, ("attention_bias",)),
        out_bias=Switch(False, ("o_bias", "attention_bias")),
        head_bias=Switch(False, ("lm_head_bias",)),
    ),
    "gpt_oss": replace(
        LLAMA,
        kv_heads=8,
        head_dim=64,
        qkv_bias=Switch(True, ("attention_bias",)),
        out_bias=Switch(True, ("attention_bias",)),
        sinks=True,
        windows=all_but_every(2, 128),
        ffns=moe_layers(
            experts_of(
                "intermediate_size",
                bias=Switch(True, ("expert_bias",)),
                router_bias=Switch(True, ("router_bias",)),
                top_k=4,
            )
        ),
    ),
    "minimax_m2": replace(
        MIXTRAL,
        has_qk_norm=Switch(True, ("use_qk_norm",)),
        qk_norm="width",
        windows=None,
        ffns=moe_layers(experts_of("intermediate_size", correction=True)),
    ),
    "dbrx": replace(
        LLAMA,
        mixers=nested_kv_layers,
        norm=BIASLESS_LAYER_NORM,
        qkv_bias=NEVER,
        out_bias=NEVER,
        ffns=moe_layers(dbrx_moe),
    ),
    "glm4_moe": GLM4_MOE,
    "deepseek": replace(LLAMA, ffns=moe_layers(DEEPSEEK_V2_EXPERTS, after_dense())),
    "llama4_text": replace(
        LLAMA,
        kv_heads=8,
        head_dim=128,
        up_bias=NEVER,
        down_bias=NEVER,
        windows=llama4_windows,
        chunked=True,
        ffn_keys=("intermediate_size_mlp",),
        ffns=moe_layers(LLAMA4_EXPERTS, llama4_sparse),
        defaults={
            "vocab_size": 202048,
            "hidden_size": 5120,
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16384,
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "max_position_embeddings": 131072,
        },
    ),
}
