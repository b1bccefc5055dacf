"""Pools that prefill and decode apart: the ratio that suits a deployment."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.planning.capacity.candidates import Candidate
from perfmodel.planning.capacity.question import Question
from perfmodel.planning.capacity.ranking import Curve, Predicted, bound

MOST = 6
"""Instances of both pools together that are tried."""


def pooled(candidate: Candidate, question: Question) -> tuple[Candidate, Curve] | None:
    """``candidate`` as two pools of the ratio that carries most for each instance.

    None where the profile has no network for the caches to cross, or replicas are many already.
    """
    if candidate.hardware.network_bandwidth is None or candidate.case.replicas > 1:
        return None
    tried = []
    for total in range(2, MOST + 1):
        for prefill in range(1, total):
            pools = replace(candidate.serving, disaggregate=(prefill, total - prefill))
            made = candidate.with_serving(pools)
            curve = bound(made, question)
            tried.append((Predicted.of(curve, question).rate / total, -total, made, curve))
    best = max(tried, key=lambda t: (round(t[0], 6), t[1]))
    return (best[2], best[3]) if best[0] else None
