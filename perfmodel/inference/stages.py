"""The pipeline stages of a plan, each with one GPU's layers and the bytes of their weights."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.inference.plan import Plan
from perfmodel.operators.sharding import local_layer, stage_layers
from perfmodel.operators.stored_weights import stage_weight_bytes
from perfmodel.specs.model import Layer, Model


def stage_weights(model: Model, plan: Plan) -> Iterator[tuple[tuple[Layer, ...], float]]:
    """Local layers and stored weights of each stage."""
    for index, whole in enumerate(stage_layers(model, plan.parallel.pp)):
        layers = tuple(local_layer(layer, plan.parallel) for layer in whole)
        weights = stage_weight_bytes(
            model,
            layers,
            plan.formats,
            plan.parallel,
            first=index == 0,
            last=index == plan.parallel.pp - 1,
            expert_multiple=plan.engine.mxfp4_expert_multiple,
        )
        yield layers, weights
