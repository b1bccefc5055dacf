"""Number formats in engines' words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfmodel.errors import InputError
from perfmodel.planning.launch.launch import Launched

PLAIN = frozenset({"auto", "bf16", "fp16"})
"""Formats of a checkpoint as it comes."""


def weights_word(
    case: Launched, flag: str | None, online: Mapping[str, str], notes: list[str]
) -> Iterator[str]:
    """The flag that quantises weights while they load; a note where a checkpoint must hold them so.

    ``flag``: None where the engine quantises nothing itself.
    """
    checkpoint, used = case.plan.model.checkpoint, case.plan.deployment.weights
    if used == (checkpoint.weights if checkpoint else "bf16") or (used in PLAIN and not checkpoint):
        return
    if flag is not None and checkpoint is None and used in online:
        yield f"{flag} {online[used]}"
        return
    notes.append(f"{case.called} must be a checkpoint whose weights are stored in {used}")


def cache_name(case: Launched, known: Mapping[str, str], who: str) -> str | None:
    """The engine's name of the cache's format; None for 16 bits.

    Raises:
        InputError: the engine stores no such cache.
    """
    name = case.plan.deployment.kv_cache
    if name in PLAIN:
        return None
    if name not in known:
        raise InputError(f"{who}: it stores no {name} cache; known: bf16, {', '.join(known)}")
    return known[name]


def cache_word(case: Launched, flag: str, known: Mapping[str, str], engine: str) -> Iterator[str]:
    """The cache's flag, where it isn't of 16 bits."""
    name = cache_name(case, known, f"--emit {engine}")
    if name is not None:
        yield f"{flag} {name}"
