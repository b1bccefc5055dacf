"""Which settings of a deployment can't be run at all: the limits of each quantity, and why."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.inference.memory import Rooms
from perfmodel.inference.plan import make_plan
from perfmodel.operators.quantity import Array
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import Engine
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model
from perfmodel.specs.workload import LARGEST, Workload

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits that `estimate` keeps by refusing one setting; a sweep keeps them for all at once."""

    dp: int
    least_sequences: float
    """Of a replica: one, or as many as there are micro-batches."""
    most_sequences: float
    cached: int
    least_new: int
    least_output: int
    most_length: float
    chunk: int | None

    @classmethod
    def of(
        cls, model: Model, engine: Engine, deployment: Deployment, cached: int, chunk: int | None
    ) -> Bounds:
        """The limits of one deployment with a cached prefix and chunks of its prompts."""
        d = deployment
        length: float = inf
        if d.max_model_len is not None:
            length = d.max_model_len
        elif (d.kv_layout or engine.kv_layout) == "contiguous":
            length = model.max_positions or model.position_rows or inf
        if model.position_rows:  # the last token isn't fed in again
            length = min(length, (model.max_positions or model.position_rows) + 1)
        return cls(
            dp=d.dp,
            least_sequences=d.pp_microbatches,
            most_sequences=inf if d.max_num_seqs is None else d.max_num_seqs,
            cached=cached,
            least_new=d.cp,
            least_output=1 if d.speculation is None else 2,
            most_length=length,
            chunk=chunk or engine.kernels.micro_batch_tokens,
        )

    def kept(self, batch: Array, prompt: Array, output: Array) -> Flags:
        """Which settings can be run."""
        sequences = np.ceil(batch / self.dp)
        new = prompt - self.cached
        units = sequences
        if self.chunk is not None:
            units = sequences * np.ceil(np.maximum(new, 1) / self.chunk)
        return np.asarray(
            self.batches(batch)
            & (units >= self.least_sequences)
            & (new >= self.least_new)
            & (output >= self.least_output)
            & (prompt + output <= self.most_length)
            & (prompt <= LARGEST)
        )

    def batches(self, batch: Array) -> Flags:
        """Which batches can be run with some prompt."""
        sequences = np.ceil(batch / self.dp)
        return np.asarray((batch >= self.dp) & (sequences <= self.most_sequences))

    def groups(self, batch: Array, prompt: Array, output: Array) -> NDArray[np.int64]:
        """For settings that can't be run, a number that is the same for the same limit broken."""
        sequences = np.ceil(batch / self.dp)
        broken = [
            prompt < 1,
            prompt <= self.cached,
            batch < self.dp,
            sequences > self.most_sequences,
            prompt - self.cached < self.least_new,
            output < self.least_output,
            prompt + output > self.most_length,
            np.ones(len(batch), dtype=bool),
        ]
        first: NDArray[np.int64] = np.argmax(np.stack(broken), axis=0)
        return first


def refusal(model: Model, hardware: Hardware, deployment: Deployment, load: Workload) -> str:
    """The line by which `estimate` refuses one setting; empty where it doesn't."""
    try:
        plan = make_plan(model, hardware, load, deployment)
        Rooms(plan.model, hardware, load, plan)
    except InputError as error:
        return str(error)
    return ""
