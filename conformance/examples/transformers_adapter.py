"""A calculator that counts what transformers builds: the class of a config, without memory.

It knows nothing of serving, so it answers a few kinds, and leaves out the models that transformers
has no class for and those whose queries, keys and values are one matrix.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from conformance.truth import Question

ABSENT = {"baichuan", "chatglm", "dbrx", "deepseek", "internlm2", "kimi_k2", "qwen"}
"""Architectures that transformers (5.x) has no class for, or none that a config alone builds."""
VISION = ("vision", "visual", "multi_modal_projector")
CACHED = {"k_proj", "v_proj", "kv_a_proj_with_mqa"}
"""Projections whose outputs are cached; of MLA the one that gives the latent."""
EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts")
WIDTH = 2
"""Bytes of an element in 16 bits."""


@lru_cache(maxsize=4)
def _build(config: str) -> Any:
    data = json.loads(config)
    kind = data.pop("model_type")
    if kind in ABSENT:
        return None
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        made = AutoConfig.for_model(kind, **data)
        auto = AutoModelForImageTextToText if "vision_config" in data else AutoModelForCausalLM
        model = auto.from_config(made)
        model.tie_weights()
    return model


def _model(question: Question) -> Any:
    assert question.model is not None  # noqa: S101  (the kinds below all name one)
    return _build(json.dumps(dict(question.model.config)))


def _is_text(name: str) -> bool:
    return not any(part in name for part in VISION)


def _stored(model: Any) -> Iterator[tuple[str, int]]:
    """Names and elements of what a checkpoint holds: router corrections are buffers here."""
    for name, parameter in model.named_parameters():  # names a tied one once
        yield name, parameter.numel()
    for name, buffer in model.named_buffers():
        if "correction_bias" in name:
            yield name, buffer.numel()


def _count(question: Question, chosen: Callable[[str], bool]) -> int | None:
    model = _model(question)
    return None if model is None else sum(n for name, n in _stored(model) if chosen(name))


def _visited(question: Question) -> Fraction:
    """The share of the routed experts that a token visits; 1 where there are none."""
    assert question.model is not None  # noqa: S101
    config: Mapping[str, Any] = question.model.config
    config = config.get("text_config", config)
    experts = next((config[key] for key in EXPERTS if key in config), None)
    return Fraction(1) if experts is None else Fraction(config["num_experts_per_tok"], experts)


def _matrices(model: Any) -> Iterator[tuple[str, int]]:
    """Names and elements of the layers' matrices: no tables, no head, no biases."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    tables.add(id(model.get_output_embeddings().weight))
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and id(parameter) not in tables and "bias" not in name:
            yield name, parameter.numel()


class TransformersCounter:
    """A method for each kind that it knows; the others are unsupported."""

    def parameters(self, question: Question) -> float | None:
        """All of the class's."""
        return _count(question, lambda name: True)

    def text_parameters(self, question: Question) -> float | None:
        """All but those of the vision tower."""
        return _count(question, _is_text)

    def active_parameters(self, question: Question) -> float | None:
        """All of the text but the routed experts, and those that a token is routed to."""
        routed = _count(question, lambda name: _is_text(name) and ".experts." in name)
        rest = _count(question, lambda name: _is_text(name) and ".experts." not in name)
        if routed is None or rest is None:
            return None
        return int(rest + routed * _visited(question))

    def weight_bytes(self, question: Question) -> float | None:
        """Two bytes each in bf16."""
        count = self.parameters(question) if question["format"] == "bf16" else None
        return None if count is None else WIDTH * count

    def kv_bytes_per_token(self, question: Question) -> float | None:
        """Two bytes for each output of the projections that are cached, on one rank."""
        model = _model(question)
        if model is None or question["cache"] != "bf16" or question["tp"] != 1:
            return None
        outputs = [
            module.out_features
            for name, module in model.named_modules()
            if name.rpartition(".")[2] in CACHED and _is_text(name)
        ]
        return WIDTH * sum(outputs) if outputs else None

    def linear_flops_per_token(self, question: Question) -> float | None:
        """Two per element of the layers' matrices; of experts those that are visited."""
        model = _model(question)
        if model is None or any("conv1d" in name for name, _ in model.named_parameters()):
            return None  # recurrent layers hold matrices that are no products
        elements = Fraction(0)
        for name, count in _matrices(model):
            elements += count * (_visited(question) if ".experts." in name else 1)
        return int(2 * elements)

    def lm_head_flops(self, question: Question) -> float | None:
        """Two per element of the output table and sequence."""
        model = _model(question)
        if model is None:
            return None
        return int(2 * question["batch"] * model.get_output_embeddings().weight.numel())
