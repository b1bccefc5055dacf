"""The KV store of an estimate as tables: layouts, vLLM's pool, swapping, chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.cli.output import table
from perfmodel.cli.text import binary, digits, percent, seconds, whole
from perfmodel.inference.estimate import Estimate
from perfmodel.inference.kv_report import Chunking, KvReport, PoolUse

if TYPE_CHECKING:
    from rich.table import Table

Row = tuple[str, str, str]
MANAGERS = {"hybrid": "vLLM's pool", "uniform": "vLLM's pool, hybrid manager off"}


def _layout_rows(report: KvReport) -> list[Row]:
    rows = []
    for use in report.layouts:
        size, waste = float(use.bytes), float(use.waste_bytes)
        unused = percent(waste / size) if size else "none"
        rows.append((f"Batch, {use.layout}", binary(size), f"{binary(waste)} unused, {unused}"))
    return rows


def _pool_rows(pool: PoolUse, report: KvReport) -> list[Row]:
    ideal = float(report.ideal_bytes_per_sequence)
    each = float(pool.bytes_per_sequence)
    padded = f", {pool.padding_layers} of them padding" if pool.padding_layers else ""
    layers = pool.groups * pool.group_layers
    shape = (
        f"{pool.groups} × {pool.group_layers} = {layers} layers{padded}; blocks of "
        f"{whole(pool.block_tokens)} tokens; {digits(each / ideal)} × the ideal"
    )
    name = MANAGERS[pool.manager]
    rows = [
        (f"Sequence, {name}", binary(each), shape),
        ("  it logs, to 0.19", f"{whole(float(pool.logged_tokens))} tokens", "GPU KV cache size"),
    ]
    if pool.concurrency is not None and pool.capacity_tokens is not None:
        longest = whole(float(report.max_model_len or 0))
        rows += [
            ("  it logs, later", f"{whole(float(pool.capacity_tokens))} tokens",
             f"maximum concurrency × {longest}"),
            ("  maximum concurrency", f"{float(pool.concurrency):.2f}×",
             f"for {longest} tokens per request"),
        ]  # fmt: skip
    return rows


def _swap_rows(report: KvReport, place: str) -> list[Row]:
    if report.swap is None:
        return []
    ranges = ", ".join(f"{whole(low)} to {whole(high)}" for low, high in report.swap_pays)
    return [
        (f"Sequence back from {place}", seconds(report.swap.swap_s),
         f"{binary(float(report.swap.bytes))} a GPU at the link's nominal rate"),
        ("  computed again", seconds(report.swap.recompute_s),
         f"bringing back pays for {ranges} tokens" if ranges else "which always is faster"),
    ]  # fmt: skip


def kv_table(result: Estimate, report: KvReport) -> Table:
    """What the cache takes, ideal and as engines set it aside, and what swapping costs."""
    length = whole(float(result.workload.prompt) + float(result.workload.output))
    ideal = binary(float(report.ideal_bytes_per_sequence))
    rows = [(f"Sequence of {length} tokens, ideal", ideal, "windows kept to their length")]
    rows += _layout_rows(report)
    for pool in report.pools:
        rows += _pool_rows(pool, report)
    rows += _swap_rows(report, result.plan.deployment.kv_offload_to)
    made = table(None, [("KV store", "left"), ("", "right"), ("", "left")])
    made.columns[0].no_wrap = True
    for row in rows:
        made.add_row(*row)
    return made


def chunk_table(chunking: Chunking) -> Table:
    """A prefill in chunks beside one pass, and a chunk beside the decodes."""
    made = table(None, [("Chunked prefill", "left"), ("", "right")])
    chunks = whole(float(chunking.chunks))
    steps = float(chunking.mixed_step_s) - float(chunking.decode_step_s)
    for label, value in (
        (f"{chunks} chunks of {whole(chunking.chunk)}", seconds(chunking.time_s)),
        ("At once", seconds(chunking.whole_s)),
        ("Earlier keys read again", binary(float(chunking.reread_bytes))),
        ("Decode step alone", seconds(chunking.decode_step_s)),
        ("Decode step with one prompt's last chunk", seconds(chunking.mixed_step_s)),
        ("  so each decode waits", seconds(steps)),
    ):
        made.add_row(label, value)
    return made
