"""Memory per GPU: what a deployment needs, whether it fits, and what more would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfmodel.inference.activations import (
    activation_peak_bytes,
    fixed_peak_bytes,
    most_sequences,
)
from perfmodel.inference.kv_store import Held, KvStore, stated_length
from perfmodel.inference.memory_rule import Reserve
from perfmodel.inference.plan import Plan
from perfmodel.inference.stages import stage_weights
from perfmodel.operators.cache import cache_bytes
from perfmodel.operators.quantity import Quantity, as_quantity, is_array, where
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Layer, Model
from perfmodel.specs.workload import LARGEST, Workload
from perfmodel.units import GIB

LOOKED_AT = 256
"""Lengths that a round of the search for the longest context looks at together."""


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
    """Growth per token and sequence on this GPU, below any window: all that is stored, the keys of
    sparse attention's indexer too, which ``models show`` leaves out."""
    stage: int
    """The pipeline stage described: the one with the least room."""
    kv_outside_bytes: Quantity = 0.0
    """Keys and values of the batch in host memory or on an SSD."""
    weights_outside_bytes: float = 0.0
    """Weights in host memory."""

    @property
    def kv_room_bytes(self) -> Quantity:
        """What is left for the cache beside everything else; negative where nothing is."""
        fixed = self.weights_bytes + self.activation_bytes + self.reserved_bytes
        return self.capacity_bytes - fixed

    @property
    def required_bytes(self) -> Quantity:
        """All parts together; it fits where this is at most the capacity."""
        return self.weights_bytes + self.kv_bytes + self.activation_bytes + self.reserved_bytes


@dataclass(frozen=True, slots=True)
class StageRoom:
    """What one GPU of a pipeline stage holds."""

    index: int
    layers: tuple[Layer, ...]
    weights_bytes: float
    host_bytes: float
    """Weights that lie in host memory."""
    draft_layers: tuple[Layer, ...] = ()
    """Layers of the draft, whose cache lies beside that of the stage's own."""

    @property
    def cached_layers(self) -> tuple[Layer, ...]:
        """All layers that keep a cache on this GPU."""
        return self.layers + self.draft_layers


def outside_bytes(plan: Plan) -> float:
    """Device memory that the driver and communication libraries take, in bytes."""
    outside = plan.engine.outside_gib
    return GIB * (outside.one_gpu if plan.parallel.gpus == 1 else outside.several_gpus)


def reserve(hardware: Hardware, plan: Plan) -> Reserve:
    """The device's memory under the engine's rule."""
    share = plan.deployment.gpu_memory_utilization or 1.0
    rule = plan.engine.memory_rule
    return Reserve(rule, share, float(hardware.capacity_bytes), outside_bytes(plan))


def _stages(model: Model, plan: Plan) -> list[StageRoom]:
    """Each stage with the weights that stay on the device; the draft's on its only one."""
    away, draft = plan.offload.weights_bytes, plan.draft
    more = 0.0 if draft is None else draft.weights_bytes
    layers_beside = () if draft is None else draft.layers
    stages = []
    for index, (layers, weights) in enumerate(stage_weights(model, plan)):
        here = max(0.0, weights - away) if away else weights
        stages.append(StageRoom(index, layers, here + more, min(away, weights), layers_beside))
    return stages


def _floor(value: Quantity) -> Quantity:
    """Rounded down and not below zero; an integer for a number."""
    floored = np.floor(np.maximum(value, 0.0))
    return floored if is_array(floored) and floored.ndim else int(floored)


