"""Memory per GPU: what a deployment needs, whether it fits, and what more would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.plan import Plan
from perfmodel.operators.cache import STATE_BYTES, Allocate, as_stored, cache_bytes, state_bytes
from perfmodel.operators.quantity import Quantity, as_quantity, is_array, round_up
from perfmodel.operators.sharding import local_layer, stage_layers
from perfmodel.operators.stored_weights import stage_weight_bytes
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Layer, Model
from perfmodel.specs.workload import LARGEST, Workload
from perfmodel.units import GIB


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the fullest GPU. Arrays where the workload holds arrays."""

    weights_bytes: Quantity
    kv_bytes: Quantity
    """Cache and state set aside for the batch at prompt + output tokens."""
    kv_stored_bytes: Quantity
    """The part of ``kv_bytes`` that holds data; the rest is the layout's waste."""
    activation_bytes: Quantity
    reserved_bytes: Quantity
    """What the engine leaves free, and what the driver and communication libraries take."""
    capacity_bytes: int
    fits: bool | np.ndarray
    max_sequences: Quantity
    """Largest batch over the deployment at this prompt + output."""
    max_context: Quantity
    """Longest prompt + output of each sequence at this batch, by memory alone."""
    kv_bytes_per_token: float
    """Growth per token and sequence on this GPU, below any window."""
    stage: int
    """The pipeline stage described: the one with the least room."""

    @property
    def kv_room_bytes(self) -> Quantity:
        """What is left for the cache beside everything else; negative where nothing is."""
        fixed = self.weights_bytes + self.activation_bytes + self.reserved_bytes
        return self.capacity_bytes - fixed

    @property
    def required_bytes(self) -> Quantity:
        """All parts together; it fits where this is at most the capacity."""
        return self.weights_bytes + self.kv_bytes + self.activation_bytes + self.reserved_bytes


def allocator(plan: Plan, model: Model, tokens: Quantity) -> Allocate:
    """How the deployment's KV layout sets tokens aside.

    Raises:
        InputError: the contiguous layout reserves less than a sequence needs.
    """
    deployment = plan.deployment
    if deployment.kv_layout == "flat":
        return as_stored
    if deployment.kv_layout == "paged":
        block = deployment.block_size or 1
        return lambda stored, window: round_up(stored, block)
    length = deployment.max_model_len or model.max_positions
    longest = int(np.max(np.asarray(tokens)))
    if length is None:
        raise InputError(
            f"--max-model-len: the contiguous layout reserves it, and {model.name} states none"
        )
    if length < longest:
        raise InputError(
            f"--max-model-len: {length} tokens are reserved for a sequence of {longest}"
        )

    def reserve(stored: Quantity, window: int | None) -> Quantity:
        size = length if window is None else min(length, window)
        return as_quantity(np.full(np.shape(stored), size))

    return reserve


@dataclass(frozen=True, slots=True)
class _Stage:
    index: int
    layers: tuple[Layer, ...]
    weights_bytes: float
    room_bytes: float
    """What is left for the cache; negative where not even the weights fit."""


def logits_bytes(model: Model, plan: Plan) -> float:
    """Bytes that one more sequence in a step adds to the activation peak.

    Its logits, the sampler's copies and sort indices, over the whole vocabulary whatever the TP.
    """
    return plan.engine.activation.bytes_per_logit * model.vocab


def activation_peak_bytes(model: Model, plan: Plan) -> float:
    """Peak beside weights and cache in the engine's start-up run, in bytes."""
    a, limits = plan.engine.activation, plan.limits
    hidden = a.bytes_per_hidden * limits.max_num_batched_tokens * model.hidden
    return limits.max_num_seqs * logits_bytes(model, plan) + hidden + a.fixed_gib * GIB


def outside_bytes(plan: Plan) -> float:
    """Device memory that the driver and communication libraries take, in bytes."""
    outside = plan.engine.outside_gib
    return GIB * (outside.one_gpu if plan.parallel.gpus == 1 else outside.several_gpus)


def _stages(model: Model, hardware: Hardware, plan: Plan) -> list[_Stage]:
    utilisation = plan.deployment.gpu_memory_utilization or 1.0
    usable = utilisation * hardware.capacity_bytes - outside_bytes(plan)
    free = usable - activation_peak_bytes(model, plan)
    stages = []
    for index, whole in enumerate(stage_layers(model, plan.parallel.pp)):
        layers = tuple(local_layer(layer, plan.parallel) for layer in whole)
        weights = stage_weight_bytes(
            model,
            layers,
            plan.formats,
            plan.parallel,
            first=index == 0,
            last=index == plan.parallel.pp - 1,
            expert_multiple=plan.engine.mxfp4_expert_multiple,
        )
        stages.append(_Stage(index, layers, weights, free - weights))
    return stages


