"""The number formats of a deployment, resolved against checkpoint and chip."""

from __future__ import annotations

from typing import Literal

from perfmodel.errors import InputError
from perfmodel.inference.format_notes import format_notes
from perfmodel.operators.format_bytes import BASE, WIDE_CACHE, Formats, Product
from perfmodel.operators.gguf import gguf_file
from perfmodel.specs.cache_formats import CacheFormat, cache_format
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.formats import FILE_TYPES, Arithmetic, NumberFormat, number_format
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import CheckpointFormat, Model, Scheme

WIDER: dict[Arithmetic, Arithmetic] = {
    "fp4": "bf16",
    "fp8": "bf16",
    "int8": "bf16",
    "bf16": "fp16",
    "fp16": "fp32",
}
"""What a chip computes with when it lacks a multiply-add: values are widened first."""


INPUTS = ("bf16", "fp16", "fp8", "int8", "nvfp4")
"""Formats that activations enter linear layers in."""
KINDS = ("int4", "int8", "fp8")
"""Names that stand for a checkpoint's own format where that is of their kind."""


def supported(arithmetic: Arithmetic, hardware: Hardware) -> Arithmetic:
    """``arithmetic`` where the chip has it, else the next wider one that it has.

    Raises:
        InputError: the profile has none of them.
    """
    tried = arithmetic
    while hardware.peak(tried) is None:
        if tried not in WIDER:
            raise InputError(f"{hardware.name}: no peak for {arithmetic} or any wider format")
        tried = WIDER[tried]
    return tried


Role = Literal["linear", "expert", "head", "embedding"]
ROLES: tuple[Role, ...] = ("linear", "expert", "head", "embedding")
SENT = ("bf16", "fp16", "fp8", "fp8_channel", "fp8_block", "int8")
"""Formats that messages between GPUs are sent in, beside whole numbers in groups."""


def _own_format(name: str, checkpoint: CheckpointFormat) -> bool:
    """Whether ``--weights`` names the checkpoint's own format.

    A bare kind does too: ``int4`` (or ``gptq``) for a checkpoint in ``int4_g32``.
    """
    if checkpoint.fault is not None:
        return False
    if name.strip().lower() == checkpoint.weights:
        return True
    if name.strip().lower() in FILE_TYPES:
        return False
    chosen = number_format(name, "--weights").name
    own = checkpoint.weights
    if chosen == "int8_wo" and own.startswith("int8") and checkpoint.activations == BASE.name:
        return True
    return chosen == own or (chosen in KINDS and own.startswith(f"{chosen}_"))


def _schemes(
    model: Model, deployment: Deployment
) -> tuple[dict[str, Scheme], str, CheckpointFormat | None]:
    """How each role is stored, the name of the whole, and the checkpoint where it is followed."""
    checkpoint = model.checkpoint
    stated = deployment.weights
    if stated != "auto" and not (checkpoint and _own_format(stated, checkpoint)):
        chosen = number_format(stated, "--weights").name
        return dict.fromkeys(("linear", "expert"), Scheme(weights=chosen)), chosen, None
    if checkpoint is None:
        return {}, BASE.name, None
    if checkpoint.fault is not None:
        raise InputError(f"{checkpoint.fault}; state the format of all linear layers by --weights")
    return {role: checkpoint.of_role(role) for role in ROLES}, checkpoint.weights, checkpoint


def _stated_inputs(deployment: Deployment, quantised: bool, name: str) -> NumberFormat | None:
    """The format of activations that the user set, None for ``auto``."""
    if deployment.activations == "auto":
        return None
    chosen = number_format(deployment.activations, "--activations")
    if chosen.name not in INPUTS:
        raise InputError(
            f"--activations: {chosen.name} inputs aren't multiplied by any kernel; "
            f"allowed: {', '.join(INPUTS)}"
        )
    if chosen.bits < BASE.bits and not quantised:
        raise InputError(
            f"--activations: {chosen.name} inputs need quantised weights, and these are "
            f"{name}; set --weights too"
        )
    return chosen


