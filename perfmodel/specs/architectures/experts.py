"""Mixtures of experts of a config: how many, how wide, what is shared, in which layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfmodel.specs.architectures.config import Config
from perfmodel.specs.architectures.dense import NEVER
from perfmodel.specs.architectures.family import Family, Shape, Switch
from perfmodel.specs.architectures.feedforward import EXPERTS, MoeReader, read_top_k
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


def shared_count(default: int) -> Callable[[Config, int], int]:
    """Shared experts of the routed ones' width (DeepSeek), ``default`` of them where unsaid."""

    def width_of(config: Config, width: int) -> int:
        count = config.integer(
            "n_shared_experts", "num_shared_experts", default=default, low=0, high=MAX_EXPERTS
        )
        return width * count

    return width_of


def shared_width(config: Config, width: int) -> int:
    """A shared expert of its own width (Qwen2-MoE)."""
    return config.integer("shared_expert_intermediate_size", low=0)


DEEPSEEK_EXPERTS = experts_of("moe_intermediate_size", shared=shared_count(0))
DEEPSEEK_V2_EXPERTS = experts_of("moe_intermediate_size", shared=shared_count(2))
DEEPSEEK_V3_EXPERTS = experts_of("moe_intermediate_size", correction=True, shared=shared_count(1))
DOTS_EXPERTS = experts_of("moe_intermediate_size", correction=True, shared=shared_count(0))
QWEN2_EXPERTS = experts_of("moe_intermediate_size", shared=shared_width, shared_gate=True)
QWEN3_EXPERTS = experts_of("moe_intermediate_size")


def ernie_shared(config: Config, width: int) -> int:
    """Shared experts of the routed ones' width (ERNIE-4.5)."""
    return width * config.integer("moe_num_shared_experts", default=2, low=0, high=MAX_EXPERTS)


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


def dbrx_moe(config: Config, family: Family, shape: Shape) -> MoeFfn:
    """DBRX's experts, nested in ``ffn_config``."""
    section = config.section("ffn_config")
    if section is None:
        raise config.fault("ffn_config", "missing; it must be an object")
    return experts_of("ffn_hidden_size")(section, family, shape)
