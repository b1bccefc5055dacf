"""Step times of a deployment, evaluated ahead over grids so that a step costs microseconds.

A step's operators fall into four groups that add up:

* what runs once over all tokens (linear layers, norms, exchanges): by the number of tokens;
* final norm, LM head and sampling: by the sequences whose logits are needed;
* attention and recurrences of the decoding sequences: by their number and mean context;
* the same of the prompts' chunks: by their number, mean length and mean cached tokens.

The host comes on top. Tables hold the first two for every number up to the engine's limits, so
that kernels which switch with the size are met exactly, and the others on grids.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.inference.host import HostTime
from perfmodel.inference.phase import Device
from perfmodel.inference.plan import Plan
from perfmodel.operators.context import Step
from perfmodel.operators.quantity import Quantity
from perfmodel.operators.record import Operator
from perfmodel.operators.step import body_operators, head_operators
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.model import Model

Array = NDArray[np.float64]

PER_PART = frozenset(
    {"attention", "recurrence", "indexer.scores", "absorb_q", "absorb_v", "kv_b_proj"}
)
"""Operators that run once for the decoding sequences and once for the prompts of a step."""


@dataclass(frozen=True, slots=True)
class Pricer:
    """Prices groups of a deployment's operators directly; the tables are made by it."""

    model: Model
    plan: Plan
    device: Device
    host: Host | None

    def _seconds(self, operators: tuple[Operator, ...], *, per_part: bool) -> Quantity:
        chosen = [o for o in operators if (o.name in PER_PART) == per_part]
        return sum((o.count * self.device.time(o).time_s for o in chosen), 0.0)

    def _body(self, step: Step) -> tuple[Operator, ...]:
        fused = self.plan.deployment.attention == "fused"
        plan = self.plan
        return body_operators(self.model, step, plan.formats, plan.parallel, fused_attention=fused)

    def shared(self, tokens: Quantity) -> Quantity:
        """What runs once over all ``tokens``."""
        return self._seconds(self._body(Step("decode", tokens, 1, 1)), per_part=False)

    def head(self, rows: Quantity) -> Quantity:
        """Final norm, head and sampling for ``rows`` sequences."""
        step = Step("decode", rows, 1, 1)
        return self._seconds(
            head_operators(self.model, step, self.plan.formats, self.plan.parallel), per_part=False
        )

    def decoding(self, sequences: Quantity, cached: Quantity) -> Quantity:
        """Attention and recurrences of ``sequences`` with ``cached`` tokens each."""
        return self._seconds(self._body(Step("decode", sequences, 1, cached)), per_part=True)

    def prompts(self, sequences: Quantity, new: Quantity, cached: Quantity) -> Quantity:
        """The same of chunks of ``new`` tokens after ``cached`` ones."""
        return self._seconds(self._body(Step("prefill", sequences, new, cached)), per_part=True)

    def host_s(self, sequences: Quantity) -> tuple[Quantity, float]:
        """The host's serial time and the shortest step."""
        if self.host is None:
            return 0.0, 0.0
        time = HostTime(self.host, self.plan.engine.name, len(self.model.layers), sequences)
        return time.serial_s, time.floor_s
