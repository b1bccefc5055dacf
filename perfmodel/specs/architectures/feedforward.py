"""Feed-forward blocks of a config: dense ones, and the plan of dense and MoE layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfmodel.specs.architectures.config import Config
from perfmodel.specs.architectures.family import Family, Shape
from perfmodel.specs.model import DenseFfn, Ffn, MoeFfn

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "moe_k")


def read_dense(config: Config, family: Family, shape: Shape) -> DenseFfn:
    """The dense block of a config."""
    factor = family.ffn_factor
    width = config.integer(*family.ffn_keys, default=factor * shape.hidden if factor else None)
    return DenseFfn(
        width=width,
        gated=family.gated,
        up_bias=family.up_bias.read(config),
        down_bias=family.down_bias.read(config),
        activation_weights=family.activation_weights,
    )


def dense_layers(config: Config, family: Family, shape: Shape) -> Sequence[Ffn]:
    """The same dense block in each layer."""
    return [read_dense(config, family, shape)] * shape.layers


def halved_layers(config: Config, family: Family, shape: Shape) -> Sequence[Ffn]:
    """Qwen-1 states the width of gate and up together."""
    both = read_dense(config, family, shape)
    return [both.model_copy(update={"width": max(both.width // 2, 1)})] * shape.layers


def read_top_k(config: Config, experts: int, default: int | None = None) -> int:
    """Experts per token.

    Raises:
        InputError: more than there are.
    """
    top_k = config.integer(*TOP_K, default=default)
    if top_k > experts:
        raise config.fault(
            config.find(*TOP_K)[0], f"must be at most the {experts} experts, not {top_k}"
        )
    return top_k


MoeReader = Callable[[Config, Family, Shape], MoeFfn]
SparseRule = Callable[[Config, Shape], Sequence[bool]]


def moe_layers(
    read: MoeReader, sparse: SparseRule | None = None
) -> Callable[[Config, Family, Shape], Sequence[Ffn]]:
    """The plan that puts the MoE of ``read`` where ``sparse`` says, dense blocks elsewhere."""

    def layers(config: Config, family: Family, shape: Shape) -> Sequence[Ffn]:
        which = sparse(config, shape) if sparse else [True] * shape.layers
        moe = read(config, family, shape) if any(which) else None
        dense = None if all(which) else read_dense(config, family, shape)
        chosen = [moe if here else dense for here in which]
        return [ffn for ffn in chosen if ffn is not None]

    return layers


def after_dense(default: int = 0) -> SparseRule:
    """MoE in each ``moe_layer_freq``-th layer from ``first_k_dense_replace`` on (DeepSeek)."""

    def sparse(config: Config, shape: Shape) -> Sequence[bool]:
        kinds = config.names("mlp_layer_types", shape.layers, ("dense", "sparse"))
        if kinds is not None:
            return [kind == "sparse" for kind in kinds]
        first = config.integer("first_k_dense_replace", default=default, low=0)
        step = config.integer("moe_layer_freq", default=1)
        return [layer >= first and layer % step == 0 for layer in range(shape.layers)]

    return sparse


def sparse_steps(config: Config, shape: Shape) -> Sequence[bool]:
    """MoE in each ``decoder_sparse_step``-th layer but those of ``mlp_only_layers`` (Qwen)."""
    step = config.integer("decoder_sparse_step", default=1)
    dense = set(config.integers("mlp_only_layers") or ())
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(shape.layers)]
