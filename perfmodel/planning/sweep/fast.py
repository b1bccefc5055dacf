"""What `estimate` says of time and memory, for millions of settings of one deployment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from perfmodel.inference.estimate import running
from perfmodel.inference.plan import Plan, make_plan
from perfmodel.operators.quantity import Array
from perfmodel.planning.sweep.decode import DecodePrice, DecodeTimes
from perfmodel.planning.sweep.places import distinct
from perfmodel.planning.sweep.prefill import PrefillPrice, prefill_seconds
from perfmodel.planning.sweep.room import Room
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware, load_hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload

BLOCK = 32_768
"""Settings that are worked out together: their arrays stay in cache."""


@dataclass(frozen=True, slots=True)
class FastEstimate:
    """Latency, throughput and memory of settings, as arrays of one shape.

    Times are within 0.5 % of `estimate`'s, memory is the same.
    """

    ttft_s: Array
    tpot_s: Array
    """NaN where only one token is generated."""
    total_s: Array
    output_tokens_per_s: Array
    """Of the whole batch over the total time."""
    weights_bytes: Array
    """This and the other bytes: on the fullest GPU."""
    kv_bytes: Array
    required_bytes: Array
    fits: NDArray[np.bool_]
    max_sequences: Array
    """Largest batch over the deployment at this prompt + output."""

    def shaped(self, shape: tuple[int, ...]) -> FastEstimate:
        """The same settings in another shape."""
        return FastEstimate(*(getattr(self, f.name).reshape(shape) for f in fields(FastEstimate)))


@dataclass(frozen=True, slots=True)
class Extent:
    """Which quantities settings take: each array in order, each number once."""

    sequences: Array
    """Of a replica."""
    new: Array
    """Tokens of a prompt that aren't in the cache."""
    lengths: Array
    """Prompt + output."""

    @classmethod
    def of(cls, sequences: Array, prompt: Array, output: Array, cached: int) -> Extent:
        """Of flat arrays."""
        return cls(distinct(sequences), distinct(prompt - cached), distinct(prompt + output))


class FastCase:
    """One deployment, ready to be asked for settings of an extent.

    Args:
        hardware: the device.
        plan: the deployment, made for a workload of the extent.
        load: cached prefix, share and chunk, all of them single numbers.
        extent: what will be asked for.
    """

    def __init__(self, hardware: Hardware, plan: Plan, load: Workload, extent: Extent) -> None:
        self.plan = plan
        self._cached = int(load.cached_prefix)
        _, device, host = running(hardware, plan)
        low, high = float(extent.new[0]) + self._cached, float(extent.lengths[-1])
        self._decode = DecodeTimes(DecodePrice(plan, device, host), extent.sequences, low, high)
        self._hits = float(load.prefix_hits)
        price = PrefillPrice(plan, device, host, self._cached, load.prefill_chunk)
        self._found = self._missing = None
        if self._hits > 0:
            self._found = prefill_seconds(price, extent.sequences, extent.new)
        if self._hits < 1:
            price = PrefillPrice(plan, device, host, 0, load.prefill_chunk)
            whole = extent.new + self._cached
            self._missing = prefill_seconds(price, extent.sequences, whole)
        self._room = Room(hardware, plan, extent.lengths, load)

    def _ttft(self, sequences: Array, prompt: Array) -> Array:
        """Prefill: the mean of those that find the prefix and those that don't."""
        total = np.zeros(len(prompt))
        if self._found is not None:
            total += self._hits * self._found(sequences, prompt - self._cached)
        if self._missing is not None:
            total += (1 - self._hits) * self._missing(sequences, prompt)
        return total

    def answer(self, batch: Array, prompt: Array, output: Array) -> FastEstimate:
        """Settings as flat arrays of one length, within the extent."""
        count = len(batch)
        kinds = {f.name: bool if f.name == "fits" else float for f in fields(FastEstimate)}
        out = FastEstimate(*(np.empty(count, dtype=kind) for kind in kinds.values()))
        for start in range(0, count, BLOCK):
            part = slice(start, start + BLOCK)
            self._fill(out, part, batch[part], prompt[part], output[part])
        return out

    def _fill(
        self, out: FastEstimate, part: slice, batch: Array, prompt: Array, output: Array
    ) -> None:
        sequences = np.ceil(batch / self.plan.parallel.dp)
        ttft = self._ttft(sequences, prompt)
        decode = self._decode.seconds(sequences, prompt, output)
        total = ttft + decode
        out.ttft_s[part] = ttft
        with np.errstate(invalid="ignore", divide="ignore"):
            out.tpot_s[part] = np.where(output > 1, decode / (output - 1), np.nan)
        out.total_s[part] = total
        out.output_tokens_per_s[part] = batch * output / total
        filled = self._room.filled(batch, sequences, prompt, output)
        out.weights_bytes[part] = filled.weights_bytes
        out.kv_bytes[part] = filled.kv_bytes
        out.required_bytes[part] = filled.required_bytes
        out.fits[part] = filled.fits
        out.max_sequences[part] = filled.max_sequences


