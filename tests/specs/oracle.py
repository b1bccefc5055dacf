"""The parameter count that transformers gives a config: its class, built without memory."""

import warnings
from functools import cache
from typing import Any


def oracle_config(data: dict[str, Any], kind: str | None = None) -> Any:
    """The transformers config object of ``data``."""
    from transformers import AutoConfig

    values = {k: v for k, v in data.items() if k not in ("model_type", "quantization_config")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoConfig.for_model(kind or data["model_type"], **values)


@cache
def default_config(kind: str) -> dict[str, Any]:
    """What the class of ``kind`` writes when nothing is said."""
    found: dict[str, Any] = oracle_config({"model_type": kind}).to_dict()
    return found


def oracle_parameters(data: dict[str, Any], kind: str | None = None) -> int:
    """Parameters of the transformers class of ``data``, tied ones once, router corrections too."""
    import torch

    config = oracle_config(data, kind)
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = model_class(config)._from_config(config)
        model.tie_weights()
    corrections = sum(
        buffer.numel() for name, buffer in model.named_buffers() if "correction_bias" in name
    )
    return int(sum(parameter.numel() for parameter in model.parameters()) + corrections)


def model_class(config: Any) -> Any:
    """The class that a checkpoint of ``config`` is loaded into."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    )

    for mapping in (MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING):
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    raise LookupError(config.model_type)
