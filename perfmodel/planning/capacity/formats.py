"""Number formats that are looked at, and what each risks in accuracy."""

from __future__ import annotations

from perfmodel.operators.cache import kv_bytes_per_token
from perfmodel.operators.format_bytes import Formats
from perfmodel.planning.capacity.question import Question
from perfmodel.planning.levers.cache import FORMATS as CACHES
from perfmodel.planning.levers.formats import WEIGHTS
from perfmodel.specs.hardware import Hardware

Named = dict[str, str]
"""Fields of a deployment: weights, kv_cache."""
NARROWER = "fp8"
"""What is looked at beside the model's own formats, where the chip multiplies it."""
NARROW = 8
"""Bits up to which a checkpoint or cache isn't quantised further."""


def named_formats(question: Question, hardware: Hardware, own: Formats) -> list[Named]:
    """What weights and cache are stored in: the model's ``own`` formats, or the fixed ones, first.

    A model without a cache that grows with the context has no choice of its format.
    """
    native = hardware.peak(NARROWER) is not None
    given, fixed, rules = question.given, question.fixed, question.rules

    def choices(field: str, stated: tuple[str, ...], bits: float) -> list[str]:
        if field in fixed:
            return [getattr(given, field)]
        if stated:
            return list(stated)
        return ["auto", NARROWER] if native and bits > NARROW else ["auto"]

    weights = choices("weights", rules.weights, own.main.stored.bits)
    stored = own.cache.bits if kv_bytes_per_token(question.model, own.cache) else 0
    caches = choices("kv_cache", rules.kv_cache, stored)
    return [{"weights": w, "kv_cache": c} for w in weights for c in caches]


def risks(chosen: Named, own: Named) -> tuple[str, ...]:
    """What formats that differ from ``own`` cost in accuracy, as `perfmodel advise` says it."""
    found = []
    for change in WEIGHTS:
        stated = dict(change.deployment)["weights"]
        if stated == chosen["weights"] != own["weights"]:
            found.append(f"weights {stated}: {change.price.words}")
            break
    for name, _, price in CACHES:
        if name == chosen["kv_cache"] != own["kv_cache"]:
            found.append(f"KV cache {name}: {price.words}")
    return tuple(found)
