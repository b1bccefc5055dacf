"""Memory per GPU: what a deployment needs, whether it fits, and what more would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.activations import (
    activation_peak_bytes,
    fixed_peak_bytes,
    most_sequences,
)
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
    """Longest prompt + output of each sequence at this batch, by memory (and the length that the
    deployment states); infinite where no layer's cache grows."""
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


def _stated_length(plan: Plan, model: Model) -> int | None:
    """The longest sequence that the engine takes, where something says it.

    As stated, what a contiguous layout reserves, or the rows of a table of learned positions.
    """
    stated = plan.deployment.max_model_len
    reserved = plan.deployment.kv_layout == "contiguous" or model.position_rows
    if stated is None and reserved:
        return model.max_positions or model.position_rows or None
    return stated


def _check_length(plan: Plan, tokens: Quantity) -> None:
    stated = plan.deployment.max_model_len
    longest = int(np.max(np.asarray(tokens)))
    if stated is not None and stated < longest:
        raise InputError(
            f"--max-model-len: {stated} is less than the {longest} tokens of --prompt and --output"
        )


def allocator(plan: Plan, model: Model, tokens: Quantity) -> Allocate:
    """How the deployment's KV layout sets tokens aside.

    Raises:
        InputError: the contiguous layout reserves less than a sequence needs.
    """
    deployment = plan.deployment
    _check_length(plan, tokens)
    if deployment.kv_layout == "flat":
        return as_stored
    if deployment.kv_layout == "paged":
        block = deployment.block_size or 1
        return lambda stored, window: round_up(stored, block)
    length = _stated_length(plan, model)
    if length is None:
        raise InputError(
            f"--max-model-len: the contiguous layout reserves it, and {model.name} states none"
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
    draft_layers: tuple[Layer, ...] = ()
    """Layers of the draft, whose cache lies beside that of the stage's own."""


def outside_bytes(plan: Plan) -> float:
    """Device memory that the driver and communication libraries take, in bytes."""
    outside = plan.engine.outside_gib
    return GIB * (outside.one_gpu if plan.parallel.gpus == 1 else outside.several_gpus)


def _stages(model: Model, plan: Plan) -> list[_Stage]:
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
        stages.append(_Stage(index, layers, weights))
    if plan.draft is not None:  # there is one stage
        last = stages.pop()
        weights = last.weights_bytes + plan.draft.weights_bytes
        stages.append(_Stage(last.index, last.layers, weights, plan.draft.layers))
    return stages


def _floor(value: Quantity) -> Quantity:
    """Rounded down and not below zero; an integer for a number."""
    floored = np.floor(np.maximum(value, 0.0))
    return floored if is_array(floored) and floored.ndim else int(floored)


def _longest(
    fits: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...], limit: int | None
) -> Quantity:
    """Largest length for which ``fits`` holds, by bisection: 0 for none, infinity for any."""
    top = float(LARGEST if limit is None else min(limit, LARGEST))
    low = np.zeros(shape)
    high = np.full(shape, top)
    while np.any(low < high):
        middle = np.ceil((low + high) / 2)
        ok = fits(middle)
        low = np.where(ok, middle, low)
        high = np.where(ok, high, middle - 1)
    if top == LARGEST:
        low = np.where(low == top, np.inf, low)
    if low.ndim:
        return low
    return int(low) if np.isfinite(low) else float(low)


def memory_use(model: Model, hardware: Hardware, workload: Workload, plan: Plan) -> Memory:
    """Memory of the fullest GPU under ``plan``.

    Raises:
        InputError: a reserved or stated length that is too short for the sequences.
    """
    cache = plan.formats.cache
    tokens = as_quantity(workload.prompt + workload.output)
    sequences = plan.replica_sequences(workload)
    stages = _stages(model, plan)
    allocate = allocator(plan, model, tokens)
    utilisation = plan.deployment.gpu_memory_utilization or 1.0
    usable = utilisation * hardware.capacity_bytes - outside_bytes(plan)
    activation = activation_peak_bytes(model, workload, plan)

    def demand(stage: _Stage, length: Quantity, of: Allocate) -> Quantity:
        layers, drafted = stage.layers + stage.draft_layers, plan.drafted
        # Drafted tokens have their slots, and a state each to go back to.
        states = (1 + drafted) * state_bytes(layers, STATE_BYTES[model.state_dtype])
        return states + cache_bytes(layers, length + drafted, cache, of)

    def spare(stage: _Stage, length: Quantity) -> Quantity:
        """What is left beside everything; negative where it doesn't fit."""
        room = usable - activation - stage.weights_bytes
        return room - sequences * demand(stage, length, allocate)

    tightest = min(stages, key=lambda s: float(np.min(spare(s, tokens))))
    shape = np.shape(spare(tightest, tokens))
    beside = usable - fixed_peak_bytes(model, workload, plan)
    most = [
        most_sequences(beside - s.weights_bytes, demand(s, tokens, allocate), model, plan)
        for s in stages
    ]

    def fits_at(length: Quantity) -> np.ndarray:
        every = [np.broadcast_to(np.asarray(spare(s, length)) >= 0, shape) for s in stages]
        fitting: np.ndarray = np.logical_and.reduce(every)
        return fitting

    fits = fits_at(tokens)
    return Memory(
        weights_bytes=tightest.weights_bytes,
        kv_bytes=sequences * demand(tightest, tokens, allocate),
        kv_stored_bytes=sequences * demand(tightest, tokens, as_stored),
        activation_bytes=activation,
        reserved_bytes=(1 - utilisation) * hardware.capacity_bytes + outside_bytes(plan),
        capacity_bytes=hardware.capacity_bytes,
        fits=fits if fits.ndim else bool(fits),
        max_sequences=plan.parallel.dp * _floor(np.minimum.reduce(np.broadcast_arrays(*most))),
        max_context=_longest(fits_at, shape, _stated_length(plan, model)),
        kv_bytes_per_token=float(cache_bytes(tightest.layers + tightest.draft_layers, 1, cache)),
        stage=tightest.index,
    )
