"""The activation peak: what a step needs beside weights and cache."""

from __future__ import annotations

import numpy as np

from perfmodel.inference.memory_rule import Reserve
from perfmodel.inference.plan import Plan
from perfmodel.operators.quantity import Quantity, maximum, minimum
from perfmodel.operators.sharding import local_layer
from perfmodel.specs.model import Attention, LatentAttention, Model
from perfmodel.specs.workload import Workload
from perfmodel.units import GIB

VERIFIED_BYTES = 8.0
"""Logits and probabilities of a drafted token in fp32, for each entry of the vocabulary."""
SCORE_BYTES = 4.0
"""Scores in 16 bits and the probabilities made of them, for each (head, query, key)."""


def logits_bytes(model: Model, plan: Plan) -> float:
    """Bytes of one row of logits in the engine's start-up run, which samples a row per sequence.

    The logits, the sampler's copies and sort indices, over the whole vocabulary whatever the TP.
    """
    return plan.engine.activation.bytes_per_logit * model.vocab


def sequence_logits_bytes(model: Model, plan: Plan) -> float:
    """Bytes that one more sequence in a step adds to the activation peak.

    Its row, and for each drafted token the logits and probabilities that are compared.
    """
    return logits_bytes(model, plan) + VERIFIED_BYTES * plan.drafted * model.vocab


def scores_bytes(model: Model, workload: Workload, plan: Plan) -> Quantity:
    """Bytes of one layer's scores where attention isn't fused; 0 where it is.

    The tokens of a step, at most the engine's budget, each against the whole prompt.
    """
    if plan.deployment.attention != "unfused":
        return 0.0
    local = (local_layer(layer, plan.parallel).mixer for layer in set(model.layers))
    heads = [m.heads for m in local if isinstance(m, Attention | LatentAttention)]
    every = np.all(np.asarray(workload.prefix_hits) == 1)
    new = workload.prompt - (workload.cached_prefix if every else 0)
    if workload.prefill_chunk is not None:
        new = minimum(new, workload.prefill_chunk)
    tokens = minimum(plan.limits.max_num_batched_tokens, plan.replica_sequences(workload) * new)
    keys: Quantity = workload.prompt
    return SCORE_BYTES * max(heads, default=0) * tokens * keys


def fixed_peak_bytes(model: Model, workload: Workload, plan: Plan) -> Quantity:
    """The part of the peak that the number of sequences doesn't change."""
    a = plan.engine.activation
    hidden = a.bytes_per_hidden * plan.limits.max_num_batched_tokens * model.hidden
    return hidden + a.fixed_gib * GIB + scores_bytes(model, workload, plan)


def activation_peak_bytes(model: Model, workload: Workload, plan: Plan) -> Quantity:
    """Peak beside weights and cache in the engine's start-up run, in bytes."""
    covered = (plan.stated_max_num_seqs or plan.own_max_num_seqs) * logits_bytes(model, plan)
    needed = plan.replica_sequences(workload) * sequence_logits_bytes(model, plan)
    return maximum(covered, needed) + fixed_peak_bytes(model, workload, plan)


def most_sequences(
    keeps: Reserve,
    weights: Quantity,
    fixed: Quantity,
    per_sequence: Quantity,
    model: Model,
    plan: Plan,
) -> Quantity:
    """Sequences of a replica that fit beside ``weights`` and the ``fixed`` peak, not rounded.

    Up to the engine's own limit the logits of the limit are set aside whatever the batch; each
    sequence beyond it needs its own. A limit that the user stated isn't passed.
    """
    room, weight = keeps.without_logits(weights, fixed)
    row, own_rows = weight * logits_bytes(model, plan), weight * sequence_logits_bytes(model, plan)
    own = plan.stated_max_num_seqs or plan.own_max_num_seqs
    covered = own * (row / own_rows if own_rows else 1.0)
    each = np.maximum(per_sequence, 1e-9)
    within = (room - own * row) / each
    beyond = room / (per_sequence + own_rows)
    most: Quantity = np.where(within <= covered, within, np.maximum(beyond, covered))
    most = minimum(most, keeps.ceiling_bytes(weights) / each)
    return most if plan.stated_max_num_seqs is None else minimum(most, float(own))
