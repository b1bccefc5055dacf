"""Attention of one new token (or a few) over a long cache: keys and values read in parallel.

Flash-decoding gives a unit of work to each (sequence, KV head, tile of query rows, split of the
context). Units fill the SMs in waves, each walks blocks of 128 keys, and all together pull the
cache through device memory or, where a benchmark repeats its call, through L2. The scheduler
picks the number of splits; the form takes the best one.

Shapes: ``batch``, ``kv_len`` (keys per sequence, the new ones included), ``heads``, ``kv_heads``,
``head_dim``, ``window`` (0: none), ``kv_bytes`` per element of the cache; optional ``q_len``
(new tokens per sequence, 1 unless speculative tokens are verified).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.kernels.forms.attention_parts import (
    Flags,
    Kernel,
    MemoryTerm,
    column,
    norm_sum,
    waves,
    window_keys,
)
from perfmodel.kernels.forms.base import Chip, Parameter, Shapes, Values
from perfmodel.operators.quantity import Array
from perfmodel.units import MICROSECOND

BLOCK = 128
"""Keys of a block of the inner loop."""
ROWS = 64
"""Query rows (heads of a KV head × new tokens) that share one pass over the keys."""
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)

PARAMETERS = (
    Parameter("t0", "us", 9.0, 0.5, 500.0, 0.7, "fixed time of a call"),
    Parameter("t1", "us", 0.5, 0.01, 20.0, 1.0, "per doubling of the batch: its bookkeeping"),
    Parameter("em", "share", 0.85, 0.3, 1.0, 0.15, "of device bandwidth, reading long caches"),
    Parameter("l2", "-", 2.0, 1.0, 8.0, 0.4, "bandwidth of L2 over that of device memory"),
    Parameter("l2c", "share", 0.7, 0.05, 1.5, 0.4, "of L2 up to which a repeated read stays in"),
    Parameter("l2s", "-", 5.0, 2.0, 12.0, 0.4, "sharpness of that edge"),
    Parameter("p", "-", 2.0, 1.0, 8.0, 0.5, "overlap of unit work and memory: 1 none"),
    Parameter("occ", "-", 1.5, 0.5, 6.0, 0.5, "units that an SM runs at a time"),
    Parameter("w", "-", 1.0, 0.02, 50.0, 1.0, "hardness of waves: 0 smooth"),
    Parameter("tp", "us", 1.5, 0.02, 40.0, 0.8, "start and end of a unit at head size 128"),
    Parameter("tg", "-", 0.3, 0.01, 10.0, 1.0, "its growth with 16 query rows of 128"),
    Parameter("hp", "-", 0.6, 0.1, 2.5, 0.5, "its exponent in head size"),
    Parameter("tb", "us", 0.5, 0.02, 20.0, 0.7, "a block of keys at head size 128"),
    Parameter("cg", "-", 0.1, 0.003, 5.0, 1.0, "its growth with 16 query rows"),
    Parameter("hx", "-", 0.9, 0.2, 2.5, 0.4, "its exponent in head size"),
    Parameter("cw", "-", 1.2, 0.5, 4.0, 0.4, "its cost where a window cuts"),
    Parameter("ts", "us", 2.0, 0.05, 30.0, 0.8, "merging the splits"),
    Parameter("tl", "us", 0.1, 0.002, 3.0, 0.8, "per split, merged one after the other"),
    Parameter("tc", "-", 1.0, 0.05, 20.0, 0.8, "passes over the splits' partial results"),
)
FA3_PARAMETERS = (
    Parameter("tm", "us", 0.02, 0.001, 1.0, 0.8, "per sequence: merging up to 32 splits"),
    Parameter("tw", "us", 2.0, 0.05, 20.0, 0.8, "that, per KV head of more than 256 elements"),
)
FA2_PARAMETERS = (
    Parameter("tq", "us", 4.0, 0.2, 20.0, 0.6, "copying queries and outputs of packed heads"),
    Parameter("cq", "-", 2.0, 0.05, 20.0, 0.8, "passes over them at device bandwidth"),
)
OWN_PARAMETERS: dict[Kernel, tuple[Parameter, ...]] = {
    "fa2": FA2_PARAMETERS,
    "fa3": FA3_PARAMETERS,
}
CAPTURED = 512
"""Sequences up to which vLLM captures graphs: there FlashAttention-3 reserves `FA3_SPLITS` splits
and runs its merging kernel always; beyond, only where it splits."""
FA3_SPLITS = 32

MOST_SPLITS: dict[Kernel, int] = {"fa3": FA3_SPLITS, "trtllm": 16}
"""For TensorRT-LLM as its times suggest: its source wasn't read."""


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a call before it is split; every field broadcasts over the shapes."""

    count: Array
    start: Array
    """Seconds to start and end a unit."""
    block: Array
    """Seconds of a block of keys."""
    blocks: Array
    """Blocks that a unit walks."""
    splittable: Flags


@dataclass(frozen=True, slots=True)
class AttentionDecode:
    """Split-KV attention; ``cold`` reads keys from device memory, as a model's step does."""

    cold: bool = False
    kernel: Kernel = "any"
    name: str = "attention-decode"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """19 numbers and up to 2 of the kernel, strongly correlated among themselves."""
        return PARAMETERS + OWN_PARAMETERS.get(self.kernel, ())

    @property
    def regimes(self) -> tuple[str, ...]:
        """Short contexts are launch and bookkeeping, long ones bandwidth."""
        return ("short", "long", "windowed")

    def regime(self, shapes: Shapes) -> Array:
        """2 where a window cuts the context, 1 beyond 4 Mi elements of cache, else 0."""
        window = column(shapes, "window")
        cut = (window > 0) & (shapes["kv_len"] > window)
        long = cache_elements(shapes) > 2**22
        regime: Array = np.where(cut, 2, np.where(long, 1, 0))
        return regime

    def seconds(self, chip: Chip, values: Values, shapes: Shapes) -> Array:
        """Time of one call, broadcast over the shapes."""
        v, us = values, MICROSECOND
        batch, heads, width = shapes["batch"], shapes["heads"], shapes["head_dim"]
        q_len = column(shapes, "q_len", 1.0)
        keys = window_keys(shapes["kv_len"], column(shapes, "window"), q_len)
        units = self._units(v, shapes, keys)
        outputs = 2 * batch * heads * q_len * width
        memory = MemoryTerm.of(chip, v, self.cold).seconds(cache_bytes(shapes) + 2 * outputs)
        roof = 2 * outputs * keys / chip.peak
        slots = chip.sm_count * v["occ"]
        best = None
        for split in self._splits:
            walked = np.minimum(np.ceil(units.blocks / split), keys / (BLOCK * split) + 0.5)
            work = waves(units.count * split / slots, v["w"]) * (units.start + walked * units.block)
            time = norm_sum(np.maximum(work, roof), memory, v["p"])
            if split > 1:
                # Each split writes a partial result in float32.
                passed = v["tc"] * 2 * outputs / chip.bandwidth
                time = time + v["ts"] * us + split * (v["tl"] * us + passed)
                time = np.where((split <= units.blocks) & units.splittable, time, np.inf)
            best = time if best is None else np.minimum(best, time)
        fixed = v["t0"] * us + v["t1"] * us * np.log2(batch) + self._beside(chip, v, shapes)
        return np.asarray(best) + fixed

    def _units(self, v: Values, shapes: Shapes, keys: Array) -> Units:
        batch, heads, kv_heads = shapes["batch"], shapes["heads"], shapes["kv_heads"]
        wide = shapes["head_dim"] / 128
        q_len = column(shapes, "q_len", 1.0)
        cut = keys < shapes["kv_len"]
        packed = self._packed(shapes)
        rows = np.where(packed, heads / kv_heads * q_len, q_len)
        sixteen = self._tile_rows(rows) / 16
        start = v["tp"] * MICROSECOND * (1 + v["tg"] * sixteen * wide) * wide ** v["hp"]
        block = v["tb"] * MICROSECOND * (1 + v["cg"] * sixteen) * wide ** v["hx"]
        return Units(
            count=batch * np.where(packed, kv_heads, heads) * np.ceil(rows / ROWS),
            start=start,
            block=block * np.where(cut, v["cw"], 1.0),
            blocks=np.ceil(keys / BLOCK) + cut,
            splittable=packed,
        )

    def _tile_rows(self, rows: Array) -> Array:
        """Query rows for which a unit does work; TensorRT-LLM has tiles of 8, 16, 32 and 64."""
        if self.kernel == "trtllm":
            rows = 2 ** np.ceil(np.log2(np.maximum(rows, 8.0)))
        return np.minimum(rows, float(ROWS))

    @property
    def _splits(self) -> tuple[int, ...]:
        most = MOST_SPLITS.get(self.kernel, SPLITS[-1])
        return tuple(number for number in SPLITS if number <= most)

    def _packed(self, shapes: Shapes) -> Flags:
        """Where the heads of a KV head share a pass over its keys, which may then be split."""
        group = shapes["heads"] / shapes["kv_heads"]
        if self.kernel != "fa2":
            return np.ones(np.shape(group), dtype=bool)
        single = column(shapes, "q_len", 1.0) == 1
        packed: Flags = (group > 1) & (column(shapes, "window") == 0) & single
        return packed

    def _beside(self, chip: Chip, v: Values, shapes: Shapes) -> Array:
        """Seconds of the kernels that run beside: merging reserved splits, copying packed heads."""
        batch, width = shapes["batch"], shapes["head_dim"]
        if self.kernel == "fa3":
            each = v["tm"] + np.where(width > 256, v["tw"] * shapes["kv_heads"], 0.0)
            return np.asarray(np.where(batch <= CAPTURED, batch * each * MICROSECOND, 0.0))
        if self.kernel == "fa2":
            passes = v["cq"] * 4 * batch * shapes["heads"] * width / chip.bandwidth
            return np.asarray(np.where(self._copied(shapes), v["tq"] * MICROSECOND + passes, 0.0))
        return np.zeros(())

    def _copied(self, shapes: Shapes) -> Flags:
        """Where FlashAttention-2 transposes packed heads: not for one sequence or one KV head."""
        several = (shapes["batch"] > 1) & (shapes["kv_heads"] > 1)
        copied: Flags = several & self._packed(shapes) & (self.kernel == "fa2")
        return copied

    def features(self, chip: Chip, shapes: Shapes) -> Array:
        """Sizes in log, what they mean for this chip, and flags of the kernels' known switches."""
        batch, heads, kv_heads = shapes["batch"], shapes["heads"], shapes["kv_heads"]
        width, kv_len, q_len = shapes["head_dim"], shapes["kv_len"], column(shapes, "q_len", 1.0)
        keys = window_keys(kv_len, column(shapes, "window"), q_len)
        rows = heads / kv_heads * q_len
        alone = np.logical_not(self._packed(shapes))
        fill = np.log(batch * np.where(alone, heads, kv_heads) / chip.sm_count)
        held = np.log(cache_bytes(shapes) / chip.l2_bytes)
        parts = [
            np.log(batch), np.log(keys), np.log(kv_heads), np.log(rows), np.log(width),
            np.maximum(fill, 0.0), np.maximum(held, 0.0), np.minimum(held, 0.0),
            1.0 * (keys < kv_len), 1.0 * (rows == 1), np.log(self._tile_rows(rows)),
            1.0 * (width == 192), 1.0 * (width > 256), 1.0 * alone,
            1.0 * (batch > CAPTURED), 1.0 * (keys > BLOCK), 1.0 * self._copied(shapes),
        ]  # fmt: skip
        return np.stack(np.broadcast_arrays(*parts), axis=-1).reshape(-1, len(parts))


def cache_elements(shapes: Shapes) -> Array:
    """Elements of keys and values that a call reads."""
    keys = window_keys(shapes["kv_len"], column(shapes, "window"), column(shapes, "q_len", 1.0))
    elements: Array = 2 * shapes["batch"] * shapes["kv_heads"] * shapes["head_dim"] * keys
    return elements


def cache_bytes(shapes: Shapes) -> Array:
    """Bytes of keys and values that a call reads."""
    return cache_elements(shapes) * column(shapes, "kv_bytes", 2.0)
