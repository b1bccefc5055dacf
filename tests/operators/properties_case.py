"""What test_properties.py and test_counting_properties.py share."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from perfmodel.operators.format_bytes import Formats
from perfmodel.operators.sharding import Parallel, local_layer
from perfmodel.operators.stored_weights import stage_weight_bytes
from perfmodel.specs.formats import FORMATS
from perfmodel.specs.loading import model_names
from tests.operators.strategies import models
from tests.operators.support import model

BF16 = FORMATS["bf16"]


EVERY_EXPERT = 10**7


catalogue = st.sampled_from(model_names()).map(model)


any_model = models() | catalogue


tokens = st.integers(1, 60)


cached_tokens = st.integers(0, 90)


def rank_weights(m: Any, parallel: Parallel) -> float:
    layers = tuple(local_layer(layer, parallel) for layer in m.layers)
    return stage_weight_bytes(m, layers, Formats(), parallel, first=True, last=True)
