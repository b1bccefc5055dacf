"""What an estimate says of its number formats: what a chip widens, and what that rests on."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.operators.format_bytes import BASE, Formats, Product
from perfmodel.operators.sharding import Parallel
from perfmodel.specs.formats import NumberFormat, number_format
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import CheckpointFormat, Model, MoeFfn


def _used(model: Model, formats: Formats) -> list[Product]:
    used = [formats.product("linear"), *formats.schemes.values()]
    if any(isinstance(layer.ffn, MoeFfn) for layer in model.layers):
        used.append(formats.product("expert"))
    return used


def _cache_notes(hardware: Hardware, formats: Formats) -> Iterator[str]:
    """Attention computes in 16 bits, unless the chip multiplies the cache's format as fp8."""
    cache, base = formats.cache, formats.base_arithmetic
    halves = dict.fromkeys((cache.keys, cache.values))
    widened = [f for f in halves if f.bits < BASE.bits and not _multiplied(f, hardware)]
    if widened:
        names = ", ".join(f.name for f in widened)
        lacking = all(f.arithmetic == "fp8" for f in widened)
        why = ", which has no fp8 multiply-add" if lacking else ""
        where = f"in attention on {hardware.name}{why}"
        yield f"keys and values in {names} are widened to {base} {where}"
    if cache.recent:
        yield f"the last {cache.recent} tokens of each sequence stay in 16 bits in the cache"


def _multiplied(stored: NumberFormat, hardware: Hardware) -> bool:
    return stored.arithmetic == "fp8" and hardware.peak("fp8") is not None


def exchange_notes(formats: Formats, parallel: Parallel) -> Iterator[str]:
    """A format of exchanges where there are none."""
    silent = parallel.tp == parallel.pp == 1 and parallel.expert_replicas == 1
    if silent and formats.communication.bits < BASE.bits:
        yield "GPUs exchange nothing in this layout: --comm-dtype changes nothing"


def format_notes(
    model: Model,
    hardware: Hardware,
    formats: Formats,
    checkpoint: CheckpointFormat | None,
    wanted_inputs: str | None,
) -> Iterator[str]:
    """Lines for the user.

    Args:
        model: the model, as stored.
        hardware: the chip.
        formats: as resolved for both.
        checkpoint: where it is followed.
        wanted_inputs: the format of activations that was stated, by the user or the checkpoint.
    """
    base = formats.base_arithmetic
    used = _used(model, formats)
    widened = (p.stored.name for p in used if p.stored.bits < BASE.bits and p.arithmetic == base)
    names = ", ".join(dict.fromkeys(widened))
    if names:
        yield f"{names} weights are widened and multiplied in {base} on {hardware.name}"
    if wanted_inputs is not None:
        arithmetic = number_format(wanted_inputs).arithmetic
        if hardware.peak(arithmetic) is None:
            lacks = f"{hardware.name} has no {arithmetic} multiply-add"
            yield f"{wanted_inputs} activations stay in 16 bits: {lacks}"
    yield from _cache_notes(hardware, formats)
    if base != "bf16":
        yield f"{hardware.name} has no bf16 multiply-add: {base} is used"
    if checkpoint is not None:
        yield from checkpoint.notes
