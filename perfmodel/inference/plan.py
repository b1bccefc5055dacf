"""A deployment with its defaults filled in, checked against model, hardware and workload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.format_choice import resolve_formats
from perfmodel.inference.speculation.draft import Draft, resolve_draft
from perfmodel.operators.format_bytes import Formats
from perfmodel.operators.quantity import Quantity, ceil_div
from perfmodel.operators.sharding import Parallel, check_parallel
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import Engine, Limits, load_engine
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload


@dataclass(frozen=True, slots=True)
class Plan:
    """What prefill, decode and memory need to know of a deployment."""

    deployment: Deployment
    """As understood: every ``auto`` and default replaced by what is used."""
    parallel: Parallel
    formats: Formats
    engine: Engine
    limits: Limits
    own_max_num_seqs: int
    """The engine's limit of sequences before the batch raised it."""
    stated_max_num_seqs: int | None
    """The limit that the user set, if any."""
    notes: tuple[str, ...]
    draft: Draft | None = None
    """Who drafts tokens for a step to verify; None: plain decoding."""

    @property
    def drafted(self) -> int:
        """Drafted tokens of each sequence in a decode step, beside the one that is certain."""
        return 0 if self.draft is None else self.draft.speculation.nodes

    def replica_sequences(self, workload: Workload) -> Quantity:
        """Sequences of the fullest data-parallel replica."""
        batch: Quantity = workload.batch
        return ceil_div(batch, self.parallel.dp)


def _limits(deployment: Deployment, engine: Engine, hardware: Hardware, batch: int) -> Limits:
    defaults = engine.default_limits(hardware)
    if deployment.max_num_seqs is not None and deployment.max_num_seqs < batch:
        raise InputError(
            f"--max-num-seqs: {deployment.max_num_seqs} is less than the {batch} sequences "
            "of a replica's batch"
        )
    # A copy isn't checked against what an engine's file may say: a workload's batch may be larger.
    return defaults.model_copy(
        update={
            "max_num_seqs": deployment.max_num_seqs or max(defaults.max_num_seqs, batch),
            "max_num_batched_tokens": deployment.max_num_batched_tokens
            or defaults.max_num_batched_tokens,
        }
    )


def _largest_replica_batch(workload: Workload, dp: int) -> int:
    return int(np.max(np.asarray(ceil_div(workload.batch, dp))))


def _check_positions(model: Model, workload: Workload) -> None:
    """A table of learned positions has no row for a token beyond it."""
    rows = model.max_positions or model.position_rows
    # The last token that is generated isn't fed in again.
    longest = int(np.max(np.asarray(workload.prompt + workload.output))) - 1
    if model.position_rows and longest > rows:
        raise InputError(
            f"{model.name} has a table of {rows} positions: --prompt and --output need {longest}"
        )


def make_plan(model: Model, hardware: Hardware, workload: Workload, deployment: Deployment) -> Plan:
    """Resolve a deployment.

    Raises:
        InputError: a layout, format or limit that doesn't fit model, hardware or workload.
    """
    parallel = Parallel(deployment.tp, deployment.pp, deployment.ep, deployment.dp)
    check_parallel(model, parallel)
    _check_positions(model, workload)
    if np.any(np.asarray(workload.batch) < parallel.dp):
        raise InputError(f"--dp: {parallel.dp} replicas for a batch of {np.min(workload.batch)}")
    formats, weights, notes = resolve_formats(model, hardware, deployment)
    engine = load_engine(deployment.engine)
    limits = _limits(deployment, engine, hardware, _largest_replica_batch(workload, parallel.dp))
    understood = deployment.model_copy(
        update={
            "weights": weights,
            "activations": formats.inputs.name,
            "kv_cache": formats.cache.name,
            "attention": deployment.attention or engine.kernels.attention_scores,
            "kv_layout": deployment.kv_layout or engine.kv_layout,
            "block_size": deployment.block_size or engine.block_size,
            "gpu_memory_utilization": deployment.gpu_memory_utilization
            or engine.gpu_memory_utilization,
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
        }
    )
    own = deployment.max_num_seqs or engine.default_limits(hardware).max_num_seqs
    draft = resolve_draft(model, hardware, workload, understood, formats, parallel)
    return Plan(
        understood,
        parallel,
        formats,
        engine,
        limits,
        own,
        deployment.max_num_seqs,
        notes + (() if draft is None else draft.notes),
        draft,
    )
