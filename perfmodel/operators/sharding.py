"""What one GPU holds of a model: the same records with local sizes.

Sharding a model gives a smaller model, so every count (parameters, operators, cache) is made
once, on local sizes, and is right for any parallel layout.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from perfmodel.errors import InputError
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
)


@dataclass(frozen=True, slots=True)
class Parallel:
    """Sizes of the parallel groups; ``tp·cp·pp·dp`` GPUs in all, neighbours in this order.

    Experts are spread over ``ep`` ranks drawn from the tp·dp GPUs of a stage. Up to tp they
    split the TP group, and each expert is cut over the tp/ep ranks that share it; beyond tp the
    group spans ep/tp attention replicas, whose tokens meet at the experts.

    ``cp`` ranks share the tokens of each prompt and its cache, and hold the same weights; ``dcp``
    tensor-parallel ranks that would hold the same KV head share its cache by tokens instead.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    cp: int = 1
    dcp: int = 1
    sequence_parallel: bool = False
    """Tokens between two row-parallel layers are split over the TP ranks: norms run on 1/tp."""
    expert_skew: float = 0.0
    """Exponent of the experts' popularity by rank (`expert_routing`); 0: all alike."""

    @property
    def gpus(self) -> int:
        """All GPUs of the deployment."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def cache_shares(self) -> int:
        """Ranks that share a sequence's cache by tokens."""
        return self.cp * self.dcp

    @property
    def expert_span(self) -> int:
        """GPUs from the first to the last rank of the experts' group."""
        if self.expert_replicas == 1:
            return self.tp
        return self.expert_replicas * self.tp * self.cp * self.pp

    @property
    def expert_tp(self) -> int:
        """Ranks that share one expert."""
        return max(1, self.tp // self.ep)

    @property
    def expert_replicas(self) -> int:
        """Attention replicas whose tokens meet at one group of experts."""
        return max(1, self.ep // self.tp)


def _share(size: int, ranks: int, what: str, flag: str) -> int:
    if size % ranks:
        raise InputError(f"{flag}: {ranks} doesn't divide {size} {what}")
    return size // ranks


def _share_or_replicate(size: int, ranks: int, what: str, flag: str) -> int:
    """Heads per rank where heads beyond the ranks are replicated, never split below one."""
    if ranks <= size:
        return _share(size, ranks, what, flag)
    if ranks % size:
        raise InputError(f"{flag}: {ranks} is no multiple of {size} {what} to replicate")
    return 1


def _local_attention(a: Attention, tp: int) -> Attention:
    heads = _share(a.heads, tp, "attention heads", "--tp")
    kv_heads = _share_or_replicate(a.kv_heads, tp, "KV heads", "--tp")
    return a.model_copy(update={"heads": heads, "kv_heads": kv_heads})


def _local_delta(d: GatedDeltaNet, tp: int) -> GatedDeltaNet:
    keys = _share(d.key_heads, tp, "key heads of linear attention", "--tp")
    values = _share(d.value_heads, tp, "value heads of linear attention", "--tp")
    return d.model_copy(update={"key_heads": keys, "value_heads": values})


def _local_mamba2(m: Mamba2, tp: int) -> Mamba2:
    heads = _share(m.heads, tp, "Mamba heads", "--tp")
    groups = _share_or_replicate(m.groups, tp, "Mamba groups", "--tp")
    return m.model_copy(update={"heads": heads, "groups": groups})


def _local_mixer(layer: Layer, tp: int) -> object:
    mixer = layer.mixer
    if isinstance(mixer, Attention):
        return _local_attention(mixer, tp)
    if isinstance(mixer, LatentAttention):
        return mixer.model_copy(
            update={"heads": _share(mixer.heads, tp, "attention heads", "--tp")}
        )
    if isinstance(mixer, GatedDeltaNet):
        return _local_delta(mixer, tp)
    if isinstance(mixer, Mamba2):
        return _local_mamba2(mixer, tp)
    if isinstance(mixer, Mamba1):
        return mixer.model_copy(update={"inner": _share(mixer.inner, tp, "inner width", "--tp")})
    return None


def _local_dense(f: DenseFfn, tp: int) -> DenseFfn:
    return f.model_copy(update={"width": _share(f.width, tp, "feed-forward width", "--tp")})


def local_layer(layer: Layer, parallel: Parallel) -> Layer:
    """The share of ``layer`` that one GPU holds.

    Raises:
        InputError: heads, widths or experts that don't divide.
    """
    if parallel.tp == parallel.ep == 1:
        return layer
    mixer = _local_mixer(layer, parallel.tp)
    ffn = layer.ffn
    if isinstance(ffn, DenseFfn):
        ffn = _local_dense(ffn, parallel.tp)
    elif isinstance(ffn, MoeFfn):
        width = _share(ffn.width, parallel.expert_tp, "expert width", "--tp")
        experts = _share(ffn.experts, parallel.ep, "experts", "--ep")
        shared = None if ffn.shared is None else _local_dense(ffn.shared, parallel.tp)
        ffn = ffn.model_copy(update={"width": width, "experts": experts, "shared": shared})
    return layer.model_copy(update={"mixer": mixer, "ffn": ffn})


LARGEST_TP = 1024
"""Tensor- and expert-parallel sizes that a refusal lists go up to here."""


def possible_tp(model: Model, parallel: Parallel) -> list[int]:
    """The tensor-parallel sizes up to `LARGEST_TP` that divide ``model``, the rest as given."""
    layouts = {tp: replace(parallel, tp=tp) for tp in range(1, LARGEST_TP + 1)}
    return [
        tp
        for tp, layout in layouts.items()
        if not _group_refusal(layout) and not _refusal(model, layout)
    ]


def possible_ep(model: Model, parallel: Parallel) -> list[int]:
    """The expert-parallel sizes up to `LARGEST_TP` that work with the tp and dp given."""
    layouts = {ep: replace(parallel, ep=ep) for ep in range(1, LARGEST_TP + 1)}
    return [
        ep
        for ep, layout in layouts.items()
        if not _group_refusal(layout) and not _refusal(model, layout)
    ]


def _refusal(model: Model, parallel: Parallel) -> str | None:
    """Why the layers can't be shared out, or None."""
    try:
        for layer in set(model.layers):
            local_layer(layer, parallel)
    except InputError as error:
        return str(error)
    return None


def _group_refusal(parallel: Parallel) -> str | None:
    """Why the experts' ranks can't be drawn from the GPUs of a stage, or None."""
    tp, ep, group = parallel.tp, parallel.ep, parallel.tp * parallel.dp
    if group % ep:
        return f"--ep: {ep} doesn't divide tp × dp = {group} GPUs of a stage"
    if max(ep, tp) % min(ep, tp):
        return f"--ep: {ep} neither divides --tp {tp} nor is a multiple of it"
    return None


def _remedy(model: Model, parallel: Parallel, refused: str) -> str:
    """The values of the refused flag that would do, else those of the other one."""
    tps, eps = possible_tp(model, parallel), possible_ep(model, parallel)
    choices = {"--tp": tps, "--ep": eps} if refused == "--tp" else {"--ep": eps, "--tp": tps}
    for flag, sizes in choices.items():
        if sizes:
            return f"{flag} may be {', '.join(map(str, sizes))}"
    both = possible_tp(model, replace(parallel, ep=1))
    return f"with --ep 1, --tp may be {', '.join(map(str, both))}"


def check_parallel(model: Model, parallel: Parallel) -> None:
    """Refuse a layout that ``model`` can't take.

    Raises:
        InputError: one line that names the flag, the value and what would do.
    """
    if parallel.pp > len(model.layers):
        raise InputError(
            f"--pp: {parallel.pp} stages for the {len(model.layers)} layers of {model.name}"
        )
    if parallel.ep > 1 and not any(isinstance(layer.ffn, MoeFfn) for layer in model.layers):
        raise InputError(f"--ep: {parallel.ep}, but {model.name} has no experts; use --ep 1")
    group = _group_refusal(parallel)
    refusal = group or _refusal(model, parallel)
    if refusal:
        owner = "" if group else f" of {model.name}"
        raise InputError(f"{refusal}{owner}; {_remedy(model, parallel, refusal[:4])}")


def stage_layers(model: Model, pp: int) -> list[tuple[Layer, ...]]:
    """Layers of each pipeline stage; the first stages take the remainder, one layer each."""
    base, extra = divmod(len(model.layers), pp)
    starts = [stage * base + min(stage, extra) for stage in range(pp + 1)]
    return [model.layers[a:b] for a, b in itertools.pairwise(starts)]
