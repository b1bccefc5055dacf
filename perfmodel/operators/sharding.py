"""What one GPU holds of a model: the same records with local sizes.

Sharding a model gives a smaller model, so every count (parameters, operators, cache) is made
once, on local sizes, and is right for any parallel layout.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    """Sizes of the parallel groups; ``tp·pp·dp`` GPUs in all.

    Experts are spread over ``ep`` ranks drawn from the tp·dp GPUs of a stage. Up to tp they
    split the TP group, and each expert is cut over the tp/ep ranks that share it; beyond tp the
    group spans ep/tp attention replicas, whose tokens meet at the experts.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1

    @property
    def gpus(self) -> int:
        """All GPUs of the deployment."""
        return self.tp * self.pp * self.dp

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


LARGEST_TP = 64
"""Tensor-parallel sizes that a refusal lists go up to here."""


def possible_tp(model: Model, parallel: Parallel) -> list[int]:
    """The tensor-parallel sizes up to `LARGEST_TP` that divide ``model``, the rest as given."""
    return [tp for tp in range(1, LARGEST_TP + 1) if not _refusal(model, replace(parallel, tp=tp))]


def _refusal(model: Model, parallel: Parallel) -> str | None:
    """Why the layers can't be shared out, or None."""
    try:
        for layer in set(model.layers):
            local_layer(layer, parallel)
    except InputError as error:
        return str(error)
    return None


def _check_experts(model: Model, parallel: Parallel) -> None:
    if not any(isinstance(layer.ffn, MoeFfn) for layer in model.layers):
        raise InputError(f"--ep: {parallel.ep}, but {model.name} has no experts; use --ep 1")
    group = parallel.tp * parallel.dp
    if group % parallel.ep:
        raise InputError(f"--ep: {parallel.ep} doesn't divide tp × dp = {group} GPUs of a stage")
    if max(parallel.ep, parallel.tp) % min(parallel.ep, parallel.tp):
        raise InputError(
            f"--ep: {parallel.ep} neither divides --tp {parallel.tp} nor is a multiple of it"
        )


def check_parallel(model: Model, parallel: Parallel) -> None:
    """Refuse a layout that ``model`` can't take.

    Raises:
        InputError: one line that names the flag, the value and what would do.
    """
    if parallel.pp > len(model.layers):
        raise InputError(
            f"--pp: {parallel.pp} stages for the {len(model.layers)} layers of {model.name}"
        )
    if parallel.ep > 1:
        _check_experts(model, parallel)
    refusal = _refusal(model, parallel)
    if refusal:
        sizes = possible_tp(model, parallel)
        remedy = f"--tp may be {', '.join(map(str, sizes))}" if sizes else "use another --ep"
        raise InputError(f"{refusal} of {model.name}; {remedy}")


def stage_layers(model: Model, pp: int) -> Iterator[tuple[Layer, ...]]:
    """Layers of each pipeline stage; the first stages take the remainder, one layer each."""
    base, extra = divmod(len(model.layers), pp)
    start = 0
    for stage in range(pp):
        end = start + base + (stage < extra)
        yield model.layers[start:end]
        start = end
