"""Memory of many settings: what a length takes stands in tables, the rest is arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.inference.activations import activation_peak_bytes, fixed_peak_bytes
from perfmodel.inference.memory import Rooms, StageRoom
from perfmodel.inference.plan import Plan
from perfmodel.operators.quantity import Array, Quantity
from perfmodel.planning.sweep.cells import Whole
from perfmodel.planning.sweep.places import Places
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.workload import Workload


@dataclass(frozen=True, slots=True)
class Filled:
    """Bytes on the fullest GPU for each setting."""

    weights_bytes: Array
    kv_bytes: Array
    required_bytes: Array
    fits: NDArray[np.bool_]
    max_sequences: Array
    """Largest batch over the deployment at this prompt + output."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """One stage, with the cache of a sequence of each length."""

    room: StageRoom
    each: Array
    common: Array | None
    hits: float

    def kv_bytes(self, sequences: Array, place: Whole) -> Array:
        """As `kv_store.Held.of`."""
        kept = sequences * self.each.take(place)
        if self.common is None:
            return np.asarray(kept)
        again = np.maximum(self.hits * sequences - 1, 0)
        return np.asarray(kept - again * self.common.take(place))


class Room:
    """Memory of a plan's settings.

    Args:
        hardware: the device.
        plan: the deployment.
        lengths: the sums of prompt and output that are asked for, in order, each once.
        load: cached prefix, share and chunk; its other quantities don't matter.

    Raises:
        InputError: a stated or reserved length that is too short for the longest.
    """

    def __init__(self, hardware: Hardware, plan: Plan, lengths: Array, load: Workload) -> None:
        self._plan, self._load = plan, load
        longest = load.model_copy(update={"prompt": lengths - 1, "output": 1})
        self._rooms = Rooms(plan.model, hardware, longest, plan)
        self._places = Places(lengths)
        self._stages = self._distinct(lengths)
        self._by_prompt = plan.deployment.attention == "unfused"
        self._most: Array | None = None
        if not self._by_prompt:
            self._most = _wide(self._rooms.most(self._fixed(load), lengths), lengths)

    def _distinct(self, lengths: Array) -> list[_Stage]:
        """Stages that hold different things."""
        found: dict[tuple[object, ...], _Stage] = {}
        for room in self._rooms.stages:
            key = (room.weights_bytes, room.cached_layers)
            if key not in found:
                held = self._rooms.held(room, lengths)
                shared = np.any(np.asarray(held.common) > 0)
                common = _wide(held.common, lengths) if shared else None
                found[key] = _Stage(room, _wide(held.each, lengths), common, float(held.hits))
        return list(found.values())

    def _fixed(self, load: Workload) -> Quantity:
        return fixed_peak_bytes(self._plan.model, load, self._plan)

    def _of(self, batch: Array, prompt: Array) -> Workload:
        """A workload of checked quantities, without checking them again."""
        given = dict(self._load) | {"batch": batch, "prompt": prompt}
        return Workload.model_construct(**given)

    def filled(self, batch: Array, sequences: Array, prompt: Array, output: Array) -> Filled:
        """Memory of settings; ``sequences``: those of a replica."""
        place = self._places(prompt + output)
        load = self._of(batch, prompt)
        activation = activation_peak_bytes(self._plan.model, load, self._plan)
        spare = np.full(len(batch), np.inf)
        weights, kv = np.zeros(len(batch)), np.zeros(len(batch))
        for stage in self._stages:  # of several stages the one with the least left
            own = stage.kv_bytes(sequences, place)
            left = self._rooms.spare(stage.room, activation, own)
            less = left < spare
            spare, kv = np.where(less, left, spare), np.where(less, own, kv)
            weights = np.where(less, stage.room.weights_bytes, weights)
        reserved = self._rooms.keeps.reserved_bytes(weights, activation)
        return Filled(
            weights_bytes=weights,
            kv_bytes=kv,
            required_bytes=np.asarray(weights + kv + activation + reserved),
            fits=spare >= 0,
            max_sequences=self._most_of(load, place, prompt + output),
        )

    def _most_of(self, load: Workload, place: Whole, lengths: Array) -> Array:
        if self._most is not None:
            return self._most.take(place)
        return _wide(self._rooms.most(self._fixed(load), lengths), lengths)


def _wide(value: Quantity, like: Array) -> Array:
    return np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.float64), like.shape))