def _floor(value: Quantity) -> Quantity:
    """Rounded down and not below zero; an integer for a number."""
    floored = np.floor(np.maximum(value, 0.0))
    return floored if is_array(floored) and floored.ndim else int(floored)


def _most_sequences(
    room_bytes: float, per_sequence: Quantity, model: Model, plan: Plan
) -> Quantity:
    """Sequences that fit a stage, not rounded.

    The room is that beside the limit's activation peak. Up to the engine's own limit the peak
    doesn't change with the batch; each sequence beyond it needs its logits besides its cache.
    """
    own, planned = plan.own_max_num_seqs, plan.limits.max_num_seqs
    logits = logits_bytes(model, plan)
    room = room_bytes + (planned - own) * logits
    within = room / np.maximum(per_sequence, 1e-9)
    beyond = (room + own * logits) / (per_sequence + logits)
    return as_quantity(np.where(within <= own, within, np.maximum(beyond, own)))


def _bounded(most: list[Quantity], limit: int | None) -> Quantity:
    """The least over stages, and no more than a limit that the user set."""
    least: Quantity = np.minimum.reduce(np.broadcast_arrays(*most))
    return least if limit is None else np.minimum(least, limit)


def _longest(fits: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...]) -> Quantity:
    """Largest whole number up to `LARGEST` for which ``fits`` holds, by bisection; 0 for none."""
    low = np.zeros(shape)
    high = np.full(shape, float(LARGEST))
    while np.any(low < high):
        middle = np.ceil((low + high) / 2)
        ok = fits(middle)
        low = np.where(ok, middle, low)
        high = np.where(ok, high, middle - 1)
    return low if low.ndim else int(low)


def memory_use(model: Model, hardware: Hardware, workload: Workload, plan: Plan) -> Memory:
    """Memory of the fullest GPU under ``plan``.

    Raises:
        InputError: a contiguous layout whose reserved length is too short.
    """
    cache = plan.formats.cache
    tokens = as_quantity(workload.prompt + workload.output)
    sequences = plan.replica_sequences(workload)
    stages = _stages(model, hardware, plan)
    allocate = allocator(plan, model, tokens)

    def demand(stage: _Stage, length: Quantity, of: Allocate) -> Quantity:
        states = state_bytes(stage.layers, STATE_BYTES[model.state_dtype])
        return states + cache_bytes(stage.layers, length, cache, of)

    tightest = min(
        stages, key=lambda s: float(np.min(s.room_bytes - sequences * demand(s, tokens, allocate)))
    )
    per_sequence = demand(tightest, tokens, allocate)
    shape = np.shape(sequences * per_sequence)

    def fits_length(length: np.ndarray) -> np.ndarray:
        grow = allocate if plan.deployment.kv_layout != "contiguous" else as_stored
        ok = np.ones(shape, dtype=bool)
        for stage in stages:
            ok &= np.asarray(sequences * demand(stage, length, grow) <= stage.room_bytes)
        return ok

    most = [_most_sequences(s.room_bytes, demand(s, tokens, allocate), model, plan) for s in stages]
    fits = np.logical_and.reduce(
        [np.asarray(sequences * demand(s, tokens, allocate) <= s.room_bytes) for s in stages]
    )
    utilisation = plan.deployment.gpu_memory_utilization or 1.0
    return Memory(
        weights_bytes=tightest.weights_bytes,
        kv_bytes=sequences * per_sequence,
        kv_stored_bytes=sequences * demand(tightest, tokens, as_stored),
        activation_bytes=activation_peak_bytes(model, plan),
        reserved_bytes=(1 - utilisation) * hardware.capacity_bytes + outside_bytes(plan),
        capacity_bytes=hardware.capacity_bytes,
        fits=fits if fits.ndim else bool(fits),
        max_sequences=plan.parallel.dp * _floor(_bounded(most, plan.stated_max_num_seqs)),
        max_context=_longest(fits_length, shape),
        kv_bytes_per_token=float(cache_bytes(tightest.layers, 1, cache)),
        stage=tightest.index,
    )
