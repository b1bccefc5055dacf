"""What a candidate would carry on average, to choose whom to simulate.

Two steps, each as good as it needs to be: a bound of some 15 ms for every candidate, and the mean
field (`perfmodel.serving.steady_state`), ten times as much, for those that the bound puts first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from perfmodel.planning.capacity.candidates import Candidate
from perfmodel.planning.capacity.question import Question
from perfmodel.serving.admission import held
from perfmodel.serving.asked import Asked, Bounds
from perfmodel.serving.closed_steps import decode_steps
from perfmodel.serving.steady_state import FastEngine, steady_state_of

Array = NDArray[np.float64]
USERS = 24
"""Numbers of sequences inside at which the bound is taken."""
NEAR = (0.5, 0.8, 1.0, 1.15)
"""Multiples of the bound's best number at which the mean field is taken."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Means of one replica that holds ever more requests, by their number."""

    users: Array
    rate: Array
    """Requests per second."""
    ttft_s: Array
    tpot_s: Array
    e2e_s: Array
    prefill_s: float = 0.0
    """Seconds of an engine for one prompt, of many."""

    def kept(self, question: Question) -> NDArray[np.bool_]:
        """Where every class keeps its levels on average, its TTFT as the longest-waiting one's."""
        keeps = np.ones(len(self.rate), dtype=bool)
        longest = max((c.level.ttft_s or inf) for c in question.traffic.classes)
        keeps &= self.ttft_s <= longest
        for kind, part in zip(question.traffic.classes, question.parts, strict=True):
            if kind.level.tpot_s is not None and part.output.mean > 1:
                keeps &= self.tpot_s <= kind.level.tpot_s
            if kind.level.e2e_s is not None:
                decodes = np.nan_to_num(self.tpot_s) * (part.output.mean - 1)
                keeps &= self.ttft_s + decodes <= kind.level.e2e_s
        return keeps


@dataclass(frozen=True, slots=True)
class Predicted:
    """The largest load that keeps the levels on average."""

    rate: float
    """Requests per second of one replica; 0 where even a request alone is too slow."""
    capacity: float
    """With the replica full."""
    users: float
    e2e_s: float
    tpot_s: float
    """At ``rate``, or of a request alone."""
    alone_ttft_s: float
    alone_tpot_s: float
    alone_e2e_s: float

    @classmethod
    def of(cls, curve: Curve, question: Question) -> Predicted:
        """The best point of a curve whose first point is a request alone."""
        kept = np.flatnonzero(curve.kept(question))
        at = int(kept[np.argmax(curve.rate[kept])]) if len(kept) else 0
        return cls(
            rate=float(curve.rate[at]) if len(kept) else 0.0,
            capacity=float(curve.rate.max()),
            users=float(curve.users[at]),
            e2e_s=float(curve.e2e_s[at]),
            tpot_s=float(curve.tpot_s[at]),
            alone_ttft_s=float(curve.ttft_s[0]),
            alone_tpot_s=float(curve.tpot_s[0]),
            alone_e2e_s=float(curve.e2e_s[0]),
        )


def bound(candidate: Candidate, question: Question) -> Curve:
    """A closed loop in which prompts and decode steps take turns.

    With n sequences inside, each request takes p seconds of the engine for its prompt (computed
    in steps as full as the budget allows) and its part of the decode steps of d(n) seconds in
    which it generates: X(n) = 1/(p + S·d(n)/n) with S steps per request. All of them wait for
    each other's prompts, so that its decoding takes n/X − p.
    """
    pools = candidate.serving.disaggregate
    if pools is not None:
        return _pooled(candidate, question, *pools)
    asked, steps, users = _asked(candidate, question)
    step_s = _decode_s(candidate, asked, users)
    each, first = _prefill_s(candidate, question)
    rate = 1 / (each + steps * step_s / users)
    return _curve(candidate, users, rate, first + step_s, users / rate - each, question, each)


def _curve(
    candidate: Candidate, users: Array, rate: Array, ttft: Array, decoding: Array,
    question: Question, prefill_s: float,
) -> Curve:  # fmt: skip
    output = question.tokens[1]
    tpot = decoding / (output - 1) if output > 1 else np.full_like(decoding, np.nan)
    replicas = 1 if candidate.serving.disaggregate else candidate.case.replicas
    return Curve(
        users=users * replicas,
        rate=rate * replicas,
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=ttft + (decoding if output > 1 else 0.0),
        prefill_s=prefill_s,
    )


