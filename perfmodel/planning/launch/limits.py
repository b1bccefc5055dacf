"""Limits of an engine in the words of its command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfmodel.planning.launch.launch import Launched


@dataclass(frozen=True, slots=True)
class LimitFlags:
    """An engine's flags; empty where it has none, or takes it another way."""

    sequences: str
    tokens: str
    memory: str
    longest: str
    block: str = ""
    graphs: str = ""
    """Sequences of the largest decode step that is captured."""
    offload: str = ""


def limit_words(case: Launched, flags: LimitFlags, ranks: int = 1) -> Iterator[str]:
    """The limits that were priced, whether stated or the engine's own.

    ``ranks``: over which the server divides its sequences and tokens.
    """
    limits, given, used = case.plan.limits, case.given, case.plan.deployment
    yield f"{flags.sequences} {limits.max_num_seqs * ranks}"
    yield f"{flags.tokens} {limits.max_num_batched_tokens * ranks}"
    stated = (
        (flags.memory, used.gpu_memory_utilization),
        (flags.longest, case.longest),
        (flags.block, given.block_size),
        (flags.graphs, given.graph_batch),
        (flags.offload, used.cpu_offload_gb or None),
    )
    yield from (f"{flag} {value:.15g}" for flag, value in stated if flag and value is not None)
