"""The memory of an estimate as a table, with the reasons behind each part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.cli.output import table
from perfmodel.cli.text import binary, whole
from perfmodel.inference.estimate import Estimate
from perfmodel.inference.plan import Plan
from perfmodel.operators.cache import layer_window, state_bytes_per_sequence, token_bytes
from perfmodel.operators.sharding import local_layer, stage_layers
from perfmodel.specs.model import Layer
from perfmodel.specs.workload import LARGEST

if TYPE_CHECKING:
    from rich.table import Table


def memory_rows(result: Estimate) -> list[tuple[str, float]]:
    """Parts of the memory of the fullest GPU, in bytes."""
    memory = result.memory
    return [
        ("weights", float(memory.weights_bytes)),
        ("kv_cache", float(memory.kv_bytes)),
        ("activation_peak", float(memory.activation_bytes)),
        ("reserved", float(memory.reserved_bytes)),
        ("required", float(memory.required_bytes)),
        ("capacity", float(memory.capacity_bytes)),
    ]


def memory_table(result: Estimate, *, detail: bool) -> Table:
    """Memory per GPU, whether it fits, what more would; ``detail`` explains each part."""
    memory = result.memory
    context = _context_note(result)
    rows = [
        ("Weights", binary(float(memory.weights_bytes)), _weights_note(result)),
        (_cache_label(result), binary(float(memory.kv_bytes)), _cache_note(result)),
        *_outside_rows(result),
        ("Activation peak", binary(float(memory.activation_bytes)), _activation_note(result)),
        ("Reserved", binary(float(memory.reserved_bytes)), _reserve_note(result)),
        ("Capacity", binary(float(memory.capacity_bytes)), result.hardware.name),
        ("Fits", "yes" if memory.fits else "NO", ""),
        ("Largest batch at this length", whole(float(memory.max_sequences)), ""),
    ]
    notes = [("", "left")] if detail or context else []
    made = table(None, [("Memory per GPU", "left"), ("", "right"), *notes])
    made.columns[0].no_wrap = True
    for label, value, note in rows:
        made.add_row(label, value, note if detail else "") if notes else made.add_row(label, value)
    made.add_row("Longest context at this batch", _context(result), *([context] if notes else []))
    return made


def _outside_rows(result: Estimate) -> list[tuple[str, str, str]]:
    """What lies outside the device, beside what is listed."""
    memory, deployment = result.memory, result.plan.deployment
    rows = []
    if deployment.kv_offload:
        where = {"host": "in host memory", "ssd": "on SSD"}[deployment.kv_offload_to]
        size = binary(float(memory.kv_outside_bytes))
        rows.append(
            (f"  more of it {where}", size, "read in each step; two layers' part in flight")
        )
    if memory.weights_outside_bytes:
        size = binary(float(memory.weights_outside_bytes))
        rows.append(("  more weights in host memory", size, "read in each pass"))
    return rows


def _has_cache(result: Estimate) -> bool:
    return result.memory.kv_bytes_per_token > 0


def _has_state(result: Estimate) -> bool:
    return state_bytes_per_sequence(result.model) > 0


def _held(result: Estimate) -> str:
    """How many sequences a GPU holds, of how many."""
    batch, held = (
        whole(float(count))
        for count in (result.workload.batch, result.plan.replica_sequences(result.workload))
    )
    return f"{held} of {batch}" if result.plan.parallel.dp > 1 else batch


def _cache_label(result: Estimate) -> str:
    if not _has_cache(result):
        plural = "" if float(result.workload.batch) == 1 else "s"
        return f"State ({_held(result)} sequence{plural})"
    what = "KV cache, state" if _has_state(result) else "KV cache"
    length = whole(float(result.workload.prompt) + float(result.workload.output))
    return f"{what} ({_held(result)} × {length} tokens)"


def _local_layers(result: Estimate) -> list[Layer]:
    """The layers of the stage that is described, with the sizes of one GPU."""
    parallel = result.plan.parallel
    stage = stage_layers(result.model, parallel.pp)[result.memory.stage]
    return [local_layer(layer, parallel) for layer in stage]


def _cache_note(result: Estimate) -> str:
    memory, deployment = result.memory, result.plan.deployment
    if not _has_cache(result):
        each = float(memory.kv_bytes) / float(result.plan.replica_sequences(result.workload))
        return f"{binary(each)} a sequence, whatever its length"
    waste = float(memory.kv_bytes) - float(memory.kv_stored_bytes)
    state = " and the states" if _has_state(result) else ""
    return (
        f"{binary(memory.kv_bytes_per_token)} a token and sequence in {deployment.kv_cache}"
        f"{state}; {deployment.kv_layout} layout, {binary(waste)} unused{_window_note(result)}"
        f"{_kept_note(result)}"
    )


def _kept_note(result: Estimate) -> str:
    """What else decides of the cache's size: sharing, eviction, whoever hands out the blocks."""
    load, deployment = result.workload, result.plan.deployment
    notes = []
    if load.prefix_share is not None:
        notes.append(f"a prefix of {whole(float(load.cached_prefix))} tokens stored once")
    kept = result.plan.kept_tokens("decode")
    if kept is not None:
        notes.append(f"full attention keeps {whole(kept + 1)} tokens")
    if deployment.kv_manager != "ideal":
        notes.append(f"{deployment.kv_manager} manager")
    return "".join(f"; {note}" for note in notes)


