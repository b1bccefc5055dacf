"""How many blocks of KV cache a deployment has, from the one account of memory there is.

A sequence's cache grows with its length in layers that keep every token; layers with a window stop
growing, recurrent states never do. The blocks counted are those of the layers that keep on growing;
what else a sequence takes is expressed in them, and set aside for its whole length at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import CapacityError
from perfmodel.inference.kv_store import stated_length
from perfmodel.inference.memory import Memory, memory_use
from perfmodel.inference.plan import Plan
from perfmodel.operators.cache import layer_window
from perfmodel.serving.blocks import Blocks
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload
from perfmodel.units import GIB

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KvRoom:
    """The KV cache of one replica, counted on its fullest GPU; the fields are those of `Blocks`."""

    capacity: float
    block: int
    fixed: tuple[float, ...]
    grows: bool
    block_bytes: float
    """On that GPU."""
    max_model_len: float
    """Prompt and output of the longest sequence, by memory or as stated."""

    def blocks(self) -> Blocks:
        """An empty cache of this size."""
        return Blocks(
            self.capacity,
            self.block,
            self.fixed,
            grows=self.grows,
            block_bytes=self.block_bytes,
            max_model_len=self.max_model_len,
        )


def kv_room(model: Model, hardware: Hardware, plan: Plan) -> KvRoom:
    """The cache that ``plan`` leaves room for.

    Raises:
        CapacityError: weights and activations leave none.
    """
    paged = plan.deployment.kv_layout == "paged"
    block = plan.deployment.block_size or 1 if paged else 1
    lengths = _lengths(model, plan, block)
    memory = _memory(model, hardware, plan, lengths, sequences=1)
    room = _last(memory.kv_room_bytes)
    if room <= 0:
        raise CapacityError(
            f"{model.name} leaves no room for a KV cache on {hardware.name}: beside weights, "
            f"activations and what is reserved {-room / GIB:.1f} GiB are missing; "
            "use more GPUs, or smaller weights"
        )
    sequences, longest = 1, float(np.min(np.asarray(memory.max_context, dtype=np.float64)))
    if plan.parallel.pp > 1:  # the stage that is full first is the one that counts
        sequences = int(room / _last(memory.kv_bytes))
        sequences = max(1, min(sequences, plan.limits.max_num_seqs))
        memory = _memory(model, hardware, plan, lengths, sequences)
        room = _last(memory.kv_room_bytes)
    needs = np.broadcast_to(np.asarray(memory.kv_bytes) / sequences, lengths.shape)
    counts = np.ceil(lengths / block)
    growth = _growth(needs, counts)
    unit = growth or float(needs[-1])
    fixed = (needs - growth * counts) / unit if unit else np.zeros(len(counts))
    # An entry for each count of blocks, those below the first length as that.
    table = np.concatenate((np.full(int(counts[0]), fixed[0]), fixed)).round(9)
    kept = tuple(float(value) for value in table[: _constant_from(table) + 1])
    return KvRoom(
        capacity=room / unit if unit else inf,
        block=block,
        fixed=() if kept == (0.0,) else kept,
        grows=growth > 0,
        block_bytes=unit,
        max_model_len=longest,
    )


def _lengths(model: Model, plan: Plan, block: int) -> Array:
    """Whole blocks up to some beyond every window, as far as the engine takes sequences."""
    window = max((layer_window(layer.mixer) or 0 for layer in model.layers), default=0)
    lengths = block * np.arange(1, -(-window // block) + 4, dtype=np.float64)
    lengths = lengths[lengths > 1]  # a prompt and an output token at least
    stated = stated_length(plan, model)
    if stated is None:
        return lengths
    # The last block of the longest sequence may hold less than it could.
    whole = lengths[lengths < stated]
    return lengths if len(whole) == len(lengths) else np.append(whole, float(stated))


def _memory(model: Model, hardware: Hardware, plan: Plan, lengths: Array, sequences: int) -> Memory:
    prompts = np.maximum(lengths - 1, 1).astype(np.int64)
    workload = Workload(batch=sequences * plan.parallel.dp, prompt=prompts, output=1)
    return memory_use(model, hardware, workload, plan)


def _growth(needs: Array, counts: Array) -> float:
    """Bytes that one more block takes at the end of the lengths; 0 where nothing grows."""
    if len(needs) < 2:
        return 0.0
    return float((needs[-1] - needs[-2]) / (counts[-1] - counts[-2]))


def _constant_from(table: Array) -> int:
    """The first entry from which on all are equal."""
    different = np.flatnonzero(table != table[-1])
    return int(different[-1]) + 1 if len(different) else 0


def _last(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).flat[-1])