def fast_estimate(
    model: Model | str | os.PathLike[str],
    hardware: Hardware | str | os.PathLike[str],
    workload: Workload,
    deployment: Deployment | None = None,
) -> FastEstimate:
    """The times and memory of `estimate` for arrays of millions of settings.

    A step's operators depend on few numbers (tokens, sequences, context): their times are worked
    out where they bend, and read off for every setting.

    Args:
        model: a `Model`, or what `load_model` takes.
        hardware: a `Hardware`, or what `load_hardware` takes.
        workload: arrays that broadcast; of ``cached_prefix`` and ``prefix_share`` each combination
            is a case of its own.
        deployment: parallel layout, formats and engine settings.

    Raises:
        InputError: as of `estimate`.
    """
    model = model if isinstance(model, Model) else load_model(model)
    hardware = hardware if isinstance(hardware, Hardware) else load_hardware(hardware)
    plan = make_plan(model, hardware, workload, deployment or Deployment())
    names = ("batch", "prompt", "output", "cached_prefix")
    given = [np.asarray(getattr(workload, name), dtype=np.float64) for name in names]
    given.append(np.asarray(workload.prefix_hits, dtype=np.float64))
    wide = np.broadcast_arrays(*given)
    shape = wide[0].shape
    batch, prompt, output, cached, hits = (np.ascontiguousarray(axis).ravel() for axis in wide)
    out: FastEstimate | None = None
    for mask, prefix, share in _prefixes(cached, hits):
        known = None if workload.prefix_share is None else share
        load = workload.model_copy(
            update={"batch": plan.parallel.dp, "prompt": prefix + 1, "output": 1,
                    "cached_prefix": prefix, "prefix_share": known}
        )  # fmt: skip
        chosen = [axis if mask is None else axis[mask] for axis in (batch, prompt, output)]
        sequences = np.ceil(chosen[0] / plan.parallel.dp)
        extent = Extent.of(sequences, chosen[1], chosen[2], prefix)
        answer = FastCase(hardware, plan, load, extent).answer(*chosen)
        if mask is None:
            return answer.shaped(shape)
        out = _placed(out, mask, answer)
    assert out is not None  # noqa: S101  (a workload has a setting)
    return out.shaped(shape)


def _prefixes(cached: Array, hits: Array) -> Iterator[tuple[NDArray[np.bool_] | None, int, float]]:
    """Settings with one cached prefix and share each; None for all of them."""
    if np.all(cached == cached[0]) and np.all(hits == hits[0]):
        yield None, int(cached[0]), float(hits[0])
        return
    for prefix, share in np.unique(np.stack([cached, hits]), axis=1).T:
        yield (cached == prefix) & (hits == share), int(prefix), float(share)


def _placed(
    out: FastEstimate | None, mask: NDArray[np.bool_], answer: FastEstimate
) -> FastEstimate:
    if out is None:
        out = FastEstimate(
            *(np.empty(len(mask), dtype=getattr(answer, f.name).dtype)
              for f in fields(FastEstimate))
        )  # fmt: skip
    for field in fields(FastEstimate):
        getattr(out, field.name)[mask] = getattr(answer, field.name)
    return out