def _window_note(result: Estimate) -> str:
    """What the layers with a window keep, and what grows beyond it."""
    layers = _local_layers(result)
    windows = sorted({w for x in layers if (w := layer_window(x.mixer)) is not None})
    if not windows:
        return ""
    count = sum(layer_window(layer.mixer) is not None for layer in layers)
    sizes = " or ".join(whole(window) for window in windows)
    rest = sum(
        token_bytes(layer.mixer, result.plan.formats.cache)
        for layer in layers
        if layer_window(layer.mixer) is None
    )
    return (
        f"; {count} of {len(layers)} layers keep the last {sizes} tokens only: "
        f"{binary(rest / result.plan.parallel.cache_shares)} for each token beyond"
    )


def _activation_note(result: Estimate) -> str:
    limits = result.plan.limits
    return (
        f"{result.plan.engine.name}'s start-up run: {whole(limits.max_num_seqs)} sequences × "
        f"vocabulary, {whole(limits.max_num_batched_tokens)} tokens × hidden"
    )


def _reserve_note(result: Estimate) -> str:
    share = result.plan.deployment.gpu_memory_utilization or 1.0
    beyond = {
        "total": f"beyond {share:g} of the device",
        "static": f"beyond {share:g} for weights and cache, less the activations",
        "free": f"beyond {share:g} of what weights and activations leave",
        "free_after_weights": f"beyond {share:g} of what weights leave, less the activations",
    }
    return f"{beyond[result.plan.engine.memory_rule]}; driver, communication"


def _weights_note(result: Estimate) -> str:
    parallel = result.plan.parallel
    layout = [f"{n} {ranks}" for n, ranks in parallel_sizes(result.plan) if n in {"tp", "ep"}]
    stage = [f"stage {result.memory.stage + 1} of {parallel.pp}"] if parallel.pp > 1 else []
    return ", ".join([result.plan.deployment.weights, *layout, *stage])


def parallel_sizes(plan: Plan) -> list[tuple[str, int]]:
    """The parallel sizes that aren't 1."""
    parallel = plan.parallel
    names = ("tp", "pp", "ep", "dp", "cp", "dcp")
    return [(n, getattr(parallel, n)) for n in names if getattr(parallel, n) > 1]


def _context(result: Estimate) -> str:
    longest = float(result.memory.max_context)
    if longest >= LARGEST:
        return "any"
    return f"{whole(longest)} tokens" if longest else "none"


def _context_note(result: Estimate) -> str:
    """The model's own limit where the memory would take more."""
    limit = result.model.max_positions
    if limit is None or float(result.memory.max_context) <= limit:
        return ""
    return f"(the model was made for {whole(limit)})"
