"""The activation peak: what a step needs beside weights and cache."""

from __future__ import annotations

import numpy as np

from perfmodel.inference.plan import Plan
from perfmodel.operators.quantity import Quantity, maximum, minimum
from perfmodel.operators.sharding import local_layer
from perfmodel.specs.model import Attention, LatentAttention, Model
from perfmodel.specs.workload import Workload
from perfmodel.units import GIB

SCORE_BYTES = 4.0
"""Scores in 16 bits and the probabilities made of them, for each (head, query, key)."""


def logits_bytes(model: Model, plan: Plan) -> float:
    """Bytes that one more sequence in a step adds to the activation peak.

    Its logits, the sampler's copies and sort indices, over the whole vocabulary whatever the TP.
    """
    return plan.engine.activation.bytes_per_logit * model.vocab


def sequence_limit(plan: Plan, sequences: Quantity) -> Quantity:
    """Rows of logits that are set aside: the engine's limit of sequences, or what is beyond it.

    A sequence has one row in a step, and one more for each drafted token that is verified.
    """
    rows = (1 + plan.drafted) * sequences
    return maximum(plan.stated_max_num_seqs or plan.own_max_num_seqs, rows)


def scores_bytes(model: Model, workload: Workload, plan: Plan) -> Quantity:
    """Bytes of one layer's scores where attention isn't fused; 0 where it is.

    The tokens of a step, at most the engine's budget, each against the whole prompt.
    """
    if plan.deployment.attention == "fused":
        return 0.0
    local = (local_layer(layer, plan.parallel).mixer for layer in set(model.layers))
    heads = [m.heads for m in local if isinstance(m, Attention | LatentAttention)]
    new = workload.prompt - workload.cached_prefix
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
    limit = sequence_limit(plan, plan.replica_sequences(workload))
    return limit * logits_bytes(model, plan) + fixed_peak_bytes(model, workload, plan)


def most_sequences(room: Quantity, per_sequence: Quantity, model: Model, plan: Plan) -> Quantity:
    """Sequences of a replica that fit into ``room`` beside the fixed peak, not rounded.

    Up to the engine's own limit the logits of the limit are set aside whatever the batch; each
    sequence beyond it needs its own. A limit that the user stated isn't passed.
    """
    logits = logits_bytes(model, plan)
    own = plan.stated_max_num_seqs or plan.own_max_num_seqs
    covered = own / (1 + plan.drafted)
    """Sequences whose rows of logits are within the engine's limit."""
    within = (room - own * logits) / np.maximum(per_sequence, 1e-9)
    beyond = room / (per_sequence + (1 + plan.drafted) * logits)
    most: Quantity = np.where(within <= covered, within, np.maximum(beyond, covered))
    return most if plan.stated_max_num_seqs is None else minimum(most, float(own))
