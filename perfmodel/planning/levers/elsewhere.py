"""Levers of the usual checklists whose gain one batch of equal sequences can't show."""

from __future__ import annotations

from perfmodel.planning.lever import Change, Idle, Lever, View
from perfmodel.specs.model import Attention, LatentAttention


def _continuous(view: View) -> tuple[Change, ...] | Idle:
    return Idle("needs requests that come and go; one batch starts and ends together")


def _padding(view: View) -> tuple[Change, ...] | Idle:
    return Idle("a batch of equal prompts has no padding")


def _heads(view: View) -> tuple[Change, ...] | Idle:
    mixers = [layer.mixer for layer in view.base.model.layers]
    if any(isinstance(mixer, LatentAttention) for mixer in mixers):
        return Idle("the model's own, not a deployment's: latent attention (MLA)")
    own = next((mixer for mixer in mixers if isinstance(mixer, Attention)), None)
    if own is None:
        return Idle("the model has no attention")
    return Idle(
        f"the model's own, not a deployment's: {own.kv_heads} KV heads for {own.heads} heads"
    )


def _unpriced(view: View) -> tuple[Change, ...] | Idle:
    return Idle("not priced by this version")


LEVERS = (
    Lever("continuous batching", "elsewhere", _continuous),
    Lever("no padding", "elsewhere", _padding),
    Lever("GQA, MQA, MLA", "elsewhere", _heads),
    Lever("speculative decoding", "elsewhere", _unpriced),
    Lever("StreamingLLM, pruned cache", "elsewhere", _unpriced),
    Lever("KV offload to host or SSD", "elsewhere", _unpriced),
)
