"""Multi-token-prediction modules: extra layers that the checkpoint ships behind the network."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.specs.architectures.config import Config
from perfmodel.specs.architectures.family import Family, Shape
from perfmodel.specs.model import Attention, LatentAttention, Layer, Mtp

MAX_MODULES = 64


def next_token_modules(
    config: Config, family: Family, shape: Shape, layers: Sequence[Layer]
) -> Mtp | None:
    """Modules shaped like the last layer that attends (DeepSeek-V3, GLM-4.5, Qwen3-Next)."""
    count = config.integer(
        "num_nextn_predict_layers", "mtp_num_hidden_layers", default=0, low=0, high=MAX_MODULES
    )
    attending = [layer for layer in layers if isinstance(layer.mixer, Attention | LatentAttention)]
    if not count or not attending:
        return None
    return Mtp(layers=(attending[-1],) * count)


def attends(layer: Layer) -> bool:
    """The layer has softmax attention, and an indexer of its own if any."""
    if isinstance(layer.mixer, LatentAttention):
        return layer.mixer.indexer is None or not layer.mixer.indexer.shared
    return isinstance(layer.mixer, Attention)
