"""Prefill of many settings: each pair of batch and prompt priced by itself, or read off curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.inference.phase import Launches, phase_cost
from perfmodel.inference.pipeline import prefill_phase
from perfmodel.inference.plan import Plan
from perfmodel.inference.speculation.draft import Draft
from perfmodel.inference.speculation.rounds import Rounds, draft_prefill, in_step
from perfmodel.operators.context import Step
from perfmodel.operators.quantity import Array, Quantity
from perfmodel.planning.sweep.places import Places
from perfmodel.planning.sweep.prompt_pass import Network, PromptPass
from perfmodel.serving.pricing import Pricer
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.workload import Workload

PAIRS = 8192
"""Pairs of sequences and new tokens up to which each is priced: about as long as curves take."""
AT_ONCE = 4096
"""Pairs that are priced together, to bound memory."""

Seconds = Callable[[Array, Array], Array]
"""From sequences of a replica and new tokens of each to seconds."""


@dataclass(frozen=True, slots=True)
class PrefillPrice:
    """Seconds of prefills, exactly as an estimate prices them."""

    plan: Plan
    device: Launches
    host: Host | None
    cached: int = 0
    """Tokens of each prompt that are in the cache before."""
    chunk: int | None = None
    """As of `Workload`."""

    def workload(self, sequences: Array, new: Array) -> Workload:
        """Of a replica's ``sequences`` with ``new`` tokens each."""
        return Workload(
            batch=self.plan.parallel.dp * sequences,
            prompt=new + self.cached,
            output=2,
            cached_prefix=self.cached,
            prefill_chunk=self.chunk,
        )

    def __call__(self, sequences: Array, new: Array) -> Array:
        """Seconds for arrays of one length."""
        out = np.empty(len(sequences))
        for start in range(0, len(out), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            out[part] = self._priced(self.workload(sequences[part], new[part]))
        return out

    def _priced(self, load: Workload) -> Quantity:
        plan = self.plan
        first = prefill_phase(plan.model, load, plan, self.device, self.host).total.time_s
        if plan.draft is None:
            return first
        rounds = Rounds(plan.model, plan, plan.draft, self.device, self.host)
        return first + draft_prefill(rounds, load).total.time_s

    @property
    def is_sum(self) -> bool:
        """Whether a prefill is a sum of groups, each of which a curve can hold."""
        plan, d = self.plan, self.plan.deployment
        split = plan.parallel.cp > 1 or d.pp_microbatches > 1 or plan.offload.active
        chunked = self.chunk is not None or plan.engine.kernels.micro_batch_tokens is not None
        mixed = bool(d.comm_overlap) and plan.parallel.dcp > 1
        return not (split or chunked or mixed)


def prefill_seconds(price: PrefillPrice, sequences: Array, new: Array) -> Seconds:
    """What tells the seconds of any of ``sequences`` with any of ``new`` tokens.

    Both hold each number once. Few pairs are priced one by one, many are read off curves;
    where a prefill is no sum of groups, the pairs that come are priced as they come.
    """
    if len(sequences) * len(new) <= PAIRS:
        return _table(price, sequences, new)
    if not price.is_sum:
        return _as_they_come(price)
    return _curves(price, sequences, new)


def _table(price: PrefillPrice, sequences: Array, new: Array) -> Seconds:
    rows, columns = Places(sequences), Places(new)
    pairs = np.repeat(sequences, len(new)), np.tile(new, len(sequences))
    table = price(*pairs)

    def read(n: Array, tokens: Array) -> Array:
        return table.take(rows(n) * len(new) + columns(tokens))

    return read


def _as_they_come(price: PrefillPrice) -> Seconds:
    def priced(n: Array, tokens: Array) -> Array:
        width = tokens.max() + 1
        keys, place = np.unique(n * width + tokens, return_inverse=True)
        each = price(np.floor(keys / width), keys % width)
        found: Array = each[place]
        return found

    return priced


def _curves(price: PrefillPrice, sequences: Array, new: Array) -> Seconds:
    ends = float(new[0]), float(new[-1])
    passes = [PromptPass(n, sequences, ends, price.cached) for n in _networks(price)]

    def read(n: Array, tokens: Array) -> Array:
        total = passes[0].seconds(n, tokens)
        for one in passes[1:]:
            total = total + one.seconds(n, tokens)
        return total

    return read


def _networks(price: PrefillPrice) -> list[Network]:
    """The model, and the net of a draft that reads the prompt too."""
    plan = price.plan
    one = price.workload(np.ones(1), np.full(1, 16.0))
    kernels = prefill_phase(plan.model, one, plan, price.device, price.host).total.launches
    found = [Network(Pricer(plan.model, plan, price.device, price.host), _scalar(kernels))]
    draft = plan.draft
    if draft is not None and draft.net is not None and draft.speculation.depth:
        found.append(_draft_network(price, draft, one))
    return found


def _draft_network(price: PrefillPrice, draft: Draft, one: Workload) -> Network:
    net, host = draft.net, None if price.host is None else in_step(price.host)
    assert net is not None  # noqa: S101  (the caller looked)
    plan = replace(price.plan, formats=draft.formats, parallel=draft.parallel)
    kernels = prefill_phase(net, one, plan, price.device, host).total.launches

    def before(tokens: Quantity) -> Quantity:
        step = Step("prefill", 1, tokens, 0)
        return phase_cost(draft.join(step), price.device).total.time_s

    return Network(Pricer(net, plan, price.device, host), _scalar(kernels), before)


def _scalar(value: Quantity) -> float:
    return float(np.max(np.asarray(value)))