def _longest(
    fits: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...], limit: int | None
) -> Quantity:
    """Largest length for which ``fits`` holds: 0 for none, infinity for any.

    A cache never shrinks with the length, so the lengths that fit end somewhere. Each round looks
    at many lengths at once and keeps the gap in which they end: few rounds do what a bisection
    takes one for each bit of. ``fits`` takes lengths of any leading axis before ``shape``.
    """
    top = float(LARGEST if limit is None else min(limit, LARGEST))
    low = np.zeros(shape)
    high = np.full(shape, top)
    ways = max(2, LOOKED_AT // max(low.size, 1))
    parts = np.arange(1, ways).reshape(-1, *(1,) * len(shape)) / ways
    while np.any(low < high):
        tried = np.ceil(low + parts * (high - low))
        passing = np.count_nonzero(fits(tried), axis=0)
        ends = np.concatenate([low[None], tried, high[None] + 1])
        pick = np.broadcast_to(passing, shape)[None]
        low, high = (
            np.take_along_axis(ends, pick, axis=0)[0],
            np.take_along_axis(ends, pick + 1, axis=0)[0] - 1,
        )
    if top == LARGEST:
        low = np.where(low == top, np.inf, low)
    if low.ndim:
        return low
    return int(low) if np.isfinite(low) else float(low)


class Rooms:
    """The memory of a plan, stage by stage, for sequences and lengths that broadcast.

    Raises:
        InputError: a reserved or stated length that is too short for the sequences.
    """

    def __init__(self, model: Model, hardware: Hardware, workload: Workload, plan: Plan) -> None:
        self.stages = _stages(model, plan)
        self.keeps = reserve(hardware, plan)
        self._model, self._plan = model, plan
        self._store = KvStore(model, plan, workload)

    def held(self, stage: StageRoom, length: Quantity, *, stored: bool = False) -> Held:
        """The cache of sequences of ``length``; ``stored``: what of it holds data."""
        return self._store.held(stage.cached_layers, length, stored=stored)

    def spare(self, stage: StageRoom, activation: Quantity, kv_bytes: Quantity) -> Quantity:
        """What is left beside everything; negative where it doesn't fit."""
        return self.keeps.room_bytes(stage.weights_bytes, activation) - kv_bytes

    def most(self, fixed: Quantity, length: Quantity) -> Quantity:
        """The largest batch of ``length`` tokens each that fits beside the ``fixed`` peak."""
        most = [
            _most(
                self.keeps, stage.weights_bytes, fixed, self.held(stage, length),
                self._model, self._plan,
            )
            for stage in self.stages
        ]  # fmt: skip
        return self._plan.parallel.dp * _floor(np.minimum.reduce(np.broadcast_arrays(*most)))


def memory_use(model: Model, hardware: Hardware, workload: Workload, plan: Plan) -> Memory:
    """Memory of the fullest GPU under ``plan``.

    Raises:
        InputError: as of `Rooms`.
    """
    tokens = as_quantity(workload.prompt + workload.output)
    sequences = plan.replica_sequences(workload)
    rooms = Rooms(model, hardware, workload, plan)
    activation = activation_peak_bytes(model, workload, plan)

    def spare(stage: StageRoom, length: Quantity) -> Quantity:
        return rooms.spare(stage, activation, rooms.held(stage, length).of(sequences))

    tightest = min(rooms.stages, key=lambda s: float(np.min(spare(s, tokens))))
    shape = np.shape(spare(tightest, tokens))

    def fits_at(length: Quantity) -> np.ndarray:
        ends = np.broadcast_shapes(np.shape(length), shape)
        every = [np.broadcast_to(np.asarray(spare(s, length)) >= 0, ends) for s in rooms.stages]
        fitting: np.ndarray = np.logical_and.reduce(every)
        return fitting

    fits = fits_at(tokens)
    held = rooms.held(tightest, tokens)
    return Memory(
        weights_bytes=tightest.weights_bytes,
        kv_bytes=held.of(sequences),
        kv_stored_bytes=rooms.held(tightest, tokens, stored=True).of(sequences),
        activation_bytes=activation,
        reserved_bytes=rooms.keeps.reserved_bytes(tightest.weights_bytes, activation),
        capacity_bytes=hardware.capacity_bytes,
        fits=fits if fits.ndim else bool(fits),
        max_sequences=rooms.most(fixed_peak_bytes(model, workload, plan), tokens),
        max_context=_longest(fits_at, shape, stated_length(plan, model)),
        kv_bytes_per_token=_growth(tightest, plan),
        stage=tightest.index,
        kv_outside_bytes=held.outside_of(sequences),
        weights_outside_bytes=tightest.host_bytes,
    )


def _growth(stage: StageRoom, plan: Plan) -> float:
    """Bytes that one more token takes on a GPU, below any window."""
    cache = plan.formats.cache.model_copy(update={"recent": 0})
    return float(cache_bytes(stage.cached_layers, 1, cache)) / plan.parallel.cache_shares


def _most(
    keeps: Reserve, weights: float, fixed: Quantity, held: Held, model: Model, plan: Plan
) -> Quantity:
    """Sequences of a replica that fit beside ``weights`` and the fixed peak, not rounded."""
    alone = most_sequences(keeps, weights, fixed, held.each, model, plan)
    if not np.any(np.asarray(held.common) > 0):
        return alone
    # From the second that finds the prefix on, each takes less, and the prefix itself stays.
    each = held.each - held.hits * held.common
    together = most_sequences(keeps, weights + held.common, fixed, each, model, plan)
    return where(held.hits * np.asarray(alone) >= 1, together, alone)
