"""From a parsed ``config.json`` to a `Model`: the families by ``model_type``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.specs.architectures import (
    classic,
    dense_more,
    hybrid,
    latent,
    moe,
    statespace,
)
from perfmodel.specs.architectures.config import Config, shown
from perfmodel.specs.architectures.family import Family, build_decoder
from perfmodel.specs.architectures.quantised_layers import with_checkpoint
from perfmodel.specs.architectures.quantization import read_recipe
from perfmodel.specs.architectures.vision import TOWERS, vision_parameters
from perfmodel.specs.faults import describe
from perfmodel.specs.model import Model

FAMILIES: Mapping[str, Family] = {
    **dense_more.FAMILIES,
    **moe.FAMILIES,
    **latent.FAMILIES,
    **hybrid.FAMILIES,
    **classic.FAMILIES,
    **statespace.FAMILIES,
}
MULTIMODAL: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "mistral",
    "paligemma": "gemma",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
"""Types that nest a ``text_config``: the text type where that leaves it out."""
FLAT = ("qwen2_vl", "qwen2_5_vl")
"""Types whose first configs had the text model's fields at the top."""


def known_types() -> list[str]:
    """Every ``model_type`` that can be read."""
    return sorted({*FAMILIES, *MULTIMODAL})


def build_model(data: Mapping[str, Any], name: str, where: str) -> Model:
    """The model that the config ``data`` describes; ``where`` names its file in errors.

    Raises:
        InputError: a field is missing or wrong.
        UnknownNameError: a ``model_type`` that isn't known.
    """
    config = Config(data, where)
    kind = read_type(config)
    text, text_kind = config, kind
    if kind in MULTIMODAL:
        text, text_kind = text_section(config, kind)
    try:
        model = build_decoder(text, FAMILIES[text_kind], name, kind)
    except ValidationError as error:  # a product of stated sizes is out of a record's bounds
        raise InputError(f"{where}: {describe(error)}") from None
    if kind in TOWERS:
        tower = vision_parameters(config, kind, model.hidden)
        model = model.model_copy(update={"vision_parameters": tower})
    recipe = read_recipe(config) or read_recipe(text)
    return model if recipe is None else with_checkpoint(model, recipe)


def read_type(config: Config) -> str:
    """The config's ``model_type``.

    Raises:
        InputError: it is missing.
        UnknownNameError: it isn't known.
    """
    kind = config.text("model_type")
    known = ", ".join(known_types())
    if kind is None:
        raise config.fault("model_type", f"missing; known: {known}")
    if kind not in FAMILIES and kind not in MULTIMODAL:
        close = difflib.get_close_matches(kind, known_types(), 3)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise UnknownNameError(
            f"{config.where}: {config.path}model_type: unknown architecture {shown(kind)}; "
            f"{hint}known (perfmodel models list --architectures): {known}"
        )
    return kind


def text_section(config: Config, kind: str) -> tuple[Config, str]:
    """The part that describes the text model, and its type.

    Raises:
        InputError: there is none, or its type isn't known.
    """
    section = config.section("text_config", nested=True)
    if section is None and kind in FLAT:
        return config, f"{kind}_text"
    if section is None:
        raise config.fault("text_config", "missing; it must be an object")
    if config.states("tie_word_embeddings"):  # the whole's word stands above the part's
        merged = {**section.data, "tie_word_embeddings": config.data["tie_word_embeddings"]}
        section = Config(merged, section.where, section.path, nested=True)
    if not section.states("model_type"):
        return section, MULTIMODAL[kind]
    text_kind = read_type(section)
    if text_kind not in FAMILIES:
        raise section.fault("model_type", f"{text_kind} is no text model")
    return section, text_kind
