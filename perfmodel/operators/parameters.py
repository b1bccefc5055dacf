"""Parameter counts, summed from the stored tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfmodel.operators.weights import Weight, model_weights, mtp_weights
from perfmodel.specs.model import Model, MoeFfn


@dataclass(frozen=True, slots=True)
class Parameters:
    """Exact counts of one model; tied weights are counted once."""

    total: int
    """The main network, with the vision tower where there is one."""
    text: int
    """The main network's text model."""
    active: int
    """Text parameters that one token passes through, both embedding tables counted."""
    mtp: int
    """The multi-token-prediction modules, not part of ``total``."""


def _elements(weights: Iterable[Weight]) -> int:
    return sum(weight.elements for weight in weights)


def _idle_elements(model: Model) -> int:
    """Parameters of the experts that one token doesn't visit."""
    idle = 0
    for layer in model.layers:
        if isinstance(layer.ffn, MoeFfn):
            up = (2 if layer.ffn.gated else 1) * layer.ffn.width
            one = (up + layer.ffn.width) * model.hidden
            one += (up + model.hidden) if layer.ffn.bias else 0
            idle += (layer.ffn.experts - layer.ffn.top_k) * one
    return idle


def count_parameters(model: Model) -> Parameters:
    """Count ``model``'s parameters from its tensors, to the last one."""
    text = _elements(model_weights(model))
    return Parameters(
        total=text + model.vision_parameters,
        text=text,
        active=text - _idle_elements(model),
        mtp=_elements(mtp_weights(model)),
    )