def _pooled(candidate: Candidate, question: Question, prefill: int, decode: int) -> Curve:
    """Pools: as many prompts as the one computes, as many decodes as the other holds."""
    asked, steps, users = _asked(candidate, question)
    step_s = _decode_s(candidate, asked, users)
    each, first = _prefill_s(candidate, question)
    decodes = users / (steps * step_s) if steps else np.full_like(users, inf)
    rate = np.minimum(decode * decodes, prefill / each)
    return _curve(
        candidate, users * decode, rate, first + 0 * step_s, steps * step_s, question, each
    )


def _asked(candidate: Candidate, question: Question) -> tuple[Asked, float, Array]:
    """What is asked on average, the decode steps of a request, and numbers of users."""
    prompt, output = (np.array([tokens]) for tokens in question.tokens)
    asked = Asked(prompt, output, np.ones(1), np.ones(1))
    engine = candidate.case.engine
    bounds = Bounds.of(engine)
    most = max(1.0, float(held(asked, bounds)[0][0]))
    steps = float(decode_steps(FastEngine.of(candidate.case).times, output)[0])
    return asked, steps, np.unique(np.floor(np.geomspace(1, most, USERS) + 1e-9))


def _decode_s(candidate: Candidate, asked: Asked, users: Array) -> Array:
    """A decode step by the sequences in it; replicas that share experts hold a part each."""
    pricer, ranks = candidate.case.pricer, candidate.case.plan.parallel.dp
    own = np.ceil(users / ranks)
    everywhere = users if ranks > 1 else None
    seconds = pricer.fixed(own, everywhere) + pricer.decoding(own, float(asked.context[0]))
    stated = 1 + (pricer.stated_draft or 0.0)
    whole = np.broadcast_to(np.asarray(seconds, dtype=np.float64), users.shape)
    result: Array = np.maximum(whole, pricer.floor_s) * stated
    return result


def _prefill_s(candidate: Candidate, question: Question) -> tuple[float, float]:
    """Seconds of the engine for one prompt of many, and until the first token of one alone."""
    pricer, ranks = candidate.case.pricer, candidate.case.plan.parallel.dp
    cached = _found(candidate, question)
    new = max(question.tokens[0] - cached, 1.0)
    budget = float(candidate.case.engine.max_num_batched_tokens)
    several = max(1.0, budget // new)

    def of(count: float) -> float:
        tokens = min(count * new, max(budget, 1.0))
        steps = count * new / tokens
        whole = pricer.exposed(*pricer.shared(np.array([tokens]))) * steps
        whole = whole + pricer.prompts(count, np.array([new]), cached) + pricer.head(count)
        return float(np.asarray(whole + pricer.serial_s(count) * steps).flat[0])

    return of(several) / several / ranks, of(1.0)


def _found(candidate: Candidate, question: Question) -> float:
    """Prompt tokens of a request that are cached already, on average."""
    if candidate.case.engine.prefixes is None and not candidate.serving.prefix_caching:
        return 0.0
    shares = question.traffic.shares()
    return sum(
        share * min(part.prefix.tokens, part.prompt.mean - 1)
        for share, part in zip(shares, question.parts, strict=True)
        if part.prefix is not None
    )


def mean_field(candidate: Candidate, question: Question, near: Curve) -> Curve:
    """The steady state of a closed loop, for a request alone and about where the bound is best.

    Shared prefixes are taken as prompts that are shorter by them; pools are left to the bound.
    """
    if candidate.serving.disaggregate is not None:
        return near
    best = Predicted.of(near, question)
    top = float(near.users[-1])
    users = np.unique(np.clip([1.0, *(best.users * share for share in NEAR), top], 1.0, top))
    prompt, output = question.tokens
    only = question.parts[0] if len(question.parts) == 1 else None
    shorter = _found(candidate, question)
    state = steady_state_of(
        FastEngine.of(candidate.case),
        concurrency=users * candidate.case.replicas if candidate.case.replicas > 1 else users,
        prompt=only.prompt if only and not shorter else np.array(prompt - shorter),
        output=only.output if only else np.array(output),
        requests_per_user=0,
    )
    rate, ttft, tpot, e2e = (
        np.asarray(values, dtype=np.float64)
        for values in (state.requests_per_s, state.ttft_s, state.tpot_s, state.e2e_s)
    )
    return Curve(users, rate, ttft, tpot, e2e, near.prefill_s)
