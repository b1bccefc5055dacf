"""Fewer bits for weights and for what enters the products."""

from __future__ import annotations

from perfmodel.planning.lever import Change, Idle, Lever, Price, View
from perfmodel.specs.formats import NumberFormat, number_format

STUDY = "arXiv 2411.02355"
"""Kurtic et al., "Give Me BF16 or Give Me Death?", Llama-3.1 of 8B to 405B (ACL 2025)."""
WIDE = 16
"""Bits of what isn't quantised."""
CHECKPOINT = "a quantised checkpoint"
FP8 = Price(f"lossless on Llama-3.1 ({STUDY})", complexity=CHECKPOINT)
INT8 = Price(f"1 to 3 % on benchmarks when well tuned ({STUDY})",
             complexity=f"{CHECKPOINT}, calibrated activations")  # fmt: skip
INT8_WEIGHTS = Price("weights alone are rounded: a smaller loss than W8A8's", complexity=CHECKPOINT)
INT4 = Price(f"rivals 8 bits on Llama-3.1 ({STUDY}); test it on your task",
             complexity=f"{CHECKPOINT} (AWQ, GPTQ)")  # fmt: skip
FP4 = Price("weights and activations in 4 bits lose some; distillation regains most "
            "(arXiv 2601.20088)", complexity=f"{CHECKPOINT}, a chip with FP4")  # fmt: skip


def _change(setting: str, price: Price, weights: str, activations: str) -> Change:
    values = (("weights", weights), ("activations", activations))
    return Change("weight format", setting, price, deployment=values)


WEIGHTS = (
    _change("weights fp8 (W8A8)", FP8, "fp8", "auto"),
    _change("weights int8 (W8A8)", INT8, "int8", "auto"),
    _change("weights int8 (W8A16)", INT8_WEIGHTS, "int8", "bf16"),
    _change("weights int4 (W4A16)", INT4, "int4", "auto"),
    _change("weights nvfp4 (W4A4)", FP4, "nvfp4", "auto"),
)


def _runs(change: Change, view: View) -> bool:
    """Whether the chip multiplies what the setting's name says."""
    values = dict(change.deployment)
    weights = number_format(values["weights"])
    natively = view.base.hardware.peak(weights.arithmetic) is not None
    return natively or weights.arithmetic == "bf16" or values["activations"] == "bf16"


def _narrower(change: Change, view: View) -> bool:
    """Whether weights get fewer bits, or the same ones with narrower inputs than now."""
    formats, values = view.base.plan.formats, dict(change.deployment)
    weights, stored = number_format(values["weights"]), formats.main.stored
    wide = formats.inputs.bits >= WIDE and values["activations"] == "auto"
    return weights.bits < stored.bits or (weights.bits == stored.bits and wide)


def _changes_weights(view: View) -> tuple[Change, ...] | Idle:
    found = [c for c in WEIGHTS if _runs(c, view) and _narrower(c, view)]
    if found:
        return tuple(found)
    return Idle(f"weights are in {view.base.plan.deployment.weights} already")


def _native(stored: NumberFormat, view: View) -> bool:
    eight = stored.arithmetic in {"fp8", "int8"}
    return eight and view.base.hardware.peak(stored.arithmetic) is not None


def _changes_inputs(view: View) -> tuple[Change, ...] | Idle:
    formats = view.base.plan.formats
    stored, taken = formats.main.stored, formats.inputs
    if stored.bits >= WIDE:
        return Idle("16-bit weights are multiplied in 16 bits; quantise the weights first")
    if not _native(stored, view):
        return Idle(f"{stored.name} weights are multiplied in 16 bits on this chip")
    if taken.bits < WIDE:
        return Idle(f"activations are in {taken.name} already")
    price = INT8 if stored.arithmetic == "int8" else FP8
    setting = f"activations {stored.arithmetic}"
    values = (("activations", stored.arithmetic),)
    return (Change("activation format", setting, price, deployment=values),)


LEVERS = (
    Lever("weight format", "formats", _changes_weights),
    Lever("activation format", "formats", _changes_inputs),
)
