"""A deployment with its defaults filled in: formats resolved against model and hardware."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfmodel.errors import InputError
from perfmodel.operators.format_bytes import BASE, Formats, Product
from perfmodel.operators.quantity import Quantity, ceil_div
from perfmodel.operators.sharding import Parallel, check_parallel
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import Engine, Limits, load_engine
from perfmodel.specs.formats import Arithmetic, NumberFormat, number_format
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import CheckpointFormat, Model, MoeFfn, Scheme
from perfmodel.specs.workload import Workload

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


@dataclass(frozen=True, slots=True)
class Plan:
    """What prefill, decode and memory need to know of a deployment."""

    deployment: Deployment
    """As understood: every ``auto`` and default replaced by what is used."""
    parallel: Parallel
    formats: Formats
    engine: Engine
    limits: Limits
    own_max_num_seqs: int
    """The engine's limit of sequences before the batch raised it."""
    stated_max_num_seqs: int | None
    """The limit that the user set, if any."""
    notes: tuple[str, ...]

    def replica_sequences(self, workload: Workload) -> Quantity:
        """Sequences of the fullest data-parallel replica."""
        batch: Quantity = workload.batch
        return ceil_div(batch, self.parallel.dp)


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


ROLES: tuple[Literal["linear", "expert", "head"], ...] = ("linear", "expert", "head")


def _own_format(name: str, checkpoint: CheckpointFormat) -> bool:
    """Whether ``--weights`` names the checkpoint's own format.

    A bare kind does too: ``int4`` (or ``gptq``) for a checkpoint in ``int4_g32``.
    """
    if checkpoint.fault is not None:
        return False
    if name.strip().lower() == checkpoint.weights:
        return True
    chosen = number_format(name, "--weights").name
    own = checkpoint.weights
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


def _cache(deployment: Deployment, checkpoint: CheckpointFormat | None) -> NumberFormat:
    """The format of the cache: as stated, else the checkpoint's, else 16 bits."""
    if deployment.kv_cache != "auto":
        return number_format(deployment.kv_cache, "--kv-cache-dtype")
    stated = checkpoint.kv_cache if checkpoint else None
    return BASE if stated is None else number_format(stated, "kv_cache_scheme")


def _exceptions(model: Model) -> set[Scheme]:
    return {scheme for layer in set(model.layers) for _, scheme in layer.stored}


def _format_notes(
    model: Model, hardware: Hardware, formats: Formats, checkpoint: CheckpointFormat | None
) -> Iterator[str]:
    used = [formats.product("linear"), *formats.schemes.values()]
    if any(isinstance(layer.ffn, MoeFfn) for layer in model.layers):
        used.append(formats.product("expert"))
    base = formats.base_arithmetic
    widened = (p.stored.name for p in used if p.stored.bits < BASE.bits and p.arithmetic == base)
    for name in dict.fromkeys(widened):
        yield f"{name} weights are widened and multiplied in {base} on {hardware.name}"
    if base != "bf16":
        yield f"{hardware.name} has no bf16 multiply-add: {base} is used"
    if checkpoint is not None:
        yield from checkpoint.notes


def _resolve_formats(
    model: Model, hardware: Hardware, deployment: Deployment
) -> tuple[Formats, str, tuple[str, ...]]:
    roles, name, checkpoint = _schemes(model, deployment)
    exceptions = _exceptions(model) if checkpoint is not None else set()
    schemes = {*roles.values(), *exceptions}
    stored = {s: number_format(s.weights, f"{model.name}: quantization_config") for s in schemes}
    quantised = any(item.bits < BASE.bits for item in stored.values())
    inputs = _stated_inputs(deployment, quantised, name)

    def product(scheme: Scheme) -> Product:
        weights = stored[scheme]
        taken = _inputs(scheme, weights, hardware) if inputs is None else inputs
        return Product(weights, taken, _arithmetic(weights, taken, hardware))

    formats = Formats(
        roles={role: product(scheme) for role, scheme in roles.items()},
        schemes={scheme: product(scheme) for scheme in exceptions},
        cache=_cache(deployment, checkpoint),
        base_arithmetic=supported("bf16", hardware),
    )
    return formats, name, tuple(_format_notes(model, hardware, formats, checkpoint))


def _limits(deployment: Deployment, engine: Engine, hardware: Hardware, batch: int) -> Limits:
    defaults = engine.default_limits(hardware)
    if deployment.max_num_seqs is not None and deployment.max_num_seqs < batch:
        raise InputError(
            f"--max-num-seqs: {deployment.max_num_seqs} is less than the {batch} sequences "
            "of a replica's batch"
        )
    # A copy isn't checked against what an engine's file may say: a workload's batch may be larger.
    return defaults.model_copy(
        update={
            "max_num_seqs": deployment.max_num_seqs or max(defaults.max_num_seqs, batch),
            "max_num_batched_tokens": deployment.max_num_batched_tokens
            or defaults.max_num_batched_tokens,
        }
    )


def _largest_replica_batch(workload: Workload, dp: int) -> int:
    return int(np.max(np.asarray(ceil_div(workload.batch, dp))))


def _check_positions(model: Model, workload: Workload) -> None:
    """A table of learned positions has no row for a token beyond it."""
    rows = model.max_positions or model.position_rows
    # The last token that is generated isn't fed in again.
    longest = int(np.max(np.asarray(workload.prompt + workload.output))) - 1
    if model.position_rows and longest > rows:
        raise InputError(
            f"{model.name} has a table of {rows} positions: --prompt and --output need {longest}"
        )


def make_plan(model: Model, hardware: Hardware, workload: Workload, deployment: Deployment) -> Plan:
    """Resolve a deployment.

    Raises:
        InputError: a layout, format or limit that doesn't fit model, hardware or workload.
    """
    parallel = Parallel(deployment.tp, deployment.pp, deployment.ep, deployment.dp)
    check_parallel(model, parallel)
    _check_positions(model, workload)
    if np.any(np.asarray(workload.batch) < parallel.dp):
        raise InputError(f"--dp: {parallel.dp} replicas for a batch of {np.min(workload.batch)}")
    formats, weights, notes = _resolve_formats(model, hardware, deployment)
    engine = load_engine(deployment.engine)
    limits = _limits(deployment, engine, hardware, _largest_replica_batch(workload, parallel.dp))
    understood = deployment.model_copy(
        update={
            "weights": weights,
            "activations": formats.inputs.name,
            "kv_cache": formats.cache.name,
            "attention": deployment.attention or engine.kernels.attention_scores,
            "kv_layout": deployment.kv_layout or engine.kv_layout,
            "block_size": deployment.block_size or engine.block_size,
            "gpu_memory_utilization": deployment.gpu_memory_utilization
            or engine.gpu_memory_utilization,
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
        }
    )
    own = deployment.max_num_seqs or engine.default_limits(hardware).max_num_seqs
    return Plan(understood, parallel, formats, engine, limits, own, deployment.max_num_seqs, notes)
