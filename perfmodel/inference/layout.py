"""A deployment's parallel layout, and the combinations that no engine runs."""

from __future__ import annotations

import numpy as np

from perfmodel.errors import InputError
from perfmodel.operators.cache import layer_state
from perfmodel.operators.quantity import Quantity, ceil_div
from perfmodel.operators.sharding import Parallel
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.model import Attention, LatentAttention, Model, MoeFfn
from perfmodel.specs.workload import Workload


def layout_of(deployment: Deployment) -> Parallel:
    """The parallel groups of a deployment."""
    d = deployment
    return Parallel(
        tp=d.tp,
        pp=d.pp,
        ep=d.ep,
        dp=d.dp,
        cp=d.cp,
        dcp=d.dcp,
        sequence_parallel=d.sequence_parallel,
        expert_skew=d.expert_skew,
    )


def check_layout(model: Model, workload: Workload, parallel: Parallel) -> None:
    """Refuse what ``model`` or ``workload`` can't take of context parallelism, skew and replicas.

    Raises:
        InputError: one line that names the flag, the value and what would do.
    """
    if np.any(np.asarray(workload.batch) < parallel.dp):
        raise InputError(f"--dp: {parallel.dp} replicas for a batch of {np.min(workload.batch)}")
    if parallel.expert_skew and not any(isinstance(x.ffn, MoeFfn) for x in model.layers):
        raise InputError(
            f"--expert-skew: {parallel.expert_skew:g}, but {model.name} has no experts; use 0"
        )
    if parallel.cache_shares > 1:
        _check_shares(model, parallel)
    new = int(np.min(np.asarray(workload.prompt) - np.asarray(workload.cached_prefix)))
    if parallel.cp > new:
        raise InputError(
            f"--cp: {parallel.cp} ranks for a prompt of {new} new tokens; use at most {new}"
        )
    if parallel.cp > 1 and any(layer_state(x.mixer)[0] for x in model.layers):
        raise InputError(
            f"--cp: {parallel.cp}, but {model.name} has recurrent layers, whose state passes from "
            "token to token; use --cp 1"
        )


def _check_shares(model: Model, parallel: Parallel) -> None:
    """Which ranks can share a cache by tokens: not an indexer's, and those of one KV head."""
    flag = "--cp" if parallel.cp > 1 else "--dcp"
    mixers = {layer.mixer for layer in model.layers}
    if any(isinstance(m, LatentAttention) and m.indexer is not None for m in mixers):
        raise InputError(
            f"{flag}: the top keys of {model.name}'s indexer aren't chosen over shared caches; "
            f"use {flag} 1"
        )
    heads = [m.kv_heads for m in mixers if isinstance(m, Attention)]
    heads += [1 for m in mixers if isinstance(m, LatentAttention)]
    if not heads:
        raise InputError(f"{flag}: {model.name} has no KV cache to share; use {flag} 1")
    copies = max(1, parallel.tp // max(heads))
    if copies % parallel.dcp:
        fits = ", ".join(str(n) for n in range(1, copies + 1) if copies % n == 0)
        raise InputError(
            f"--dcp: {parallel.dcp}, but {copies} of --tp {parallel.tp} ranks hold the same KV "
            f"head of {model.name}; --dcp may be {fits}"
        )


def layout_notes(deployment: Deployment, bubbles: dict[str, Quantity]) -> list[str]:
    """What a reader of the times should know of the layout.

    ``bubbles``: the share of each phase in which the slowest pipeline stage waits.
    """
    d, notes = deployment, []
    if d.pp > 1 and d.pp_microbatches == 1:
        notes.append(
            f"one batch passes the {d.pp} pipeline stages in turn: latency is right, "
            "throughput with several batches in flight is higher"
        )
    if d.pp_microbatches > 1:
        shares = (f"{100 * float(np.max(share)):.0f} % of {n}" for n, share in bubbles.items())
        notes.append(
            f"up to {d.pp_microbatches} micro-batches fill {d.pp} stages; FLOPs and bytes are the "
            f"slowest stage's, which waits for {' and '.join(shares)}"
        )
    if d.comm_overlap:
        notes.append(
            f"up to {100 * d.comm_overlap:g} % of a step's exchanges run behind its other kernels "
            "(assumed); exchanges are shown with what is left of them"
        )
    if d.expert_skew:
        notes.append(
            f"experts follow a power law of exponent {d.expert_skew:g} (assumed), dealt at random: "
            "expert layers and their exchanges are the busiest rank's"
        )
    return notes


def check_microbatches(deployment: Deployment, workload: Workload, chunk: int | None) -> None:
    """Refuse micro-batches without stages to fill, or without sequences to fill them.

    ``chunk``: tokens of a sequence that a prefill step takes at most.

    Raises:
        InputError: one line that names the flag, the value and what would do.
    """
    asked = deployment.pp_microbatches
    if asked == 1:
        return
    if deployment.pp == 1:
        raise InputError(
            f"--pp-microbatches: {asked}, but one stage has nothing to overlap; use --pp 2 or more"
        )
    new = np.asarray(workload.prompt) - np.asarray(workload.cached_prefix)
    chunks = 1 if chunk is None else np.ceil(new / chunk)
    most = int(np.min(np.asarray(ceil_div(workload.batch, deployment.dp)) * chunks))
    if asked > most:
        raise InputError(
            f"--pp-microbatches: {asked} for {most} sequence(s) or chunks of a replica; "
            f"use at most {most}"
        )
