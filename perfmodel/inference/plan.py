"""A deployment with its defaults filled in: formats resolved against model and hardware."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InputError
from perfmodel.operators.format_bytes import BASE, Formats
from perfmodel.operators.quantity import Quantity, ceil_div
from perfmodel.operators.sharding import Parallel, check_parallel
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import Engine, Limits, load_engine
from perfmodel.specs.formats import Arithmetic, NumberFormat, number_format
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model, MoeFfn
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


def _storage(model: Model, deployment: Deployment) -> tuple[NumberFormat, NumberFormat, str]:
    """Formats of linear layers and experts, and the name that stands for both."""
    checkpoint = model.checkpoint
    stored = BASE
    if checkpoint is not None:
        stored = number_format(checkpoint.weights, f"{model.name}: quantization_config")
    if deployment.weights != "auto":
        chosen = number_format(deployment.weights, "--weights")
        if chosen != stored:  # the checkpoint's own format by name is the checkpoint
            return chosen, chosen, chosen.name
    if checkpoint is None:
        return BASE, BASE, BASE.name
    return (BASE if checkpoint.experts_only else stored), stored, stored.name


def _inputs(deployment: Deployment, weights: NumberFormat, hardware: Hardware) -> NumberFormat:
    """The format of activations that enter quantised layers.

    Weights in 8 bits bring activations of the same kind where the chip multiplies them; weights
    in 4 bits are widened to 16 bits first, as today's kernels do on most chips.
    """
    if deployment.activations != "auto":
        chosen = number_format(deployment.activations, "--activations")
        if chosen.name not in INPUTS:
            raise InputError(
                f"--activations: {chosen.name} inputs aren't multiplied by any kernel; "
                f"allowed: {', '.join(INPUTS)}"
            )
        if chosen.bits < BASE.bits <= weights.bits:
            raise InputError(
                f"--activations: {chosen.name} inputs need quantised weights, and these are "
                f"{weights.name}; set --weights too"
            )
        return chosen
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


def _resolve_formats(
    model: Model, hardware: Hardware, deployment: Deployment
) -> tuple[Formats, str, tuple[str, ...]]:
    linear, expert, name = _storage(model, deployment)
    quantised = expert if any(isinstance(x.ffn, MoeFfn) for x in model.layers) else linear
    inputs = _inputs(deployment, quantised, hardware)
    cache = (
        BASE
        if deployment.kv_cache == "auto"
        else number_format(deployment.kv_cache, "--kv-cache-dtype")
    )
    base = supported("bf16", hardware)
    head = quantised if model.checkpoint is not None and model.checkpoint.head else BASE
    formats = Formats(
        linear=linear,
        expert=expert,
        head=head,
        inputs=inputs,
        cache=cache,
        linear_arithmetic=_arithmetic(linear, inputs, hardware),
        expert_arithmetic=_arithmetic(expert, inputs, hardware),
        base_arithmetic=base,
    )
    notes = []
    run = formats.expert_arithmetic
    if quantised.bits < BASE.bits and run == base:
        notes.append(
            f"{quantised.name} weights are widened and multiplied in {run} on {hardware.name}"
        )
    if base != "bf16":
        notes.append(f"{hardware.name} has no bf16 multiply-add: {base} is used")
    return formats, name, tuple(notes)


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
