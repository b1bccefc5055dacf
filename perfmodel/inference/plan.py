"""A deployment with its defaults filled in, checked against model, hardware and workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.format_choice import as_stored, resolve_formats
from perfmodel.inference.format_notes import exchange_notes
from perfmodel.inference.kv_checks import check_kv_store
from perfmodel.inference.layout import check_layout, check_microbatches, layout_of
from perfmodel.inference.offload import Offload, offload_of
from perfmodel.inference.speculation.draft import Draft, resolve_draft
from perfmodel.kernels.flash import Flash, check_flash
from perfmodel.operators.format_bytes import Formats
from perfmodel.operators.quantity import Quantity, ceil_div
from perfmodel.operators.record import Phase
from perfmodel.operators.sharding import Parallel, check_parallel
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import Engine, load_engine
from perfmodel.specs.engine_groups import Limits
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload

SINKS = 4
"""First tokens that StreamingLLM keeps (arXiv 2309.17453: four suffice)."""


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
    model: Model
    """The model, its weights stored as the deployment says: what steps and memory are made of."""
    offload: Offload
    own_utilisation: float = 1.0
    """The engine's default share of the device memory."""
    graph_batch: int | None = None
    """The largest decode batch that the engine captures; None: any."""
    draft: Draft | None = None
    """Who drafts tokens for a step to verify; None: plain decoding."""

    @property
    def drafted(self) -> int:
        """Drafted tokens of each sequence in a decode step, beside the one that is certain."""
        return 0 if self.draft is None else self.draft.speculation.nodes

    @property
    def verified(self) -> int:
        """Tokens of each sequence in a decode step as it is priced.

        A stated cost of the draft replaces verification by a plain step.
        """
        stated = self.draft is not None and self.draft.speculation.draft_cost is not None
        return 1 if stated else 1 + self.drafted

    @property
    def flash(self) -> Flash | None:
        """The FlashAttention that was asked for by name."""
        named: dict[str | None, Flash] = {"flash2": "flash2", "flash3": "flash3"}
        return named.get(self.deployment.attention)

    def prefill_chunk(self, workload: Workload) -> int | None:
        """Tokens of a sequence that a prefill step takes at most: stated, or the engine's own."""
        return workload.prefill_chunk or self.engine.kernels.micro_batch_tokens

    def kept_tokens(self, phase: Phase) -> int | None:
        """Earlier tokens that full attention finds at most; the new one is kept beside them.

        StreamingLLM forgets at every step, a budget once the prompt is read.
        """
        d = self.deployment
        if d.kv_window is not None:
            return (d.kv_sinks or 0) + d.kv_window - 1
        return d.kv_budget - 1 if d.kv_budget is not None and phase == "decode" else None

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


def _sinks(deployment: Deployment) -> int | None:
    """Four where StreamingLLM is on and nothing is said: what its paper found to be enough."""
    if deployment.kv_window is None or deployment.kv_sinks is not None:
        return deployment.kv_sinks
    return SINKS


def _execution(deployment: Deployment, engine: Engine) -> Literal["graph", "eager"]:
    """As asked, else as the engine does."""
    if engine.graph.decode or not engine.graph.counted:
        return deployment.execution or "graph"
    if deployment.execution == "graph" or deployment.graph_batch is not None:
        flag = "--execution graph" if deployment.execution == "graph" else "--graph-batch"
        raise InputError(
            f"{flag}: {engine.name} captures no graphs; leave it out, or give --engine "
            "a copy of the preset with graph.decode: true (perfmodel engines copy)"
        )
    return "eager"


def make_plan(model: Model, hardware: Hardware, workload: Workload, deployment: Deployment) -> Plan:
    """Resolve a deployment.

    Raises:
        InputError: a layout, format or limit that doesn't fit model, hardware or workload.
    """
    parallel = layout_of(deployment)
    check_parallel(model, parallel)
    check_layout(model, workload, parallel)
    _check_positions(model, workload)
    model = as_stored(model, deployment)
    formats, weights, notes = resolve_formats(model, hardware, deployment)
    notes = (*notes, *exchange_notes(formats, parallel))
    engine = load_engine(deployment.engine)
    check_kv_store(model, hardware, workload, deployment, engine)
    chunk = workload.prefill_chunk or engine.kernels.micro_batch_tokens
    check_microbatches(deployment, workload, chunk)
    if deployment.attention in {"flash2", "flash3"}:
        check_flash(model, hardware, deployment.attention)
    limits = _limits(deployment, engine, hardware, _largest_replica_batch(workload, parallel.dp))
    tokens = limits.max_num_batched_tokens
    captured = deployment.graph_batch or engine.graph_batch(hardware, parallel.tp)
    share = engine.utilisation(hardware, tokens, captured, parallel.tp * parallel.pp)
    understood = deployment.model_copy(
        update={
            "weights": weights,
            "activations": formats.inputs.name,
            "kv_cache": formats.cache.name,
            "communication": formats.communication.name,
            "execution": _execution(deployment, engine),
            "attention": deployment.attention or engine.kernels.attention_scores,
            "kv_layout": deployment.kv_layout or engine.kv_layout,
            "block_size": deployment.block_size or engine.block_size,
            "gpu_memory_utilization": deployment.gpu_memory_utilization or share,
            "kv_sinks": _sinks(deployment),
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
        }
    )
    own = deployment.max_num_seqs or engine.default_limits(hardware).max_num_seqs
    draft = resolve_draft(model, hardware, workload, understood, formats, parallel)
    return Plan(
        deployment=understood,
        parallel=parallel,
        formats=formats,
        engine=engine,
        limits=limits,
        own_max_num_seqs=own,
        stated_max_num_seqs=deployment.max_num_seqs,
        notes=notes + (() if draft is None else draft.notes),
        model=model,
        offload=offload_of(hardware, deployment),
        own_utilisation=share,
        graph_batch=captured,
        draft=draft,
    )
