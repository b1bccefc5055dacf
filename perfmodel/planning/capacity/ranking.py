"""What a candidate would carry, by the mean field: some milliseconds each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.planning.capacity.candidates import Candidate
from perfmodel.serving.mix import Part
from perfmodel.serving.steady_state import FastEngine, steady_state_of
from perfmodel.specs.traffic import Traffic

USERS = 24
"""Numbers of sequences inside at which a candidate is looked at."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """The largest load that keeps the service levels on average; 0 where none does."""

    rate: float
    capacity: float
    """Requests per second with the engine full."""
    e2e_s: float
    """At ``rate``, or of one request alone."""
    ttft_s: float
    tpot_s: float


def predict(candidate: Candidate, traffic: Traffic, parts: tuple[Part, ...]) -> Predicted:
    """Means over a closed loop of ever more users."""
    engine = FastEngine.of(candidate.case)
    instances = candidate.instances
    most = candidate.case.engine.max_num_seqs
    users = np.unique(np.round(np.geomspace(1, most, USERS)))
    prompt, output = parts[0].prompt, parts[0].output
    shares = traffic.shares()
    if len(parts) > 1:
        mean_prompt = sum(s * (p.prompt.mean) for s, p in zip(shares, parts, strict=True))
        mean_output = sum(s * p.output.mean for s, p in zip(shares, parts, strict=True))
        state = steady_state_of(
            engine, concurrency=users * instances, prompt=np.array(mean_prompt),
            output=np.array(mean_output), requests_per_user=0,
        )  # fmt: skip
    else:
        state = steady_state_of(
            engine, concurrency=users * instances, prompt=prompt, output=output,
            requests_per_user=0,
        )  # fmt: skip
    rate, ttft, tpot, e2e = (
        np.atleast_1d(np.asarray(v, dtype=np.float64))
        for v in (state.requests_per_s, state.ttft_s, state.tpot_s, state.e2e_s)
    )
    keeps = np.ones(len(rate), dtype=bool)
    for values, name in ((ttft, "ttft_s"), (tpot, "tpot_s"), (e2e, "e2e_s")):
        limits = [getattr(c.level, name) for c in traffic.classes]
        stated = [x for x in limits if x is not None]
        if stated:
            keeps &= ~(values > max(stated))
    kept = np.flatnonzero(keeps)
    at = int(kept[np.argmax(rate[kept])]) if len(kept) else 0
    return Predicted(
        rate=float(rate[at]) if len(kept) else 0.0,
        capacity=float(rate.max()),
        e2e_s=float(e2e[at]),
        ttft_s=float(ttft[at]),
        tpot_s=float(tpot[at]),
    )