def _inputs(scheme: Scheme, weights: NumberFormat, hardware: Hardware) -> NumberFormat:
    """The format of activations that enter layers of a scheme.

    It is what the checkpoint states, where the chip multiplies it. Where nothing is stated,
    weights in 8 bits bring activations of the same kind; weights in 4 bits are widened to 16
    bits first, as today's kernels do on most chips.
    """
    if scheme.activations is not None:
        stated = number_format(scheme.activations, "activations")
        return stated if hardware.peak(stated.arithmetic) is not None else BASE
    native = hardware.peak(weights.arithmetic) is not None
    if weights.arithmetic in {"fp8", "int8"} and native:
        return number_format(weights.arithmetic)
    if weights.name == "nvfp4" and native:
        return weights
    return BASE


def _arithmetic(weights: NumberFormat, inputs: NumberFormat, hardware: Hardware) -> Arithmetic:
    """The multiply-add of a layer: that of its wider operand, as far as the chip has it."""
    wider = weights if weights.bits >= inputs.bits else inputs
    if weights.bits == inputs.bits and weights.arithmetic != inputs.arithmetic:
        wider = BASE
    return supported(wider.arithmetic, hardware)


def _cache(deployment: Deployment, checkpoint: CheckpointFormat | None) -> CacheFormat:
    """The format of the cache: as stated, else the checkpoint's, else 16 bits."""
    if deployment.kv_cache != "auto":
        return cache_format(deployment.kv_cache, "--kv-cache-dtype")
    stated = checkpoint.kv_cache if checkpoint else None
    return WIDE_CACHE if stated is None else cache_format(stated, "kv_cache_scheme")


def _communication(deployment: Deployment) -> NumberFormat:
    """What goes over links between GPUs; 16 bits where nothing is stated."""
    if deployment.communication == "auto":
        return BASE
    stated = deployment.communication
    chosen = None if stated.lower() in FILE_TYPES else number_format(stated, "--comm-dtype")
    if chosen is None or not (chosen.name in SENT or chosen.name.startswith(("int8_", "int4"))):
        raise InputError(
            f"--comm-dtype: no exchange sends {stated:.40}; allowed: {', '.join(SENT)}, "
            "or whole numbers in groups, such as int8_g128, int4_g32"
        )
    return chosen


def _exceptions(model: Model) -> set[Scheme]:
    return {scheme for layer in set(model.layers) for _, scheme in layer.stored}


def as_stored(model: Model, deployment: Deployment) -> Model:
    """``model`` with the formats of the GGUF file that ``--weights`` names, else as it is."""
    kind = deployment.weights.strip().lower()
    own = model.checkpoint is not None and model.checkpoint.weights == kind
    return gguf_file(model, kind) if kind in FILE_TYPES and not own else model


def resolve_formats(
    model: Model, hardware: Hardware, deployment: Deployment
) -> tuple[Formats, str, tuple[str, ...]]:
    """The formats of every role, the name of the whole, and what to tell the user.

    ``model`` is what `as_stored` gave.

    Raises:
        InputError: a format that neither checkpoint, chip nor kernels know.
    """
    roles, name, checkpoint = _schemes(model, deployment)
    exceptions = _exceptions(model) if checkpoint is not None else set()
    schemes = {*roles.values(), *exceptions}
    stored = {s: number_format(s.weights, f"{model.name}: quantization_config") for s in schemes}
    quantised = any(item.bits < BASE.bits for item in stored.values())
    inputs = _stated_inputs(deployment, quantised, name)

    def product(scheme: Scheme) -> Product:
        weights = stored[scheme]
        taken = _inputs(scheme, weights, hardware) if inputs is None else inputs
        if hardware.peak(taken.arithmetic) is None:
            taken = BASE
        return Product(weights, taken, _arithmetic(weights, taken, hardware))

    formats = Formats(
        roles={role: product(scheme) for role, scheme in roles.items()},
        schemes={scheme: product(scheme) for scheme in exceptions},
        cache=_cache(deployment, checkpoint),
        communication=_communication(deployment),
        base_arithmetic=supported("bf16", hardware),
    )
    stated = {scheme.activations or BASE.name for scheme in schemes}
    wanted = inputs.name if inputs else next((n for n in sorted(stated) if n != BASE.name), None)
    return formats, name, tuple(format_notes(model, hardware, formats, checkpoint, wanted))
